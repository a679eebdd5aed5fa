"""Every layer over drawn configurations: arithmetic and kept tensors are exactly those of a real call."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dual_attention import (
    Attention,
    DisentangledRelationalCrossAttention,
    DualAttnDecoderBlock,
    DualAttnEncoderBlock,
    PositionRelativeSymbolRetriever,
    RelationalAttention,
    RelationalCrossAttention,
    RelationalSymbolicAttention,
    SymbolicAttention,
)
from dual_attention.estimate import attention as formulas_of_attention
from dual_attention.estimate import estimate
from dual_attention.functional import relational_cross, rotary_tables
from dual_attention.functional.relational import blockwise, choice, linear
from dual_attention.transformer_blocks import FeedForwardBlock, RMSNorm
from tests.estimate.measuring import measure, summed

WIDTH = 16
ACTIVATIONS = ("identity", "relu", "sigmoid", "tanh", "gelu", "silu", "softmax")

batches = st.integers(1, 3)
lengths = st.integers(2, 7)
heads = st.sampled_from([(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4)])  # query heads, key/value heads
dropouts = st.sampled_from([0.0, 0.1])
windows = st.none() | st.integers(1, 4)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def agrees(module: nn.Module, *args: Any, leave_out: tuple[Tensor, ...] = (), unseen: int = 0, **kwargs: Any) -> None:
    """The estimate of a call is what the call does; ``unseen``: bytes kept otherwise than as saved tensors."""
    inputs = dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments)
    found = estimate(module, inputs=inputs, device="cpu")
    real = measure(module.train(), lambda module: summed(module, *args, **kwargs), leave_out=leave_out)
    assert found.forward_flops == real.forward
    assert found.backward_flops == real.backward
    assert found.activation_bytes == real.saved + unseen
    assert found.parameters == sum(parameter.numel() for parameter in module.parameters())
    assert 0 <= found.least_step_flops <= 3 * found.forward_flops


def tables(wanted: bool, width: int, length: int) -> tuple[Tensor, ...]:
    return rotary_tables(width, length) if wanted else ()


@given(batches, lengths, heads, st.booleans(), dropouts, st.booleans(), windows, st.booleans())
def test_attention(batch, n, counts, causal, dropout, rope, window, biased):
    layer = Attention(
        WIDTH, counts[0], dropout, n_kv_heads=counts[1], window=window, add_bias_kv=biased, add_bias_out=biased
    )
    x, rotary = normal(batch, n, WIDTH), tables(rope, WIDTH // counts[0], n)
    agrees(layer, x, x, x, *rotary, is_causal=causal, leave_out=rotary)


@given(batches, lengths, lengths, heads, st.sampled_from([2, 4, 6]))
def test_cross_attention_with_keys_of_another_width(batch, n, m, counts, key_dim):
    layer = Attention(WIDTH, counts[0], key_dim=key_dim, n_kv_heads=counts[1])
    context = normal(batch, m, WIDTH)
    agrees(layer, normal(batch, n, WIDTH), context, context)


@given(batches, lengths, st.booleans(), st.booleans())
def test_attention_with_relative_positions(batch, n, causal, values):
    x = normal(batch, n, WIDTH)
    agrees(Attention(WIDTH, 4, shaw_max_rel_pos=2, shaw_values=values), x, x, x, is_causal=causal)


@pytest.mark.parametrize("mask", ["padding_mask", "attn_mask", "segments"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_masks(mask: str, causal: bool):
    n = 6
    given_mask = {
        "padding_mask": torch.ones(2, n, dtype=torch.bool),
        "attn_mask": torch.ones(n, n, dtype=torch.bool),
        "segments": torch.tensor([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 1, 1]]),
    }[mask]
    x = normal(2, n, WIDTH)
    agrees(Attention(WIDTH, 4), x, x, x, is_causal=causal, **{mask: given_mask})


@pytest.mark.parametrize("kind", [RelationalAttention, RelationalCrossAttention, DisentangledRelationalCrossAttention])
@pytest.mark.parametrize("symbols", ["each", "one for all", "relative"])
def test_relational_heads_with_padding(kind, symbols: str):
    x, padding = normal(2, 6, WIDTH), torch.arange(6) < torch.tensor([[6], [4]])
    given_symbols = {"each": x, "one for all": normal(1, 6, WIDTH)}.get(
        symbols, PositionRelativeSymbolRetriever(WIDTH, 2)(x)
    )
    agrees(
        kind(WIDTH, 4, use_relative_positional_symbols=symbols == "relative"), x, given_symbols, padding_mask=padding
    )


def test_attention_in_blocks_of_a_large_mask(monkeypatch):
    """Beyond a size the mask is built for some receivers at a time, and few senders are looked at."""
    for module in (sys.modules["dual_attention.functional.attention"], formulas_of_attention):
        monkeypatch.setattr(module, "LARGEST_MASK", 20)
        monkeypatch.setattr(module, "BLOCK", 4)
    x = normal(2, 11, WIDTH)
    agrees(Attention(WIDTH, 4, window=3), x, x, x, is_causal=True)
    agrees(Attention(WIDTH, 4, window=3, n_kv_heads=2), x, x, x)


@given(
    batches,
    lengths,
    heads,
    st.integers(1, 3),
    st.booleans(),
    dropouts,
    st.booleans(),
    windows,
    st.sampled_from(ACTIVATIONS),
    st.booleans(),
    st.sampled_from(["each", "one for all", "relative", "a row for each pair"]),
    st.booleans(),
)
def test_relational_attention(
    batch, n, counts, relations, causal, dropout, rope, window, activation, symmetric, kind, dense
):
    if kind == "a row for each pair" and not dense:
        return  # the linear form refuses them
    layer = RelationalAttention(
        WIDTH,
        counts[0],
        relations,
        dropout,
        n_kv_heads=counts[1],
        rel_activation=activation,
        rel_proj_dim=5,
        symmetric_rels=symmetric,
        use_relative_positional_symbols="rel" in kind or "pair" in kind,
        window=window,
    )
    x = normal(batch, n, WIDTH)
    reach = 2 * n + 3 if kind == "a row for each pair" else 3
    symbols = {
        "each": normal(batch, n, WIDTH),
        "one for all": normal(1, n, WIDTH),
    }.get(kind, PositionRelativeSymbolRetriever(WIDTH, reach)(x))
    rotary = tables(rope, WIDTH // counts[0], n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "LARGEST_DENSE", 2**16 if dense else 0)
        agrees(layer, x, symbols, *rotary, is_causal=causal, leave_out=rotary)


@given(batches, lengths, lengths)
def test_relational_attention_of_two_sequences(batch, n, m):
    layer = RelationalAttention(WIDTH, 4, 3, rel_proj_dim=5, shaw_max_rel_pos=2)
    agrees(layer, normal(batch, n, WIDTH), normal(batch, m, WIDTH), y=normal(batch, m, WIDTH))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("activation", ["identity", "relu"])
def test_relational_attention_in_many_blocks(monkeypatch, causal: bool, window: int | None, activation: str):
    for module in (linear, blockwise):
        monkeypatch.setattr(module, "BLOCK", 4)
    monkeypatch.setattr(choice, "LARGEST_DENSE", 0)
    layer = RelationalAttention(WIDTH, 4, 3, window=window, rel_activation=activation)
    agrees(layer, normal(2, 11, WIDTH), normal(2, 11, WIDTH), is_causal=causal)


def test_relational_attention_prefers_tiles_where_they_save_work():
    """On a CPU, with as many heads and as wide relations as here, unless there are few objects."""
    for p in (64, 4):
        layer = RelationalAttention(128, 8, 2, rel_proj_dim=p)
        for n in (15, 17, 100):
            agrees(layer, normal(2, n, 128), normal(2, n, 128))


def test_relational_attention_of_many_weights(monkeypatch):
    monkeypatch.setattr(choice, "MOST_WEIGHTS", 1000)
    monkeypatch.setattr(linear, "WEIGHTS", 1000)
    agrees(RelationalAttention(WIDTH, 4, 2), normal(3, 17, WIDTH), normal(3, 17, WIDTH))


@pytest.mark.parametrize("kind", [RelationalCrossAttention, DisentangledRelationalCrossAttention])
@pytest.mark.parametrize("relative", [False, True])
def test_relational_cross_attention_in_blocks(monkeypatch, kind, relative: bool):
    monkeypatch.setattr(relational_cross, "LARGEST_WHOLE", 20)
    monkeypatch.setattr(relational_cross, "BLOCK", 4)
    layer = kind(WIDTH, 4, use_relative_positional_symbols=relative, window=3, n_kv_heads=2)
    x = normal(2, 11, WIDTH)
    symbols = PositionRelativeSymbolRetriever(WIDTH, 3)(x) if relative else normal(1, 11, WIDTH)
    # Checkpointing holds queries and keys, of four heads and of two, in tuples, which are no saved tensors.
    held = 2 * 11 * (4 + 2) * 4 * x.itemsize * (1 if kind is RelationalCrossAttention else 2)
    fused = kind is RelationalCrossAttention and not relative
    agrees(layer, x, symbols, is_causal=True, unseen=0 if fused else held)


@given(
    st.sampled_from([RelationalCrossAttention, DisentangledRelationalCrossAttention]),
    batches,
    lengths,
    heads,
    st.booleans(),
    dropouts,
    windows,
    st.sampled_from(ACTIVATIONS),
    st.sampled_from(["each", "one for all", "relative"]),
)
def test_relational_cross_attention(kind, batch, n, counts, causal, dropout, window, activation, symbols):
    relative = symbols == "relative"
    name = "activation" if kind is RelationalCrossAttention else "rel_activation"
    layer = kind(
        WIDTH,
        counts[0],
        dropout,
        n_kv_heads=counts[1],
        window=window,
        use_relative_positional_symbols=relative,
        **{name: activation},
    )
    x = normal(batch, n, WIDTH)
    given_symbols = {"each": normal(batch, n, WIDTH), "one for all": normal(1, n, WIDTH)}.get(
        symbols, PositionRelativeSymbolRetriever(WIDTH, 3)(x)
    )
    agrees(layer, x, given_symbols, is_causal=causal)


@given(batches, lengths, st.integers(1, 5), dropouts, st.booleans())
def test_symbolic_attention(batch, n, symbols, dropout, trainable):
    agrees(SymbolicAttention(WIDTH, 4, symbols, dropout, trainable_symbols=trainable), normal(batch, n, WIDTH))


@given(batches, lengths, st.sampled_from([1, 2]), st.integers(1, 3), st.booleans(), st.booleans(), dropouts)
def test_relational_symbolic_attention(batch, n, count, reach, causal, normalised, dropout):
    layer = RelationalSymbolicAttention(
        WIDTH, count, 4, 5, reach, causal_nbhd=causal, normalize_rels=normalised, dropout=dropout
    )
    agrees(layer, normal(batch, n, WIDTH))


@given(batches, lengths, st.sampled_from([*ACTIVATIONS, "swiglu"]), st.booleans())
def test_feed_forward(batch, n, activation, biased):
    agrees(FeedForwardBlock(WIDTH, 20, activation, biased), normal(batch, n, WIDTH))


def test_frozen_parameters_have_no_gradient():
    for frozen in ("wq", "wk", "wv", "wo"):
        for dropout in (0.0, 0.1):
            layer = Attention(WIDTH, 4, dropout)
            getattr(layer, frozen).requires_grad_(False)
            x = normal(2, 5, WIDTH)
            agrees(layer, x, x, x)
    layer = FeedForwardBlock(WIDTH, 20, "gelu")
    layer.linear1.requires_grad_(False)
    agrees(layer, torch.randn(2, 5, WIDTH).requires_grad_())


def test_an_input_without_gradient_needs_no_product():
    layer = nn.Linear(WIDTH, 3)
    with_gradient, without = (
        estimate(layer, inputs=torch.randn(2, 5, WIDTH, requires_grad=on)) for on in (True, False)
    )
    assert with_gradient.backward_flops == 2 * without.backward_flops == 2 * with_gradient.forward_flops


@settings(max_examples=30)
@given(batches, lengths, st.booleans(), st.sampled_from(["layernorm", "rmsnorm", "none"]), dropouts, st.booleans())
def test_blocks(batch, n, norm_first, norm, dropout, decoder):
    arguments: dict[str, Any] = {
        "d_model": WIDTH,
        "n_heads_sa": 2,
        "n_heads_ra": 2,
        "dff": 24,
        "activation": "gelu",
        "dropout_rate": dropout,
        "norm_first": norm_first,
        "norm_type": norm,
        "causal": True,
    }
    x, symbols = normal(batch, n, WIDTH), normal(batch, n, WIDTH)
    if decoder:
        agrees(DualAttnDecoderBlock(n_heads_cross=4, **arguments), x, normal(batch, 5, WIDTH), symbols)
    else:
        agrees(DualAttnEncoderBlock(**arguments), x, symbols)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype: torch.dtype):
    """LayerNorm's statistics and the sums of rows of fused attention have dtypes of their own."""
    for layer in (Attention(WIDTH, 4), RMSNorm(WIDTH), nn.LayerNorm(WIDTH), FeedForwardBlock(WIDTH, 20, "swiglu")):
        x = torch.randn(2, 5, WIDTH, dtype=dtype, requires_grad=True)
        agrees(layer.to(dtype), *([x] * (3 if isinstance(layer, Attention) else 1)))
