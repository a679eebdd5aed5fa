"""Formulas of the symbol mechanisms.

Symbols: B batch, L length, d width of the model, S symbols of a library, H heads, o neighbours.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..symbol_retrieval import (
    PositionalSymbolRetriever,
    PositionRelativeSymbolRetriever,
    PositionRelativeSymbolRetriever2D,
    RelationalSymbolicAttention,
    SymbolicAttention,
)
from .attention import Pattern, learns, library_attention
from .registry import Call, register


@register(SymbolicAttention, part="symbols")
def symbolic_attention(call: Call) -> None:
    """One projection of d by d, and attention to the library, 4 B L S d."""
    layer = call.module
    assert isinstance(layer, SymbolicAttention)
    x = call["x"]
    call.linear(layer.q_proj, x)
    retrieve(call, layer, x.shape[0] * x.shape[1], queries_learn=learns(layer.q_proj, x), result=call.output)


def retrieve(call: Call, layer: SymbolicAttention, tokens: int, *, queries_learn: bool, result: Tensor) -> None:
    """Attention to the templates, for all tokens of all examples at once."""
    heads, symbols = layer.n_heads, layer.n_symbols
    width = layer.d_model // heads
    rate = layer.dropout if call.setting.training else 0.0
    templates, library = layer.template_features.requires_grad, layer.symbol_library.requires_grad
    everything = Pattern(tokens, symbols, False, None)
    begun = len(call.saved)
    learn = (queries_learn, templates, library)
    cast = call.setting.wide != call.setting.dtype or call.setting.autocast  # else the library itself serves
    values = (0, symbols * layer.d_model if cast else 0)
    library_attention(call, everything, 1, heads, heads, width, width, rate, values=values, gradients=learn)
    if call.setting.device == "cuda" or not rate:  # the fused kernels
        itemsize = call.setting.dtype.itemsize
        del call.saved[begun:]
        call.save(tokens * layer.d_model)
        call.save(heads * tokens, call.setting.wide)
        call.keep(result)  # its memory is that of the symbols themselves
        if call.setting.autocast:
            call.save(2 * symbols * layer.d_model)
        call.workspace = 2 * tokens * layer.d_model * itemsize
    else:
        call.workspace = (2 * tokens * layer.d_model + 2 * heads * tokens * symbols) * call.setting.dtype.itemsize


@register(PositionalSymbolRetriever, part="symbols", autocast="same")
def positional_symbols(call: Call) -> None:
    """A look-up, no product. Without positions the symbols are rows of the library itself."""
    call.keep(call["positions"])


@register(PositionRelativeSymbolRetriever, PositionRelativeSymbolRetriever2D, part="symbols", autocast="same")
def relative_symbols(call: Call) -> None:
    """No product: the library itself is handed on."""


@register(RelationalSymbolicAttention, part="symbols")
def relational_symbolic_attention(call: Call) -> None:
    """Two projections, 2 B L o d for the relations with neighbours, one projection, and symbolic attention."""
    layer = call.module
    assert isinstance(layer, RelationalSymbolicAttention)
    x = call["x"]
    batch, length, d_model = x.shape
    tokens, neighbours = batch * length, len(layer.offsets())
    relations = tokens * neighbours * layer.rel_n_heads
    call.linear(layer.q_proj, x)
    call.linear(layer.k_proj, x)
    call.product(tokens, d_model, neighbours)
    call.save(batch + length * neighbours, torch.int64)
    call.save(tokens * d_model * (1 + neighbours))
    if layer.normalize_rels:
        call.save(relations)
    in_order = layer.normalize_rels and 1 in (layer.rel_n_heads, neighbours)  # else they are laid out anew
    call.linear(layer.model_dim_proj, rows=tokens, shares_input=in_order)
    call.linear(layer.symbolic_attention.q_proj, rows=tokens)
    retrieve(call, layer.symbolic_attention, tokens, queries_learn=True, result=call.output)
    if layer.causal_nbhd:
        call.cached.append((d_model, layer.nbhd_delta + 1))
    call.workspace += tokens * d_model * (2 + neighbours) * call.setting.dtype.itemsize
