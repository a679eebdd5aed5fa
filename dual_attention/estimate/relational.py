"""Formulas of relational attention.

Symbols: as in :mod:`.flops`; shared symbols have B_s = 1 or B examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..functional import OffsetSymbols, RelativeSymbols
from ..functional.relational import blockwise, choice, linear, workspace
from ..functional.relational import tiles as relation_tiles
from ..functional.relational.tiles import prefers_tiles
from ..functional.triton.support import WIDEST
from ..relational_attention import RelationalAttention
from .attention import Pattern, learns, shaw_keys, softmax_weights
from .basic import kept_by
from .counter import pairs_with_symbols
from .flops import Flops, fused_form, least_relational, linear_form
from .registry import Call, Setting, register


@dataclass(frozen=True)
class Sizes:
    """Sizes of a call of relational attention, in the symbols above.

    Attributes:
        rows: K of relative symbols, or 0.
        projected: rows of projected symbols, B_s M or K.
        gradients: whether queries, keys, relation queries, relation keys and symbols have a gradient.
    """

    batch: int
    heads: int
    groups: int
    width: int
    head_width: int
    relations: int
    p: int
    rows: int
    projected: int
    gradients: tuple[bool, bool, bool, bool, bool]

    @property
    def relation_width(self) -> int:
        """R p."""
        return self.relations * self.p

    def symbol_pairs(self, n: int, computed: int) -> int:
        """Pairs of receiver and symbol, with relative symbols N K."""
        return n * self.rows if self.rows else computed


@register(RelationalAttention, part="relational attention")
def relational_attention(call: Call) -> None:
    """Six projections; in between tiles, weights built whole or the fused kernels, as the layer would choose."""
    layer = call.module
    assert isinstance(layer, RelationalAttention)
    x = call["x"]
    y = x if call["y"] is None else call["y"]
    symbols = call["symbols"]
    batch, n, m = x.shape[0], x.shape[1], y.shape[1]
    pattern = Pattern.of(call, n, m, batch)
    rate = layer.dropout if call.setting.training else 0.0

    call.linear(layer.wq_attn, x)
    call.linear(layer.wk_attn, y)
    call.linear(layer.wq_rel, x)
    call.linear(layer.wk_rel, y)
    rows, projected = project_symbols(call, layer.wv, symbols)
    sizes = Sizes(
        batch,
        layer.n_heads,
        layer.n_kv_heads,
        layer.key_dim,
        layer.head_dim,
        layer.n_relations,
        layer.rel_proj_dim,
        rows,
        projected,
        (
            learns(layer.wq_attn, x),
            learns(layer.wk_attn, y),
            learns(layer.wq_rel, x),
            learns(layer.wk_rel, y),
            learns(layer.wv, library_of(symbols)),
        ),
    )
    if layer.rel_pos_keys is not None:
        pattern = shaw_keys(call, pattern, batch, sizes.heads, sizes.width, layer.rel_pos_keys.rel_pos_embeddings)

    impl = implementation(call, pattern, sizes, symbols, rate)
    FORMS[impl](call, pattern, sizes, symbols, rate)
    if pattern.padded:  # what padded senders hold is set to zero: both kinds of keys, and symbols
        call.save(2 * batch * m + (0 if rows else projected), torch.bool)
    call.product(batch, sizes.heads, n, sizes.relations, sizes.head_width)  # W_r
    if batch > 1 and sizes.heads > 1:
        call.save(batch * sizes.heads * sizes.relations * sizes.head_width)
    else:  # a view of the parameter serves
        call.cast(layer.wr)
    call.linear(layer.wo, rows=batch * n)
    call.dropout(layer.resid_dropout.p, batch * n * layer.wo.out_features, call.setting.dtype)

    keys = sizes.groups * sizes.width + sizes.relation_width
    if pattern.causal:
        call.cached.append((keys + (0 if rows else sizes.groups * sizes.head_width), layer.window))
    temporaries(call, impl, pattern, sizes)


def temporaries(call: Call, impl: str, pattern: Pattern, sizes: Sizes) -> None:
    """What lives while the layer runs: projections, results, weights of all receivers or of a block, relations."""
    n, m, outer = pattern.n, pattern.m, sizes.batch * sizes.heads
    relation_keys = sizes.batch * (n + m) * sizes.relation_width
    projected = relation_keys + outer * n * sizes.width + sizes.batch * m * sizes.groups * sizes.width
    projected += sizes.projected * sizes.groups * sizes.head_width
    results = outer * n * (sizes.head_width + sizes.relations)
    forward, backward = projected + results, projected + results
    if impl == "dense":  # in the backward pass gradients take the place of what was kept
        forward += outer * n * max((3 if pattern.mask else 2) * m, m + 2 * sizes.relation_width)
    elif impl == "linear":
        within = in_blocks(call, pattern, sizes)
        forward += within[0]
        backward += within[1]
    call.workspace = forward * call.setting.dtype.itemsize
    call.gradients = backward * call.setting.dtype.itemsize


def in_blocks(call: Call, pattern: Pattern, sizes: Sizes) -> tuple[int, int]:
    """Numbers that a block needs, forward and backward, of as many examples as are handled at a time.

    Weights, and those of a tile; a tile of relations, or keys under the weights; and the gradient of relation keys,
    summed over blocks. The relation keys of a single example are laid out anew. What is kept between calls is put
    down apart.
    """
    m, rows = pattern.m, min(pattern.n, linear.block_size(sizes.heads, pattern.m))
    on_cpu = call.setting.device == "cpu"
    examples = linear.examples_at_a_time(sizes.batch, sizes.heads, rows, m, sizes.relations, sizes.p, on_cpu=on_cpu)
    of_keys = examples * m * sizes.relation_width
    weights = examples * sizes.heads * rows * m
    fresh = 0
    if prefers_tiles(sizes.heads, sizes.p):
        tile = min(relation_tiles.tile_size(on_cpu), examples * rows * m * sizes.relations)
        fresh = (m + rows) * sizes.relation_width if examples == 1 else 0
        forward = [weights, weights, tile]
        backward = [*forward, weights, tile * sizes.heads // sizes.relations]
    else:
        keys = examples * sizes.heads * rows * sizes.relation_width
        forward = [weights, weights, keys]
        backward = [*forward, weights, weights, keys]
    fresh_forward, call.kept_forward = kept_between_calls(forward, call.setting)
    fresh_backward, call.kept_backward = kept_between_calls(backward, call.setting)
    return fresh + fresh_forward, fresh + of_keys + fresh_backward


def kept_between_calls(tensors: list[int], setting: Setting) -> tuple[int, int]:
    """Of a workspace's tensors, given as numbers: the numbers of those that go with the call, bytes of the others."""
    itemsize = setting.dtype.itemsize
    most = workspace.LARGEST_KEPT // itemsize if setting.device == "cpu" else 0
    kept = sum(numbers for numbers in tensors if numbers <= most)
    return sum(tensors) - kept, kept * itemsize


