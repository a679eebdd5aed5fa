"""Derivatives of every kind: second ones, forward ones, and those of ``torch.func``."""

import copy
import importlib
from functools import partial

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from dual_attention.attention import Attention
from dual_attention.dual_attention import DualAttention
from dual_attention.dual_attn_blocks import DualAttnEncoderBlock
from dual_attention.functional import MaskPattern, OffsetSymbols, RelativeSymbols, attention, relational_attention
from dual_attention.functional.relational import dense
from dual_attention.mechanisms import GeneralAttention, MultiHead, recipes, scores
from dual_attention.relational_attention import (
    DisentangledRelationalCrossAttention,
    RelationalAttention,
    RelationalCrossAttention,
)
from dual_attention.symbol_retrieval import SymbolicAttention
from tests.library.functional.relational.inputs import draw_inputs
from tests.support.tensors import float64, normal

cross_module = importlib.import_module("dual_attention.functional.relational_cross")
B, N, D = 2, 4, 4


@pytest.fixture(params=["few pairs", "many pairs"])
def pairs(request, monkeypatch):
    """What ``auto`` takes for few and for many objects."""
    if request.param == "many pairs":
        monkeypatch.setattr(dense, "LARGEST_DENSE", 0)
        monkeypatch.setattr(cross_module, "LARGEST_WHOLE", 0)
        monkeypatch.setattr(cross_module, "BLOCK", 3)


def of_symbols(layer):
    return lambda x: layer(x, 0.5 * x).output


def layers():
    query, options = {"is_causal": True}, {"n_relations": 2, "rel_proj_dim": 2}
    attend, dual = float64(Attention(D, 2)), float64(DualAttention(D, 1, 1, ra_kwargs=options))
    padding = torch.tensor([[True] * N, [True] * (N - 1) + [False]])
    block = float64(DualAttnEncoderBlock(D, 1, 1))
    general = float64(MultiHead(GeneralAttention(scores.Additive(2, 2, heads=2), block=3), D, 2))
    relational = float64(recipes.relational_heads(D, 2))
    return {
        "sensory": lambda x: attend(x, x, x).output,
        "sensory, causal": lambda x: attend(x, x, x, **query).output,
        "sensory, padded": lambda x: attend(x, x, x, padding_mask=padding).output,
        "relational": of_symbols(float64(RelationalAttention(D, 2, **options))),
        "relational, causal": partial(lambda layer, x: layer(x, x, **query).output, float64(RelationalAttention(D, 2))),
        "activated": of_symbols(float64(RelationalAttention(D, 2, rel_activation="tanh", **options))),
        "rca": of_symbols(float64(RelationalCrossAttention(D, 2))),
        "activated rca": of_symbols(float64(RelationalCrossAttention(D, 2, activation="tanh"))),
        "disrca": of_symbols(float64(DisentangledRelationalCrossAttention(D, 2))),
        "dual": of_symbols(dual),
        "symbolic": float64(SymbolicAttention(D, 2, 3)),
        "block": lambda x: block(x, x),
        "mechanism": lambda x: general(x).context,
        "relational mechanism": lambda x: relational(x, x, x).context,
    }


LAYERS = list(layers())


@pytest.mark.parametrize("name", LAYERS)
def test_second_and_forward_derivatives_of_layers(name, pairs):
    layer, x = layers()[name], normal(B, N, D).requires_grad_()
    assert gradcheck(layer, (x,), check_forward_ad=True, fast_mode=True)
    assert gradgradcheck(layer, (x,), fast_mode=True)


@pytest.mark.parametrize("name", LAYERS)
def test_transforms_of_layers(name, pairs):
    """vmap over more examples is a loop over them; jvp is what the forward derivative is; grad is that of autograd."""
    layer, x = layers()[name], normal(3, B, N, D)
    torch.testing.assert_close(torch.func.vmap(layer)(x), torch.stack([layer(each) for each in x]))
    tangent = normal(B, N, D)
    forward = torch.func.jvp(layer, (x[0],), (tangent,))[1]
    leaf = x[0].clone().requires_grad_()
    with forward_ad.dual_level():
        dual = layer(forward_ad.make_dual(leaf, tangent))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, forward)

    def energy(x):
        return layer(x).square().sum()

    torch.testing.assert_close(torch.func.grad(energy)(x[0]), torch.autograd.grad(energy(leaf), leaf)[0])
    wanted = torch.stack([torch.func.grad(energy)(each) for each in x])
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(energy))(x), wanted)
    (direct,) = torch.autograd.grad(torch.autograd.grad(energy(leaf), leaf, create_graph=True)[0], leaf, tangent)
    product = torch.func.jvp(torch.func.grad(energy), (x[0],), (tangent,))[1]
    torch.testing.assert_close(product, direct)


@pytest.mark.parametrize("used_before", [False, True])
def test_a_mask_pattern_serves_transform_after_transform(used_before):
    """What one of them builds is dead after it."""
    layer, x = float64(RelationalAttention(D, 2)), normal(B, N, D)
    padding = torch.arange(N) < torch.tensor([[N], [2]])
    pattern = MaskPattern(N, N, padding=padding, causal=True)

    def energy(x, pattern=pattern):
        return layer(x, x, attn_mask=pattern).output.square().sum()

    def product(function):
        return torch.func.jvp(torch.func.grad(function), (x,), (torch.ones_like(x),))[1]

    if used_before:
        energy(x)
    for _ in range(2):
        wanted = product(lambda x: energy(x, MaskPattern(N, N, padding=padding, causal=True)))
        torch.testing.assert_close(product(energy), wanted)
    twice = torch.stack([x, 2 * x])
    torch.testing.assert_close(torch.func.vmap(energy)(twice), torch.stack([energy(each) for each in twice]))


