"""Layers with their symbol mechanisms, run with and without a cache."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from dual_attention._layers.cache import CacheGroup
from dual_attention.attention import Attention
from dual_attention.dual_attention import DualAttention
from dual_attention.dual_attn_blocks import DualAttnDecoderBlock, DualAttnEncoderBlock
from dual_attention.functional import positions_from_padding
from dual_attention.relational_attention import (
    DisentangledRelationalCrossAttention,
    RelationalAttention,
    RelationalCrossAttention,
)
from dual_attention.symbol_retrieval import (
    PositionalSymbolRetriever,
    PositionRelativeSymbolRetriever,
    RelationalSymbolicAttention,
    SymbolicAttention,
)
from dual_attention.transformer_blocks import DecoderBlock, EncoderBlock
from tests.support.combinations import examples
from tests.support.tensors import float64, normal

WIDTH, LONGEST, CONTEXT = 8, 12, 3
COMMON = {"dff": 6, "activation": "gelu", "dropout_rate": 0.0, "norm_first": True, "causal": True}
RELATIONAL = {
    "relational": RelationalAttention,
    "rca": RelationalCrossAttention,
    "disrca": DisentangledRelationalCrossAttention,
}
KINDS = ["sensory", *RELATIONAL, "dual", "encoder", "decoder", "dual encoder", "dual decoder"]
MECHANISMS = ["symbolic", "positional", "sinusoidal", "relative", "relational symbolic", "causal self"]


def mechanism(name: str) -> nn.Module:
    return {
        "symbolic": lambda: SymbolicAttention(WIDTH, 2, 5),
        "positional": lambda: PositionalSymbolRetriever(WIDTH, LONGEST),
        "sinusoidal": lambda: PositionalSymbolRetriever(WIDTH, LONGEST, sinusoidal=True),
        "relative": lambda: PositionRelativeSymbolRetriever(WIDTH, 2),
        "relational symbolic": lambda: RelationalSymbolicAttention(WIDTH, 2, 2, 5, 3),
        "causal self": lambda: RelationalSymbolicAttention(WIDTH, 4, 2, 5, 2, include_self=True, normalize_rels=False),
    }[name]()


@dataclass
class Net:
    """A layer with its symbol mechanism, run as a model runs it: with a cache, ``x`` holds only new tokens."""

    kind: str
    layer: nn.Module
    symbols: nn.Module | None
    tables: tuple[Tensor | None, Tensor | None]
    context: Tensor

    def new_cache(self, max_length: int | None = None) -> CacheGroup:
        caches = {"layer": self.layer.new_cache(max_length)}
        return CacheGroup(caches if self.symbols is None else {**caches, "symbols": self.symbols.new_cache(max_length)})

    @torch.no_grad()
    def __call__(self, x, cache=None, padding=None, context=None, **arguments):
        part = (lambda name: None) if cache is None else cache.caches.get
        positions = None if padding is None else positions_from_padding(padding)[:, padding.shape[1] - x.shape[1] :]
        inputs = [x]
        if "decoder" in self.kind:
            inputs.append(self.context[: len(x)] if context is None else context)
        if self.kind == "sensory":
            inputs = [x, x, x]
        elif self.symbols is not None:
            inputs.append(self.symbols(x, cache=part("symbols"), positions=positions))
        if "coder" not in self.kind:
            arguments.setdefault("is_causal", True)
        cos, sin = self.tables
        arguments = {"freqs_cos": cos, "freqs_sin": sin, "padding_mask": padding, **arguments}
        out = self.layer(*inputs, **arguments, cache=part("layer"))
        return out if isinstance(out, Tensor) or arguments.get("need_weights") else out.output

    def in_chunks(self, x, sizes, cache=None, padding=None):
        cache = self.new_cache() if cache is None else cache
        outs, start = [], cache.length
        for chunk in x.split(sizes, dim=1):
            seen = cache.length + chunk.shape[1]
            outs.append(self(chunk, cache, None if padding is None else padding[:, :seen]))
            assert cache.length == seen
        assert cache.length == start + x.shape[1]
        return torch.cat(outs, dim=1)


def net(kind, symbols="symbolic", *, rope=False, grouped=False, shaw=False, window=None, cross=None, **more) -> Net:
    """``cross``: further arguments of the cross-attention, by default Shaw positions if the others have them."""
    sensory = {"window": window, "n_kv_heads": 1 if grouped else None, "shaw_max_rel_pos": 2 if shaw else None}
    cross = ({"shaw_max_rel_pos": 1} if shaw else {}) if cross is None else cross
    relational = dict(sensory, use_relative_positional_symbols=symbols == "relative", **more)
    if kind == "sensory":
        layer = Attention(WIDTH, 2, **sensory, shaw_values=shaw)
    elif kind in RELATIONAL:
        relational = relational if kind == "relational" else {k: v for k, v in relational.items() if "shaw" not in k}
        layer = RELATIONAL[kind](WIDTH, 2, **relational)
    elif kind == "dual":
        layer = DualAttention(WIDTH, 2, 2, sa_kwargs=sensory, ra_kwargs=relational)
    elif kind == "encoder":
        layer = EncoderBlock(WIDTH, 2, **COMMON, attn_kwargs=sensory)
    elif kind == "decoder":
        layer = DecoderBlock(WIDTH, 2, 2, **COMMON, attn_kwargs=sensory, cross_kwargs=cross)
    elif kind == "dual encoder":
        layer = DualAttnEncoderBlock(WIDTH, 2, 2, **COMMON, sa_kwargs=sensory, ra_kwargs=relational)
    else:
        extra = {"sa_kwargs": sensory, "ra_kwargs": relational, "cross_kwargs": cross}
        layer = DualAttnDecoderBlock(WIDTH, 2, 2, 2, **COMMON, **extra)
    named = kind not in ("sensory", "encoder", "decoder")
    width = 2 if "dual" in kind else 4  # of a head
    tables = (None, None)
    if rope:  # in float64: rounded to float32, a shift of all positions would show
        angles = torch.outer(torch.arange(LONGEST).double(), 100.0 ** -torch.arange(width // 2).double())
        tables = (angles.cos(), angles.sin())
    retriever = float64(mechanism(symbols)) if named else None
    return Net(kind, float64(layer), retriever, tables, normal(4, CONTEXT, WIDTH))


def close(got, wanted):
    torch.testing.assert_close(got, wanted, atol=1e-10, rtol=0)


sizes = st.lists(st.integers(1, 4), min_size=1, max_size=4).filter(lambda s: sum(s) <= 9)
configurations = st.fixed_dictionaries(
    {
        "symbols": st.sampled_from(MECHANISMS),
        "rope": st.booleans(),
        "grouped": st.booleans(),
        "shaw": st.booleans(),
        "window": st.sampled_from([None, None, 1, 2, 3, 6]),
    }
)
few = examples(10)