def library_of(symbols: Any) -> torch.Tensor:
    """The tensor that symbols are projected from."""
    return symbols.library if isinstance(symbols, RelativeSymbols) else symbols


def project_symbols(call: Call, layer: nn.Linear, symbols: Any) -> tuple[int, int]:
    """W_s applied to symbols: once for each sender, or once for each row of a library. Returns K (or 0) and rows."""
    source = library_of(symbols)
    call.linear(layer, source)
    rows = source.numel() // source.shape[-1]
    return (rows if isinstance(symbols, RelativeSymbols) else 0), rows


def implementation(call: Call, pattern: Pattern, sizes: Sizes, symbols: Any, rate: float) -> str:
    """What ``functional.relational_attention`` would choose, or the implementation asked for.

    Raises:
        ValueError: if that cannot compute this call.
    """
    setting, layer = call.setting, call.module
    obstacles = {
        "an activation of the relations": layer.rel_activation != "identity",
        "dropout": rate > 0,
        "a bias of the scores": pattern.bias > 0,
        "a mask of pairs": call["attn_mask"] is not None,
        "symbols of pairs": isinstance(symbols, RelativeSymbols) and not isinstance(symbols, OffsetSymbols),
        f"widths over {WIDEST}": max(sizes.width, sizes.head_width, sizes.p) > WIDEST,
    }
    against = ", ".join(what for what, there in obstacles.items() if there)
    if setting.impl == "triton" and against:
        raise ValueError(f"impl: 'triton' cannot compute relational attention with {against}")
    if setting.impl == "linear" and symbol_for_each_pair(pattern, sizes):
        raise ValueError("impl: 'linear' cannot compute relational attention with a symbol for each pair")
    if setting.impl != "auto":
        return setting.impl
    if setting.device == "cuda" and setting.dtype in (torch.bfloat16, torch.float16) and not against:
        return "triton"
    activated, on_cpu = layer.rel_activation != "identity", setting.device == "cpu"
    few = choice.few_pairs(sizes.batch, sizes.heads, pattern.n, pattern.m, sizes.p, on_cpu=on_cpu, activated=activated)
    return "dense" if few is not None or symbol_for_each_pair(pattern, sizes) else "linear"


