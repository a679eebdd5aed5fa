"""Wrong arguments of every layer and block: an error that names the argument, never a number or a distant failure."""

from __future__ import annotations

import pytest
import torch

from dual_attention.attention import Attention
from dual_attention.dual_attention import DualAttention
from dual_attention.dual_attn_blocks import DualAttnDecoderBlock, DualAttnEncoderBlock
from dual_attention.functional import RelativeSymbols
from dual_attention.relational_attention import (
    DisentangledRelationalCrossAttention,
    RelationalAttention,
    RelationalCrossAttention,
)
from dual_attention.symbol_retrieval import RelationalSymbolicAttention, SymbolicAttention
from dual_attention.transformer_blocks import DecoderBlock, EncoderBlock

B, N, D = 4, 4, 8  # batch and length are equal: nothing may be told from a shape
BLOCK = {"dff": 6, "activation": "relu", "dropout_rate": 0.0, "causal": False}
RELATIONAL = {
    "relational": RelationalAttention,
    "rca": RelationalCrossAttention,
    "disrca": DisentangledRelationalCrossAttention,
}
LAYERS = {
    "attention": lambda: Attention(D, 2),
    **{name: lambda cls=cls: cls(D, 2) for name, cls in RELATIONAL.items()},
    "dual": lambda: DualAttention(D, 2, 2),
    "encoder": lambda: EncoderBlock(D, 2, **BLOCK, norm_first=True),
    "post-norm encoder": lambda: EncoderBlock(D, 2, **BLOCK, norm_first=False),
    "decoder": lambda: DecoderBlock(D, 2, 2, **BLOCK, norm_first=True),
    "dual encoder": lambda: DualAttnEncoderBlock(D, 2, 2, **BLOCK, norm_first=True),
    "dual decoder": lambda: DualAttnDecoderBlock(D, 2, 2, 2, **BLOCK, norm_first=True),
}
WITH_SYMBOLS = [name for name in LAYERS if name in RELATIONAL or "dual" in name]
RETRIEVERS = {
    "symbolic": lambda: SymbolicAttention(D, 2, 5),
    "relational symbolic": lambda: RelationalSymbolicAttention(D, 2, 2, 5, 2),
}


def call(name, layer, x=None, symbols=None, **arguments):
    x = torch.zeros(B, N, D) if x is None else x
    given = [x, *[x] * (2 if name == "attention" else "decoder" in name)]
    if name in WITH_SYMBOLS:
        given.append(torch.zeros(B, N, D) if symbols is None else symbols)
    return layer(*given, **arguments)


def boolean(*shape, device=None):
    return torch.ones(shape, dtype=torch.bool, device=device)


ARGUMENTS = [
    ({"attn_mask": torch.zeros(N, N)}, TypeError, "^attn_mask: expected a boolean tensor"),
    ({"attn_mask": [[True] * N] * N}, TypeError, "^attn_mask: expected a boolean tensor .*got list"),
    ({"attn_mask": boolean(N, N + 1)}, ValueError, "^attn_mask: expected shape"),
    ({"attn_mask": boolean(B, N, N)}, ValueError, "^attn_mask: expected shape"),
    ({"attn_mask": boolean(N, N, device="meta")}, ValueError, "^attn_mask: expected a tensor on cpu"),
    ({"padding_mask": torch.ones(B, N)}, TypeError, "^padding_mask: expected a boolean tensor"),
    ({"padding_mask": boolean(B, N + 1)}, ValueError, "^padding_mask: expected shape"),
    ({"padding_mask": boolean(B, N, device="meta")}, ValueError, "^padding_mask: expected a tensor on cpu"),
    ({"attn_bias": boolean(N, N)}, TypeError, "^attn_bias: expected a floating-point tensor"),
    ({"attn_bias": torch.zeros(N, N + 1)}, ValueError, "^attn_bias: expected shape"),
    ({"attn_bias": torch.zeros(N, N, device="meta")}, ValueError, "^attn_bias: expected a tensor on cpu"),
    ({"segments": torch.zeros(B, N)}, ValueError, "^segments: expected integers"),
    ({"segments": torch.zeros(B, N + 1, dtype=torch.long)}, ValueError, "^segments: expected integers"),
    ({"segments": [0] * N}, TypeError, "^segments: expected a tensor"),
    ({"segments": (torch.zeros(1, N, dtype=torch.long),)}, TypeError, "^segments: expected a tensor, or one for"),
    ({"segments": torch.zeros(1, N, dtype=torch.long, device="meta")}, ValueError, "^segments: expected a tensor on"),
    ({"freqs_cos": torch.zeros(N, 1)}, ValueError, "^freqs_cos, freqs_sin: expected both"),
    ({"freqs_cos": torch.zeros(N, 9), "freqs_sin": torch.zeros(N, 9)}, ValueError, "^freqs_cos, freqs_sin: expected"),
    (dict.fromkeys(("freqs_cos", "freqs_sin"), torch.zeros(N, 2, device="meta")), ValueError, "^freqs_cos: .*on cpu"),
]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("arguments, error, message", ARGUMENTS, ids=lambda value: "")
def test_masks_biases_and_tables(name, arguments, error, message):
    with pytest.raises(error, match=message):
        call(name, LAYERS[name](), **arguments)


