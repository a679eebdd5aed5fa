"""Captures leave alone what they look at: memory, modes, gradients, generators, compiled code."""

import gc
import weakref

import pytest
import torch
from torch import nn

from dual_attention._layers.taps import Tap
from dual_attention.model_analysis.capture import capture
from dual_attention.part_trials import LargestTensor
from tests.library.model_analysis.models import hooks
from tests.support.language import close, lm, tokens


def test_memory_is_that_of_what_is_chosen():
    model, x = lm("symbolic_attention", ra_kwargs={"n_relations": 6}, max_block_size=64), tokens(4, 64)
    born = []

    def watch(_module, _args, out):
        born.append(weakref.ref(out))

    handles = [tap.register_forward_hook(watch) for tap in model.modules() if isinstance(tap, Tap)]
    with (
        torch.no_grad(),
        capture(model, ["weights", "relations"], layers=1, heads={"relational": [0]}, relations=3) as m,
    ):
        model(x)
    for handle in handles:
        handle.remove()
    gc.collect()
    assert born and all(ref() is None for ref in born)  # nothing that passed a tap is held
    assert m.memory == 8 * (4 * 64 * 64 + 4 * 64 * 64)
    kept = [values for heads in m.heads() for values in heads.kept.values()]
    assert sum(values.untyped_storage().nbytes() for values in kept) == m.memory  # no views of larger tensors


def test_relations_are_built_only_if_they_are_kept():
    x = tokens(2, 64)
    model = lm("symbolic_attention", ra_kwargs={"n_relations": 12, "rel_proj_dim": 2}, max_block_size=64)
    largest = {}
    for quantity in ("weights", "relations"):
        with torch.no_grad(), capture(model, quantity, layers=0, heads="relational"), LargestTensor() as watch:
            model(x)
        largest[quantity] = watch.numel
    assert largest["relations"] >= 2 * 64 * 64 * 12 > largest["weights"]


def test_mode_gradients_and_generators_are_left_alone():
    model, x = lm("symbolic_attention", dropout_rate=0.1), tokens(2, 9)
    model.train()
    model.layers.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    torch.manual_seed(5)
    with capture(model) as maps:
        loss = model(x, x).loss
        state = torch.get_rng_state()
    assert torch.equal(state, torch.get_rng_state())
    loss.backward()
    assert modes == [module.training for module in model.modules()]
    assert all(parameter.grad is not None for parameter in model.layers.blocks.parameters())
    assert not any(values.requires_grad for heads in maps.heads() for values in heads.kept.values())
    torch.manual_seed(5)
    with capture(model):
        assert torch.equal(model(x, x).loss, loss)
    model.eval()
    state = torch.get_rng_state()
    with capture(model):
        model(x)
    assert torch.equal(state, torch.get_rng_state())


def test_no_hooks_are_left_after_an_error_within_or_before():
    model, x = lm("symbolic_attention"), tokens(2, 9)
    with pytest.raises(RuntimeError, match="within"), capture(model) as maps:
        model(x)
        raise RuntimeError("within")
    assert not hooks(model) and len(maps.calls) == 1
    with pytest.raises(ValueError, match=r"max_block_size|context|length"), capture(model):
        model(tokens(1, 99))
    with pytest.raises(ValueError, match="layers"), capture(model, layers=7):
        pass
    assert not hooks(model)


def test_captures_within_captures():
    model, x = lm("symbolic_attention"), tokens(2, 9)
    with capture(model, "weights") as outer:
        model(x)
        with capture(model, "relations") as inner:
            model(x)
        model(x)
    assert len(outer.calls) == 3 and len(inner.calls) == 1
    assert torch.equal(outer.calls[1][0].relational.weights, outer.calls[2][0].relational.weights)
    assert set(inner[0].relational.kept) == {"relations"}


def test_compiled_code_is_unaware_of_taps():
    model, x = lm("symbolic_attention"), tokens(2, 9)
    before = model(x).logits
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    close(compiled(x).logits, before, 1e-12)
    with capture(compiled, layers=0) as maps:
        close(compiled(x).logits, before, 1e-12)
    assert maps[0].relational.relations.shape == (2, 9, 9, 2)
    with torch._dynamo.config.patch(error_on_recompile=True):
        compiled(x)


@pytest.mark.slow
def test_captures_that_end_in_the_order_they_began_leave_compiled_code_compiled():
    """As those of two threads may."""
    model, x = lm("symbolic_attention"), tokens(2, 9)
    graphs = []
    compiled = torch.compile(model, backend=lambda graph, _: graphs.append(graph) or graph.forward)
    first, second = capture(model), capture(model)
    first.__enter__()
    second.__enter__()
    for context in (first, second):
        context.__exit__(None, None, None)
        assert not graphs
    compiled(x)
    assert graphs


def test_state_dicts_and_parameters_have_no_taps():
    model = lm("symbolic_attention")
    assert not [name for name in model.state_dict() if "taps" in name]
    assert not [name for name, _ in (*model.named_parameters(), *model.named_buffers()) if "taps" in name]


def test_copies_elsewhere():
    model, x = lm("symbolic_attention"), tokens(2, 9)
    with capture(model, "weights", layers=0, device="meta") as maps:
        model(x)
    assert maps[0].sensory.weights.is_meta


class Noisy(nn.Linear):
    """An output projection with an adapter's dropout."""

    def forward(self, input):
        return super().forward(nn.functional.dropout(input, 0.5, self.training))


def test_an_adapter_with_dropout_draws_as_ever():
    model, x = lm("symbolic_attention").train(), tokens(2, 9)
    for module in list(model.modules()):
        if isinstance(getattr(module, "wo", None), nn.Linear):
            noisy = Noisy(*reversed(module.wo.weight.shape), bias=module.wo.bias is not None).to(module.wo.weight)
            noisy.load_state_dict(module.wo.state_dict())
            module.wo = noisy
    found = []
    for quantities in (["head_output"], ["head_output", "contribution"]):
        torch.manual_seed(0)
        with capture(model, quantities) as maps:
            found.append((model(x).logits, torch.get_rng_state()))
    assert all(map(torch.equal, *found))
    assert all(module.training for module in model.modules())
    wo, heads = model.layers.blocks[0].dual_attn.relational_attention.wo, maps[0].relational
    wanted = nn.functional.linear(heads.head_output.transpose(1, 2).flatten(2), wo.weight)
    close(heads.contribution.sum(1)[..., -wo.out_features :], wanted)