def symbol_for_each_pair(pattern: Pattern, sizes: Sizes) -> bool:
    """Whether relative symbols have so many rows that hardly any two pairs share one."""
    return sizes.rows > 2 * (pattern.n + pattern.m)


def dense(call: Call, pattern: Pattern, sizes: Sizes, symbols: Any, rate: float) -> None:
    """Weights built whole; the relations too, if they are activated."""
    batch, heads, n, m = sizes.batch, sizes.heads, pattern.n, pattern.m
    activation = call.module.rel_activation
    q, k, u, w, s = sizes.gradients
    alpha = q or k
    shared_rows = sizes.rows > 0 and not symbol_for_each_pair(pattern, sizes)
    weights_copied = batch > 1 and heads > 1  # einsum lays out its factors anew
    kept = activation == "identity" or not shared_rows or not weights_copied  # by a product, as they are
    softmax_weights(call, pattern, batch, heads, sizes.width, rate, gradients=(q, k), result_is_kept=kept)
    if activation == "identity":
        call.product(batch, heads, n, m, sizes.relation_width, gradients=alpha + w, least=0)
        call.save(batch * (m + n + heads * n) * sizes.relation_width)  # keys; scaled queries; keys under the weights
    else:
        call.product(batch, n, m, sizes.relation_width, gradients=u + w, least=0)
        call.product(batch, heads, n, m, sizes.relations, gradients=alpha + (u or w), least=0)
        call.save(batch * (n + m) * sizes.relation_width)
        masked = activation == "softmax" and pattern.mask > 0
        copied = batch > 1 and sizes.relations > 1
        relations_kept = kept_by(activation, result_is_kept=not copied) + (copied or masked)
        call.save(relations_kept * batch * n * m * sizes.relations)
        if weights_copied:
            call.save(batch * heads * n * m)
        if masked:
            call.save(2 * pattern.mask, torch.bool)
    call.save(batch * heads * n * sizes.relations)
    add_least(call, pattern, sizes)
    of_symbols(call, pattern, sizes, symbols, gradients=alpha + s)


def add_least(call: Call, pattern: Pattern, sizes: Sizes) -> None:
    """Least arithmetic of the relations and symbols; that of the scores is added with these."""
    arguments = (sizes.batch, sizes.heads, pattern.least_pairs)
    symbol_pairs = min(sizes.symbol_pairs(pattern.n, pattern.least_pairs), pattern.least_pairs)
    least = least_relational(*arguments, symbol_pairs, 0, sizes.head_width, sizes.relations, sizes.p)
    call.add(Flops(least=least))


def of_symbols(call: Call, pattern: Pattern, sizes: Sizes, symbols: Any, *, gradients: int) -> None:
    """Symbols under weights that are built already."""
    batch, heads, n, m = sizes.batch, sizes.heads, pattern.n, pattern.m
    if not sizes.rows:
        call.product(batch, heads, n, m, sizes.head_width, gradients=gradients, least=0)
        call.save(symbols_of_heads(batch, heads, m, sizes.projected) * sizes.head_width)
    elif symbol_for_each_pair(pattern, sizes):
        symbols_of_pairs(call, pattern, sizes, gradients=gradients)
    else:
        call.product(batch, heads, n, sizes.rows, sizes.head_width, gradients=gradients, least=0)
        call.save(n * m, torch.int64)
        copies = 1 if sizes.groups == 1 else batch * heads
        call.save(sizes.rows * (batch * heads * n + copies * sizes.head_width))


def symbols_of_heads(batch: int, heads: int, m: int, projected: int) -> int:
    """Rows of symbols that a product keeps: those of all examples and heads; of one head, those that there are."""
    return batch * heads * m if heads > 1 else projected


