"""Captures of several calls: kept apart, and joined."""

import pytest
import torch

from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.interventions import Ablate, Patch, Target, intervene
from tests.library.model_analysis.interventions.support import logits
from tests.library.model_analysis.models import WITH_PARTS
from tests.support.language import close, lm, tokens
from tests.support.refusals import refusals
from tests.support.seq2seq import build as seq2seq


def test_calls_are_kept_apart_and_joined():
    model, x = lm("symbolic_attention"), tokens(4, 9)
    with capture(model) as whole:
        model(x)
    with capture(model) as maps:
        model(x[:3])
        model(x[3:])
    assert len(maps.calls) == 2
    joined = maps.joined("example")
    for one, other in zip(whole.heads(), joined.heads(), strict=True):
        for name, values in one.kept.items():
            close(other.get(name).double(), values.expand(other.get(name).shape).double(), 1e-12)


@pytest.mark.parametrize("kind", ["symbolic_attention", "positional_symbols", "position_relative"])
@pytest.mark.parametrize("sizes", [(3, 1), (1, 1, 1, 1)], ids=str)
def test_batches_joined_are_a_source_as_the_whole_is(kind, sizes):
    """What all examples share is kept once."""
    model, (x, other) = lm(kind), tokens(8, 9).unflatten(0, (2, 4))
    with torch.no_grad(), capture(model, ["symbol_values", "visible"]) as whole:
        model(other)
    with torch.no_grad(), capture(model, ["symbol_values", "visible"]) as maps:
        for piece in other.split(sizes):
            model(piece)
    joined, patch = maps.joined("example"), Patch(Target("symbol"))
    for one, found in zip(whole.heads("relational"), joined.heads("relational"), strict=True):
        assert one.symbol_values.shape == found.symbol_values.shape and one.visible.shape == found.visible.shape
    close(logits(model, x, patch, joined), logits(model, x, patch, whole), 1e-12)


@pytest.mark.parametrize("kind", ["symbolic_attention", "rel_sym_attn", "positional_symbols", "transformer"])
@pytest.mark.parametrize("window", [None, 4])
def test_steps_of_decoding_join_to_the_whole(kind, window):
    attention = {"window": window}
    options = {"block_kwargs": {"attn_kwargs": attention}}
    if kind != "transformer":
        options = {"sa_kwargs": attention, "ra_kwargs": attention}
    model, x = lm(kind, **options), tokens(2, 9)
    with torch.no_grad(), capture(model) as whole:
        model(x)
    cache = model.new_cache()
    with torch.no_grad(), capture(model) as maps:
        for piece in x.split([4, 1, 1, 3], dim=1):
            model(piece, cache=cache)
    assert len(maps.calls) == 4
    joined = maps.joined("receiver")
    for one, other in zip(whole.heads(), joined.heads(), strict=True):
        seen = one.visible.expand(2, 2 if kind != "transformer" else 4, 9, 9)
        for name, values in one.kept.items():
            if name == "visible":
                assert torch.equal(other.visible.expand(2, 1, 9, 9), values.expand(2, 1, 9, 9))
            elif name == "relations":  # later senders have zeros
                mask = seen[:, 0, ..., None]
                close(other.relations.where(mask, 0.0), values.where(mask, 0.0))
            else:
                close(*torch.broadcast_tensors(other.get(name), values))


@pytest.mark.parametrize("name", WITH_PARTS)
def test_steps_of_decoding_with_own_parts_have_the_places_of_the_whole(name):
    model, x = WITH_PARTS[name](), tokens(2, 9)

    def steps() -> list[torch.Tensor]:
        cache = model.new_cache()
        return [model(piece, cache=cache).logits for piece in x.split([4, 1, 1, 3], dim=1)]

    with torch.no_grad(), capture(model) as whole:
        model(x)
    with torch.no_grad(), capture(model) as maps:
        steps()
    for one, other in zip(whole.heads(), maps.joined("receiver").heads(), strict=True):
        for quantity, values in one.kept.items():
            seen = one.visible[:, 0, ..., None] if quantity == "relations" else torch.ones(()).bool()
            close((other.get(quantity) * seen).double(), (values * seen).double())
    for target in (Target("head", receivers=[0, 5]), Target("selection", receivers=[4])):
        with torch.no_grad(), intervene(model, Ablate(target)):
            close(torch.cat(steps(), 1), model(x).logits)


def test_a_generation_s_steps_are_calls():
    model = lm("symbolic_attention")
    with capture(model, "weights", layers=0) as maps:
        model.generate(tokens(2, 4), max_new_tokens=3, temperature=0.0)
    assert [call[0].sensory.first_receiver for call in maps.calls] == [0, 4, 5]


def test_an_encoder_is_called_once_and_its_decoder_step_by_step():
    model = seq2seq("symbolic_attention")
    source, target = torch.randint(11, (2, 9)), torch.randint(6, (2, 5))
    with torch.no_grad(), capture(model) as whole:
        model(source, target)
    with torch.no_grad(), capture(model) as maps:
        memory, cache = model.encode(source), model.new_cache()
        for piece in target.split([1, 1, 3], dim=1):
            model.decode(piece, memory, cache=cache)
    assert [len(call) for call in maps.calls] == [6, 4, 4]
    joined = maps.joined("receiver")
    assert list(joined) == list(whole.only)
    for one, other in zip(whole.heads(), joined.heads(), strict=True):
        close(other.get("weights"), one.get("weights"))
        close(other.get("contribution"), one.get("contribution"))


@refusals(
    (lambda maps: maps["blocks.0"], "maps: expected one call, got 2"),
    (lambda maps: maps.joined("example"), "calls of one size"),
)
def test_calls_that_differ(call, error, message):
    model, x = lm("symbolic_attention"), tokens(4, 9)
    with capture(model) as maps:
        model(x)
        model(x[:, :5])
    with pytest.raises(error, match=message):
        call(maps)


def test_calls_of_other_layers_are_not_joined():
    model, (source, target) = seq2seq("symbolic_attention"), torch.randint(6, (2, 2, 5))
    with torch.no_grad(), capture(model) as maps:
        model.decode(target, memory := model.encode(source))
        model.decode(target, memory)
    with pytest.raises(ValueError, match="call 1 has the layers"):
        maps.joined("example")


def test_recomputed_blocks_are_not_kept_again():
    model, x = lm("symbolic_attention").train(), tokens(2, 9)
    model.gradient_checkpointing = True
    with capture(model) as maps:
        model(x, x, loss_only=True).loss.backward()
    assert len(maps.calls) == 1
    with capture(model) as without:
        model.gradient_checkpointing = False
        model(x)
    for one, other in zip(maps.heads(), without.heads(), strict=True):
        for name, values in one.kept.items():
            assert torch.equal(values, other.get(name))
