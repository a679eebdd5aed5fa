"""Layers over drawn configurations: arithmetic and kept tensors are exactly those of a real call."""

import inspect
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dat.estimate import estimate
from dual_attention import (
    Attention,
    DisentangledRelationalCrossAttention,
    DualAttnDecoderBlock,
    DualAttnEncoderBlock,
    DualAttnTransformerLM,
    PositionRelativeSymbolRetriever,
    RelationalAttention,
    RelationalCrossAttention,
    RelationalSymbolicAttention,
    SymbolicAttention,
    TransformerLM,
)
from dual_attention.baselines import ESBN, CoRelNet, PrediNet
from dual_attention.functional import rotary_tables
from dual_attention.language_presets import LANGUAGE_PRESETS
from dual_attention.mechanisms import Dot, GeneralAttention, MultiHead
from dual_attention.transformer_blocks import FeedForwardBlock, RMSNorm
from tests.lab.estimate.measuring import measure, summed
from tests.support.combinations import examples

pytestmark = pytest.mark.sweep(8)

WIDTH = 16

batches = st.integers(1, 3)
lengths = st.integers(2, 7)
heads = st.sampled_from([(1, 1), (2, 1), (4, 2), (4, 4)])  # query heads, key/value heads
dropouts = st.sampled_from([0.0, 0.1])
windows = st.none() | st.integers(1, 4)
few = examples(5)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def agrees(module: nn.Module, *args: Any, leave_out: tuple[Tensor, ...] = (), **kwargs: Any) -> None:
    """The estimate of a call is what the call does."""
    inputs = dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments)
    found = estimate(module, inputs=inputs, device="cpu")
    real = measure(module.train(), lambda module: summed(module, *args, **kwargs), leave_out=leave_out)
    assert found.forward_flops == real.forward
    assert found.backward_flops == real.backward
    assert found.activation_bytes == real.saved + sum(tensor.nbytes for tensor in leave_out)
    assert found.parameters == sum(parameter.numel() for parameter in module.parameters())
    assert 0 <= found.least_step_flops <= 3 * found.forward_flops


def tables(wanted: bool, width: int, length: int) -> tuple[Tensor, ...]:
    return rotary_tables(width, length) if wanted else ()


@few
@given(batches, lengths, heads, st.booleans(), dropouts, st.booleans(), windows, st.booleans())
def test_attention(batch, n, counts, causal, dropout, rope, window, biased):
    layer = Attention(
        WIDTH, counts[0], dropout, n_kv_heads=counts[1], window=window, add_bias_kv=biased, add_bias_out=biased
    )
    x, rotary = normal(batch, n, WIDTH), tables(rope, WIDTH // counts[0], n)
    agrees(layer, x, x, x, *rotary, is_causal=causal, leave_out=rotary)


@pytest.mark.parametrize("mask", ["padding_mask", "attn_mask", "segments"])
def test_attention_with_masks(mask: str):
    n = 6
    given_mask = {
        "padding_mask": torch.ones(2, n, dtype=torch.bool),
        "attn_mask": torch.ones(n, n, dtype=torch.bool),
        "segments": torch.tensor([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 1, 1]]),
    }[mask]
    x = normal(2, n, WIDTH)
    agrees(Attention(WIDTH, 4, shaw_max_rel_pos=2), x, x, x, is_causal=True, **{mask: given_mask})


@pytest.mark.slow
@few
@given(
    st.sampled_from([RelationalAttention, RelationalCrossAttention, DisentangledRelationalCrossAttention]),
    batches,
    lengths,
    heads,
    st.booleans(),
    dropouts,
    windows,
    st.sampled_from(["identity", "relu", "softmax"]),
    st.sampled_from(["each", "one for all", "relative"]),
)
def test_relational_heads(kind, batch, n, counts, causal, dropout, window, activation, symbols):
    name = "activation" if kind is RelationalCrossAttention else "rel_activation"
    options: dict[str, Any] = {name: activation, "use_relative_positional_symbols": symbols == "relative"}
    layer = kind(WIDTH, counts[0], dropout=dropout, n_kv_heads=counts[1], window=window, **options)
    x = normal(batch, n, WIDTH)
    named = {"each": normal(batch, n, WIDTH), "one for all": normal(1, n, WIDTH)}
    agrees(layer, x, named.get(symbols, PositionRelativeSymbolRetriever(WIDTH, 3)(x)), is_causal=causal)


@pytest.mark.parametrize("length", [15, 17, 300])
def test_relational_attention_of_any_length(length: int):
    """Weights built whole, tiles, and blocks of receivers."""
    agrees(RelationalAttention(64, 8, 2), normal(2, length, 64), normal(2, length, 64), is_causal=True)


@few
@given(batches, lengths, st.integers(1, 5), dropouts, st.booleans())
def test_symbolic_attention(batch, n, symbols, dropout, trainable):
    agrees(SymbolicAttention(WIDTH, 4, symbols, dropout, trainable_symbols=trainable), normal(batch, n, WIDTH))