OBJECTS = [
    (torch.zeros(N, D), ValueError, "expected shape"),
    (torch.zeros(B, N, D + 1), ValueError, "expected shape"),
    (torch.zeros(B, N, D, dtype=torch.float64), TypeError, "expected dtype torch.float32 as the parameters"),
    (torch.zeros(B, N, D, dtype=torch.long), TypeError, "expected dtype torch.float32 as the parameters"),
    (torch.zeros(B, N, D, device="meta"), ValueError, "expected a tensor on cpu as the parameters"),
    ([[0.0] * D] * N, TypeError, "expected a tensor, got list"),
]


@pytest.mark.parametrize("name", [*LAYERS, *RETRIEVERS])
@pytest.mark.parametrize("x, error, message", OBJECTS, ids=lambda value: "")
def test_objects(name, x, error, message):
    with pytest.raises(error, match=f"^(x|query): {message}"):
        call(name, {**LAYERS, **RETRIEVERS}[name](), x)


@pytest.mark.parametrize("name", WITH_SYMBOLS)
@pytest.mark.parametrize(
    "symbols, error, message",
    [
        *OBJECTS[:1],
        *OBJECTS[2:5],
        (torch.zeros(B, N, D + 1), ValueError, "expected shape"),
        (torch.zeros(B - 1, N, D), ValueError, "expected shape"),
        (torch.zeros(B, N - 1, D), ValueError, "expected one for each of 4 senders, got 3"),
        (torch.zeros(B, N, N, D), ValueError, "expected shape"),
        ([0.0], TypeError, "expected a tensor or RelativeSymbols, got list"),
        (RelativeSymbols(torch.zeros(5, D), torch.zeros(N, N, dtype=torch.long)), TypeError, "got position-relative"),
    ],
    ids=lambda value: "",
)
def test_symbols(name, symbols, error, message):
    with pytest.raises(error, match=f"^symbols: {message}"):
        call(name, LAYERS[name](), symbols=symbols)


@pytest.mark.parametrize("name", RELATIONAL)
def test_a_layer_of_relative_symbols_takes_pairs_alone(name):
    layer = RELATIONAL[name](D, 2, use_relative_positional_symbols=True)
    for symbols in (torch.zeros(B + 1, N, D), torch.zeros(1, N, D), torch.zeros(N, N, D + 1)):
        with pytest.raises(ValueError, match=r"^symbols: expected position-relative symbols"):
            layer(torch.zeros(len(symbols), N, D), symbols)
    with pytest.raises(ValueError, match=r"^symbols: expected position-relative symbols"):
        layer(torch.zeros(B, N, D), RelativeSymbols(torch.zeros(5, D), torch.zeros(N, N + 1, dtype=torch.long)))


@pytest.mark.parametrize("cls", [Attention, *RELATIONAL.values()])
@pytest.mark.parametrize("window", [0, -1, 1.5])
def test_windows(cls, window):
    with pytest.raises(ValueError, match=r"^window: expected a positive number"):
        cls(D, 2, window=window)


@pytest.mark.parametrize("cls", [Attention, *RELATIONAL.values()])
@pytest.mark.parametrize("dropout", [-0.1, 1.0, float("nan")])
def test_dropout(cls, dropout):
    for arguments in ({"dropout": dropout}, {"out_dropout": dropout}):
        with pytest.raises(ValueError, match=r"dropout: expected a rate in \[0, 1\)"):
            cls(D, 2, **arguments)
    with pytest.raises(ValueError, match=r"dropout: expected a rate in \[0, 1\)"):
        SymbolicAttention(D, 2, 5, dropout=dropout)


def test_autocast_takes_other_types_than_the_parameters():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert call("dual encoder", LAYERS["dual encoder"](), torch.zeros(B, N, D).bfloat16()).shape == (B, N, D)
