"""Interventions together: their order, caches, cross-attention, low precision."""

import pytest
import torch

from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.interventions import Ablate, Patch, Scale, Steer, Target, intervene
from tests.library.model_analysis.interventions.support import logits
from tests.library.model_analysis.models import hooks
from tests.support.language import close, lm, tokens
from tests.support.seq2seq import build as seq2seq


def test_interventions_compose_in_their_order():
    model, x = lm("symbolic_attention"), tokens(3, 9)
    add, double = Steer(Target("relation"), 1.0), Scale(Target("relation"), 2.0)
    with capture(model, "relations", layers=0) as before:
        model(x)
    r = before[0].relational.get("relations")
    with intervene(model, [add, double]), capture(model, "relations", layers=0) as maps:
        listed = model(x).logits
    close(maps[0].relational.relations, 2 * (r + 1))
    with intervene(model, add), intervene(model, double), capture(model, "relations", layers=0) as maps:
        close(model(x).logits, listed, 1e-12)
    with intervene(model, [double, add]), capture(model, "relations", layers=0) as maps:
        model(x)
    close(maps[0].relational.relations, 2 * r + 1)


def test_the_symbol_of_a_pair_sees_the_selection_that_others_left():
    model, x = lm("symbolic_attention"), tokens(3, 9)
    pair = Ablate(Target("symbol", layers=0, pairs=[(5, 2)]))
    without = Ablate(Target("selection", layers=0, pairs=[(5, 2)]))
    close(logits(model, x, [pair, without]), logits(model, x, [without]))


def test_cached_decoding_and_recomputed_blocks():
    model, x = lm("symbolic_attention"), tokens(2, 9)
    interventions = [
        Ablate(Target("relation", layers=0, relations=1, receivers=[3, 7])),
        Scale(Target("selection", layers=1, heads={"sensory": 0}, pairs=[(8, 2), (5, 5)]), 0.5),
        Ablate(Target("symbol", layers=1, senders=[4])),
        Steer(Target("head", layers=1, heads={"relational": 1}, receivers=[6]), 1.0, [1.0, 0.0, 0.0, 0.0]),
    ]
    whole = logits(model, x, interventions)
    cache, found = model.new_cache(), []
    with torch.no_grad(), intervene(model, interventions):
        found = [model(piece, cache=cache).logits for piece in x.split([4, 1, 1, 3], dim=1)]
    close(torch.cat(found, 1), whole)
    grads = []
    for checkpointing in (False, True):
        model.gradient_checkpointing = checkpointing
        model.train().zero_grad()
        with intervene(model, interventions):
            model(x, x, loss_only=True).loss.backward()
        grads.append([parameter.grad.clone() for parameter in model.parameters()])
    close(*grads, 1e-12)


def test_cross_attention():
    model = seq2seq("symbolic_attention")
    source, target = torch.randint(11, (2, 9)), torch.randint(6, (2, 7))
    without = Ablate(Target("selection", layers="decoder.0.cross", pairs=[(3, 8)]))
    with intervene(model, without), capture(model, "weights", layers="decoder") as maps:
        model(source, target, target)
    assert (maps["decoder.0.cross"].sensory.weights[:, :, 3, 8] == 0).all()
    assert (maps["decoder.1.cross"].sensory.weights[:, :, 3, 8] != 0).all()


def test_means_of_more_pairs_than_float16_counts():
    model, x = lm("symbolic_attention", max_block_size=400).float(), tokens(1, 400)
    means = Ablate(Target("relation"), "mean")
    with torch.no_grad(), intervene(model, means), capture(model, "relations") as wanted:
        model(x)
    with torch.no_grad(), intervene(model.half(), means), capture(model, "relations") as found:
        model(x)
    first, second = (maps["blocks.0"].relational.relations.float() for maps in (wanted, found))
    torch.testing.assert_close(second, first, atol=2e-3, rtol=0.02)
    assert second.abs().max() > 0


@pytest.mark.parametrize("kind", ["symbolic_attention", "position_relative", "transformer"])
@pytest.mark.parametrize("cast", [False, True], ids=["bfloat16", "autocast"])
def test_low_precision(kind, cast):
    """Types stay what they are, and patching a model with itself changes no more than rounding does."""
    model, x = lm(kind).to(torch.float32 if cast else torch.bfloat16), tokens(3, 9)
    patches = [Patch(Target("head")), Patch(Target("selection"))]
    if kind != "transformer":
        patches += [Patch(Target("relation")), Patch(Target("symbol"))]
    with torch.no_grad(), torch.autocast("cpu", enabled=cast, dtype=torch.bfloat16):
        before = model(x).logits
        with capture(model) as source:
            captured = model(x).logits
        for interventions in (patches, Ablate(Target("selection"), "mean", strength=0.0)):
            with intervene(model, interventions, source=source):
                after = model(x).logits
            for found in (captured, after):
                assert found.dtype == before.dtype
                torch.testing.assert_close(found, before, atol=0.08, rtol=0)


def test_no_hooks_are_left_after_an_error():
    model, x = lm("symbolic_attention"), tokens(2, 9)
    with pytest.raises(RuntimeError, match="within"), intervene(model, Ablate(Target("head"))):
        model(x)
        raise RuntimeError("within")
    assert not hooks(model)