@pytest.mark.slow
@few
@given(batches, lengths, st.sampled_from([1, 2]), st.integers(1, 3), st.booleans(), st.booleans(), dropouts)
def test_relational_symbolic_attention(batch, n, count, reach, causal, normalised, dropout):
    layer = RelationalSymbolicAttention(
        WIDTH, count, 4, 5, reach, causal_nbhd=causal, normalize_rels=normalised, dropout=dropout
    )
    agrees(layer, normal(batch, n, WIDTH))


@pytest.mark.parametrize(
    "build",
    [
        lambda: FeedForwardBlock(WIDTH, 20, "swiglu", True),
        lambda: GeneralAttention(Dot()),
        lambda: MultiHead(GeneralAttention(Dot()), WIDTH, 4),
        lambda: CoRelNet(WIDTH, 6),
        lambda: PrediNet(WIDTH, 6, 4, 5),
        lambda: ESBN(WIDTH, 8, 12),
        lambda: nn.TransformerEncoderLayer(WIDTH, 4, 20, batch_first=True),
        lambda: nn.Sequential(nn.Conv1d(6, 6, 3), nn.GELU()),
    ],
    ids=["feed-forward", "general", "multi-head", "corelnet", "predinet", "esbn", "of torch", "convolution"],
)
def test_modules_of_any_kind(build):
    module = build()
    x = normal(2, 6, WIDTH)
    real = measure(module.train(), lambda module: summed(module, x))
    found = estimate(module, inputs=x, device="cpu")
    assert (found.forward_flops, found.backward_flops) == (real.forward, real.backward)
    assert found.activation_bytes == pytest.approx(real.saved, rel=0.05)


def test_frozen_parameters_have_no_gradient():
    for frozen in ("wq", "wk", "wv", "wo"):
        layer = Attention(WIDTH, 4)
        getattr(layer, frozen).requires_grad_(False)
        x = normal(2, 5, WIDTH)
        agrees(layer, x, x, x)


def test_an_input_without_gradient_needs_no_product():
    layer = nn.Linear(WIDTH, 3)
    with_gradient, without = (
        estimate(layer, inputs=torch.randn(2, 5, WIDTH, requires_grad=on)) for on in (True, False)
    )
    assert with_gradient.backward_flops == 2 * without.backward_flops == 2 * with_gradient.forward_flops


@pytest.mark.slow
@few
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


@pytest.mark.parametrize(
    ("preset", "length", "linear", "per_pair"),
    [
        ("DAT-343M-nr8", 1024, 1.35, 1.21),
        ("DAT-343M-nr64", 1024, 1.35, 1.23),
        ("DAT-343M-nr8", 32768, 2.51, 1.26),
        ("DAT-343M-nr64", 32768, 2.51, 1.42),
    ],
)
def test_floors_beside_a_plain_layer(preset, length, linear, per_pair):
    """As counted by hand: 1024 wide, 8 + 8 heads of 64, R p = 512, 1024 templates, 4 kv heads, d_ff 4096."""
    d, heads, width, of_kv, keys = 1024, 8, 64, 4 * 64, 512
    relations, mean = int(preset.rpartition("nr")[2]), (length + 1) / 2
    plain = 4 * d * d + 2 * d * 4096 + 2 * d * mean
    own = 2 * (d * 512 + 2 * d * of_kv + 512**2) + 2 * d * keys + 512 * relations + 2 * d * 4096
    own += d * d + 2 * d * d + 2 * heads * width * mean  # symbolic attention, and the pairs of sensory heads
    once = keys + heads * relations + 2 * heads * width
    found = LANGUAGE_PRESETS[preset].build(device="meta").least_beside_plain(length)
    assert found == pytest.approx(
        ((own + heads * (2 * width + keys) * mean) / plain, (own + once * mean) / plain), rel=1e-9
    )
    assert (round(found.linear, 2), round(found.per_pair, 2)) == (linear, per_pair)


@pytest.mark.slow
def test_floors_of_relative_symbols_and_of_other_models():
    sizes = {"vocab_size": 50, "d_model": 16, "n_layers": 2, "max_block_size": 64}
    relative = {"symbol_retrieval": "position_relative", "ra_kwargs": {"use_relative_positional_symbols": True}}
    model = DualAttnTransformerLM(**sizes, n_heads_sa=1, n_heads_ra=1, **relative)
    by_position = DualAttnTransformerLM(**sizes, n_heads_sa=1, n_heads_ra=1, symbol_retrieval="positional_symbols")
    ours, others = (one.least_beside_plain(64) for one in (model, by_position))
    assert ours.linear < others.linear and ours.per_pair < others.per_pair
    assert TransformerLM(**sizes, n_heads=2).least_beside_plain() is None
    told = str(estimate(model, length=64, device="cpu"))
    words = f"{ours.linear:.2f} times a plain Transformer's at least, {ours.per_pair:.2f} with relations per pair"
    assert words in told
