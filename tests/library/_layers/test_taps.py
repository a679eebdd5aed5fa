"""Taps: when a layer sends tensors through them, and what it costs when it does not."""

import copy
import pickle

import pytest
import torch

from dual_attention import Attention, DualAttention, SymbolicAttention
from dual_attention._layers.taps import Tap
from dual_attention.functional import reference
from tests.support.language import lm, tokens


def tap_of(layer):
    return layer.taps.weights


def by_forward_hook(tap, see):
    return tap.register_forward_hook(lambda _, args, out: see(out)).remove


def by_pre_hook(tap, see):
    return tap.register_forward_pre_hook(lambda _, args: see(args[0])).remove


def by_backward_hook(tap, see):
    return tap.register_full_backward_hook(lambda _, grad_in, grad_out: see(grad_out[0])).remove


def by_another_forward(tap, see):
    """As tools do that wrap modules."""
    own = tap.forward

    def forward(x):
        see(x)
        return own(x)

    tap.forward = forward
    return lambda: delattr(tap, "forward")


@pytest.mark.parametrize("attach", [by_forward_hook, by_pre_hook, by_backward_hook, by_another_forward])
def test_they_see_tensors_whatever_watches(attach):
    layer, x, seen = Attention(8, 2), torch.randn(2, 5, 8, requires_grad=True), []
    plain = layer(x, x, x).output
    remove = attach(tap_of(layer), lambda found: seen.append(tuple(found.shape)))
    layer(x, x, x).output.sum().backward()
    assert seen == [(2, 2, 5, 5)]
    remove()
    assert torch.equal(layer(x, x, x).output, plain)
    assert len(seen) == 1


def test_a_hook_intervenes():
    layer, x = Attention(8, 2), torch.randn(2, 5, 8)
    tap_of(layer).register_forward_hook(lambda *_: torch.eye(5).expand(2, 2, 5, 5))
    torch.testing.assert_close(layer(x, x, x).output, layer.wo(layer.wv(x)))


def test_without_hooks_no_observed_operation_runs(monkeypatch):
    original = reference.visible_pairs

    def fail(observe, *args):
        if observe is not reference.UNOBSERVED:
            raise AssertionError("an observed operation ran")
        return original(observe, *args)

    monkeypatch.setattr(reference, "visible_pairs", fail)
    model = lm("symbolic_attention")
    model(tokens(2, 9))
    model.layers.blocks[1].dual_attn.relational_attention.taps.visible.register_forward_hook(lambda *_: None)
    with pytest.raises(AssertionError, match="an observed operation ran"):
        model(tokens(2, 9))


def test_only_the_layer_that_is_watched_takes_other_steps():
    model, seen = lm("symbolic_attention"), []
    taps = [tap for tap in model.modules() if isinstance(tap, Tap)]
    assert len(taps) == 2 * (4 + 8) + 1
    first = model.layers.blocks[0].dual_attn.relational_attention.taps
    for tap in first.children():
        tap.register_forward_hook(lambda _, args, out: seen.append(out))
    model(tokens(2, 9))
    assert len(seen) == 8


def test_they_have_no_place_in_state_dicts_and_survive_copies():
    layer = DualAttention(8, 1, 1)
    assert not [name for name in layer.state_dict() if "taps" in name]
    other = DualAttention(8, 1, 1)
    other.load_state_dict(layer.state_dict(), strict=True)
    x = torch.randn(2, 5, 8)
    for twin in (other, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(x, x).output, layer(x, x).output)


@pytest.mark.slow
def test_compiled_code_depends_on_no_hook():
    """It is one graph, and hooks that come later do not make it anew."""
    torch._dynamo.reset()  # whatever tests before this one have compiled
    model, x = lm("symbolic_attention"), tokens(2, 9)
    explained = torch._dynamo.explain(model)(x)
    assert explained.graph_count == 1 and not explained.graph_break_count
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    wanted = compiled(x).logits
    model.layers.blocks[0].dual_attn.self_attention.taps.weights.register_forward_hook(lambda *_: None)
    with torch._dynamo.config.patch(error_on_recompile=True):
        assert torch.equal(compiled(x).logits, wanted)
    torch._dynamo.reset()


def test_the_weights_method_of_symbols_is_no_call():
    retriever, x, seen = SymbolicAttention(8, 2, 5), torch.randn(2, 4, 8), []
    retriever.taps.assignment.register_forward_hook(lambda _, args, out: seen.append(out))
    symbols = retriever(x)
    torch.testing.assert_close(seen[0], retriever.weights(x))
    assert len(seen) == 1 and symbols.shape == x.shape
    assert repr(retriever.taps) == "Taps(assignment)"