def symbols_of_pairs(call: Call, pattern: Pattern, sizes: Sizes, *, gradients: int) -> None:
    """A symbol built for every pair and head."""
    batch, heads, n, m = sizes.batch, sizes.heads, pattern.n, pattern.m
    call.product(batch, heads, n, m, sizes.head_width, gradients=gradients, least=0)
    call.save(n * m, torch.int64)
    call.save(n * m * heads * sizes.head_width)


def arguments_kept(call: Call, pattern: Pattern, sizes: Sizes) -> None:
    """Queries and keys of attention and relations, projected symbols, and attended relations, which W_r reads."""
    of_receivers = sizes.heads * sizes.width + sizes.relation_width
    of_senders = sizes.groups * sizes.width + sizes.relation_width
    call.save(sizes.batch * (pattern.n * of_receivers + pattern.m * of_senders))
    call.save(sizes.projected * sizes.groups * sizes.head_width)
    call.save(sizes.batch * sizes.heads * pattern.n * sizes.relations)
    if pattern.bias:
        call.save(pattern.bias)


def linear_in_blocks(call: Call, pattern: Pattern, sizes: Sizes, symbols: Any, rate: float) -> None:
    """A block of receivers at a time; with an activation, in the dense form."""
    if call.module.rel_activation != "identity":
        dense_in_blocks(call, pattern, sizes, symbols, rate)
        return
    computed = pattern.sender_ranges(linear.block_size(sizes.heads, pattern.m))
    of_symbols = (pattern.n, pattern.m, sizes.groups, sizes.rows, sizes.head_width, computed)
    widths = (
        computed,
        pairs_with_symbols(*of_symbols, maps=sizes.batch * sizes.heads),
        sizes.width,
        sizes.head_width,
        sizes.relations,
        sizes.p,
    )
    tiles = prefers_tiles(sizes.heads, sizes.p)
    call.add(linear_form(sizes.batch, sizes.heads, *widths, tiles=tiles).with_least(0))
    add_scores_least(call, pattern, sizes)
    arguments_kept(call, pattern, sizes)
    for mask in (call["attn_mask"], call["padding_mask"], call["segments"]):
        for tensor in mask if isinstance(mask, tuple) else (mask,):
            call.keep(tensor)
    if sizes.rows:
        call.save(pattern.n * pattern.m, torch.int64)
    if rate:
        call.save(1, torch.int64)  # the seed


def fused(call: Call, pattern: Pattern, sizes: Sizes, symbols: Any, rate: float) -> None:
    """The fused kernels; they keep their results as well, and one number a row."""
    computed = pattern.least_pairs
    widths = (sizes.width, sizes.head_width, sizes.relations, sizes.p)
    call.add(fused_form(sizes.batch, sizes.heads, computed, computed, *widths).with_least(0))
    add_scores_least(call, pattern, sizes)
    arguments_kept(call, pattern, sizes)
    call.save(sizes.batch * sizes.heads * pattern.n * sizes.head_width)
    call.save(sizes.batch * sizes.heads * pattern.n, torch.float32)


def add_scores_least(call: Call, pattern: Pattern, sizes: Sizes) -> None:
    """Least arithmetic of the scores, relations and symbols."""
    scores = 2 * sizes.batch * sizes.heads * pattern.least_pairs * sizes.width
    call.add(Flops(least=scores))
    add_least(call, pattern, sizes)


def dense_in_blocks(call: Call, pattern: Pattern, sizes: Sizes, symbols: Any, rate: float) -> None:
    """Checkpointed blocks: forward twice, except for the last product of each, which nothing needs again."""
    pairs_of_examples = sizes.batch * pattern.sender_ranges(blockwise.BLOCK)
    pairs_with_symbols = sizes.batch * pattern.n * sizes.rows if sizes.rows else pairs_of_examples
    again = pairs_of_examples * (sizes.heads * sizes.width + sizes.relation_width)
    again += pairs_with_symbols * sizes.heads * sizes.head_width
    last = pairs_of_examples * sizes.heads * sizes.relations
    call.add(Flops(2 * (again + last), 2 * (3 * again + 2 * last)))
    add_scores_least(call, pattern, sizes)
    arguments_kept(call, pattern, sizes)


FORMS = {"dense": dense, "linear": linear_in_blocks, "triton": fused}
