"""Relational cross-attention in blocks and through fused attention, against the reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dual_attention.functional import (
    ACTIVATIONS,
    RelativeSymbols,
    disentangled_relational_cross_attention,
    mask_pattern,
    reference,
    relational_cross,
    relational_cross_attention,
)
from tests.support.refusals import refusals

B, H, N, D = 2, 4, 7, 3


def inputs(groups: int, relative: bool, masked: bool, causal: bool):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()

    queries = [draw(B, H, N, D) for _ in range(2)]
    keys = [draw(B, groups, N, D) for _ in range(2)]
    table = draw(5, groups, D) if relative else draw(1, groups, N, D)
    index = torch.randint(5, (N, N), generator=generator)
    symbols = RelativeSymbols(table, index) if relative else table
    mask = torch.rand(N, N, generator=generator) > 0.4 if masked else None
    if mask is not None:
        mask[2] = False
    pattern = mask_pattern(mask, is_causal=causal, batch=B, heads=H, n=N, m=N)
    return queries, keys, symbols, table, pattern, draw(1, 1, N, N)


CONFIGURATIONS = {
    "groups": st.sampled_from([1, 2, 4]),
    "relative": st.booleans(),
    "masked": st.booleans(),
    "causal": st.booleans(),
    "biased": st.booleans(),
    "largest": st.sampled_from([0, 10_000]),
}


def check(ours, theirs, leaves):
    torch.testing.assert_close(ours, theirs)
    cotangent = torch.randn(ours.shape, dtype=ours.dtype, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(*(torch.autograd.grad(x, leaves, cotangent) for x in (ours, theirs)))


DISENTANGLED = {"disentangled_relational_cross_attention": ("rel_activation", 2)}
OPERATIONS = {"relational_cross_attention": ("activation", 1), **DISENTANGLED}
"""What the activation of an operation is called, and how many pairs of queries and keys it takes."""


@pytest.mark.parametrize("name", OPERATIONS)
@settings(deadline=None, max_examples=40)
@given(**CONFIGURATIONS, activation=st.sampled_from(["softmax", "identity", "tanh"]))
def test_is_the_reference(name, groups, relative, masked, causal, biased, largest, activation):
    queries, keys, symbols, table, pattern, bias = inputs(groups, relative, masked, causal)
    (argument, pairs), operation = OPERATIONS[name], getattr(relational_cross, name)
    heads = [tensor for pair in list(zip(queries, keys, strict=True))[:pairs] for tensor in pair]
    options = {"scale": 0.6, argument: activation, "bias": bias if biased else None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relational_cross, "LARGEST_WHOLE", largest)
        patch.setattr(relational_cross, "BLOCK", 3)
        ours, *maps = operation(*heads, symbols, mask=pattern, **options)
        assert maps == [None] * pairs
        theirs, *wanted = getattr(reference, name)(*heads, symbols, mask=pattern.dense(None), **options)
        check(ours, theirs, [*heads, table, *([bias] if biased else [])])
    _, *maps = operation(*heads, symbols, mask=pattern, need_weights=True, **options)
    torch.testing.assert_close(maps, wanted)


@pytest.mark.parametrize("activation", ["softmax", "tanh"])
def test_memory_between_forward_and_backward_grows_with_the_length(activation):
    """Twice the length keeps about twice the numbers, not four times."""

    def kept(n: int) -> int:
        storages = {}

        def pack(x: torch.Tensor) -> torch.Tensor:
            storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        q, k, symbols = (torch.randn(1, 2, n, 8, requires_grad=True) for _ in range(3))
        pattern = mask_pattern(None, is_causal=True, batch=1, heads=2, n=n, m=n)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            relational_cross_attention(q, k, symbols, scale=1.0, activation=activation, mask=pattern)
        return sum(storages.values())

    assert kept(1024) < 2.5 * kept(512)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("largest", [0, 10_000])
def test_a_bias_of_minus_infinity_masks_under_every_activation(activation, largest, monkeypatch):
    monkeypatch.setattr(relational_cross, "LARGEST_WHOLE", largest)
    queries, keys, symbols, table, pattern, _ = inputs(2, False, False, True)
    hidden = torch.zeros(1, 1, N, N, dtype=torch.float64).masked_fill(torch.rand(N, N) < 0.4, -torch.inf)
    mask = (hidden == 0) & torch.ones(N, N, dtype=torch.bool).tril()
    arguments = {"scale": 0.5, "activation": activation}
    ours, _ = relational_cross_attention(queries[0], keys[0], symbols, mask=pattern, bias=hidden, **arguments)
    wanted, _ = reference.relational_cross_attention(queries[0], keys[0], symbols, mask=mask, **arguments)
    check(ours, wanted, (queries[0], keys[0], table))


@pytest.mark.parametrize("largest", [0, 10_000])
def test_a_bias_of_minus_infinity_masks_relations_under_softmax(largest, monkeypatch):
    monkeypatch.setattr(relational_cross, "LARGEST_WHOLE", largest)
    (q, q_rel), (k, k_rel), symbols, table, *_ = inputs(2, False, False, False)
    mask = torch.ones(1, H, N, N, dtype=torch.bool).tril()
    mask[:, 0] = True  # relations here belong to heads, and so does what hides them
    bias = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -torch.inf)
    arguments = {"scale": 0.5, "rel_activation": "softmax"}
    ours, *_ = disentangled_relational_cross_attention(q, k, q_rel, k_rel, symbols, bias=bias, **arguments)
    wanted, *_ = reference.disentangled_relational_cross_attention(q, k, q_rel, k_rel, symbols, mask=mask, **arguments)
    check(ours, wanted, (q, k, q_rel, k_rel, table))


@pytest.mark.parametrize("operation", [relational_cross_attention, disentangled_relational_cross_attention])
@refusals(
    ({"dropout": 1.5}, "^dropout: expected a rate"),
    ({"mask": torch.ones(1, 1, N, N)}, TypeError, "^mask: expected a boolean tensor"),
    ({"mask": torch.ones(1, 1, N, N + 1, dtype=torch.bool)}, "^mask: expected shape"),
    ({"bias": torch.zeros(1, 1, N + 1, N)}, "^bias: expected shape"),
    ({"k": torch.zeros(B, 2, N, D)}, TypeError, "^k: expected dtype"),
    ({"k": torch.zeros(B, 2, N, D + 1, dtype=torch.float64)}, "^k: expected shape"),
    ({"k": torch.zeros(B, 3, N, D, dtype=torch.float64)}, "^(k|k_rel|symbols): "),
    ({"symbols": torch.zeros(B, 2, N + 1, D, dtype=torch.float64)}, "^symbols: expected shape"),
    ({"symbols": torch.zeros(B, 2, N, D, device="meta")}, "^symbols: expected a tensor on cpu"),
    ({"symbols": None}, TypeError, "^symbols: expected a tensor, got NoneType"),
    ({"symbols": [[1.0]]}, TypeError, "^symbols: expected a tensor, got list"),
    ({"symbols": torch.tensor(1.0)}, r"^symbols: expected 4 axes, got shape \(\)"),
    ({"scale": None}, TypeError, "^scale: expected a number, got None"),
    of="change",
)
def test_wrong_arguments_are_named(operation, change, error, message):
    queries, keys, symbols, _, pattern, _ = inputs(2, False, False, False)
    given = {"q": queries[0], "k": keys[0], "symbols": symbols, "mask": pattern}
    if operation is disentangled_relational_cross_attention:
        given |= {"q_rel": queries[1], "k_rel": keys[1]}
    with pytest.raises(error, match=message):
        operation(**{"scale": 0.5, **given, **change})


@refusals(("swish", r"activation: expected"), (["tanh"], TypeError, r"activation: expected"), of="activation")
def test_wrong_activations_are_named(activation, error, message):
    (q, q_rel), (k, k_rel), symbols = inputs(2, False, False, False)[:3]
    with pytest.raises(error, match=f"^{message}"):
        relational_cross_attention(q, k, symbols, scale=0.5, activation=activation)
    with pytest.raises(error, match=f"^rel_{message}"):
        disentangled_relational_cross_attention(q, k, q_rel, k_rel, symbols, scale=0.5, rel_activation=activation)


@pytest.mark.parametrize("activation", ["sigmoid", "softmax"])
def test_returned_relations_are_those_of_padded_senders_too(activation):
    """Except for softmax, which leaves them out."""
    (q, q_rel), (k, k_rel), symbols, *_ = inputs(2, relative=False, masked=False, causal=False)
    padding = torch.ones(B, N, dtype=torch.bool)
    padding[0, 4:] = False
    pattern = mask_pattern(None, padding, batch=B, heads=H, n=N, m=N)
    how = {"scale": 0.6, "rel_activation": activation, "need_weights": True}
    maps = disentangled_relational_cross_attention(q, k, q_rel, k_rel, symbols, mask=pattern, **how)
    mask = pattern.dense(None) if activation == "softmax" else None
    wanted = reference.relations_of_heads(q_rel, k_rel, scale=0.6, activation=activation, mask=mask)
    torch.testing.assert_close(maps[2], wanted)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
@pytest.mark.parametrize(("largest", "need_weights"), [(0, False), (10_000, False), (0, True)])
def test_dropout_whatever_computes(name, activation, largest, need_weights, monkeypatch):
    """Symbols that name their senders show the weights: dropped or made larger, alike in both passes and RCA's maps."""
    monkeypatch.setattr(relational_cross, "LARGEST_WHOLE", largest)
    monkeypatch.setattr(relational_cross, "BLOCK", 5)
    (argument, pairs), operation = OPERATIONS[name], getattr(relational_cross, name)
    none, symbols = torch.zeros(2, 2, 32, 4).double(), torch.eye(32).double().repeat(2, 2, 1, 1).requires_grad_()
    arguments = {"scale": 1.0, argument: activation, "need_weights": need_weights}
    whole, *whole_maps = operation(*[none] * (2 * pairs), symbols, **arguments)
    weights, *maps = operation(*[none] * (2 * pairs), symbols, dropout=0.3, **arguments)
    share = weights / whole
    assert abs((share == 0).double().mean() - 0.3) < 0.05
    torch.testing.assert_close(share[share > 0], torch.full_like(share, 1 / 0.7)[share > 0])
    assert len(weights.flatten(0, 2).unique(dim=0)) == 128
    cotangent = torch.randn_like(weights)
    torch.testing.assert_close(torch.autograd.grad(weights, symbols, cotangent)[0], weights.mT @ cotangent)
    if need_weights:
        torch.testing.assert_close(maps, [weights] if pairs == 1 else whole_maps)