def both_gradients(result, leaves):
    """Gradients of the fast backward pass, and of the one that leaves a graph."""
    cotangent = torch.randn_like(result)
    fast = torch.autograd.grad(result, leaves, cotangent, retain_graph=True)
    return fast, torch.autograd.grad(result, leaves, cotangent, create_graph=True)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("symbols", ["shared", "one batch", "relative", "offsets"])
def test_linear_gradients_with_a_graph_are_those_without(symbols, dropout):
    given = "relative" if symbols == "offsets" else symbols
    leaves, index, mask = draw_inputs(batch=3, n=7, m=8, symbols=given)
    q, k, u, w, s, w_r = leaves
    if symbols == "offsets":
        s = s[:3]
        named = OffsetSymbols(s, 7, 8, offset=1)
    else:
        named = s if index is None else RelativeSymbols(s, index)
    bias = normal(1, 4, 7, 8).masked_fill(torch.rand(1, 4, 7, 8) < 0.2, -torch.inf).requires_grad_()
    how = {"scale": 0.7, "rel_scale": 0.4, "mask": mask, "bias": bias, "dropout": dropout, "impl": "linear"}
    result = relational_attention(q, k, u, w, named, w_r, **how).output
    torch.testing.assert_close(*both_gradients(result, (*leaves, bias)))


def test_linear_second_derivatives():
    leaves, _, mask = draw_inputs(n=3, m=3)
    how = {"scale": 0.7, "rel_scale": 0.4, "mask": mask, "impl": "linear"}
    assert gradgradcheck(lambda *x: relational_attention(*x, **how).output, leaves, fast_mode=True)


@pytest.mark.parametrize("place", range(6))
def test_linear_second_derivatives_of_one_input(place):
    """Of the two parts of a message, attended symbols and attended relations, only one may need gradients."""
    leaves, _, mask = draw_inputs(n=3, m=3)
    inputs = [x.detach().requires_grad_(i == place) for i, x in enumerate(leaves)]

    def derivatives(impl):
        result = relational_attention(*inputs, scale=0.7, rel_scale=0.4, mask=mask, impl=impl).output
        (first,) = torch.autograd.grad(result.square().sum(), inputs[place], create_graph=True)
        return first, torch.autograd.grad(first.square().sum(), inputs[place])[0]

    torch.testing.assert_close(derivatives("linear"), derivatives("reference"))


@pytest.mark.parametrize("same", [False, True])
def test_attention_gradients_with_a_graph_are_those_without(same):
    q, k, v = (normal(2, 2, 5, 4).requires_grad_() for _ in range(3))
    if same:  # a gradient that is counted once
        k = v = q
    bias = normal(1, 2, 5, 5).requires_grad_()
    pattern = MaskPattern(5, 5, causal=True, padding=torch.rand(2, 5) < 0.8)
    result, _ = attention(q, k, v, scale=0.5, mask=pattern, bias=bias)
    torch.testing.assert_close(*both_gradients(result, (q, bias) if same else (q, k, v, bias)))


def test_second_derivatives_under_autocast_are_in_its_type():
    q, k, v = (torch.randn(1, 2, 5, 4, requires_grad=True) for _ in range(3))
    with torch.autocast("cpu", torch.bfloat16):
        result, _ = attention(q, k.to(torch.bfloat16), v, scale=0.5)
    assert result.dtype == torch.bfloat16
    (grad,) = torch.autograd.grad(result.float().sum(), q, create_graph=True)
    (second,) = torch.autograd.grad(grad.square().sum(), v)
    assert second.isfinite().all() and second.any()


@pytest.mark.parametrize("impl", ["linear", "blockwise"])
def test_an_implementation_that_was_asked_for_says_what_it_lacks(impl):
    leaves, _, _ = draw_inputs()
    run = partial(relational_attention, scale=0.7, rel_scale=0.4, impl=impl)
    with pytest.raises(ValueError, match=r"has no derivatives by torch.func.* they need impl='dense'"):
        torch.func.vjp(lambda *x: run(*x).output, *leaves)


def test_a_plain_backward_pass_builds_no_weights():
    """Only a graph of the backward pass makes it plain."""
    layer, x = Attention(8, 2), torch.randn(1, 6, 8)
    twin = copy.deepcopy(layer)
    layer(x, x, x).output.sum().backward()
    with torch.profiler.profile() as profile:
        twin(x, x, x).output.sum().backward()
    names = {event.key for event in profile.key_averages()}
    assert any("scaled_dot_product" in name and "backward" in name for name in names)
    assert "aten::_softmax" not in names and "aten::_softmax_backward_data" not in names


@pytest.mark.parametrize("width", [2, 4, 6])
def test_second_derivatives_of_values_of_another_width(width):
    """Fused kernels take one width, so the narrower of keys and values are padded."""
    leaves = [torch.randn(1, 2, 5, d, dtype=torch.float64, requires_grad=True) for d in (4, 4, width)]
    assert gradgradcheck(lambda *x: attention(*x, scale=0.5, mask=MaskPattern(5, 5))[0], leaves, fast_mode=True)
