"""Arithmetic of attention, in closed form: of the library's own operations, and the least that would do.

Only matrix products are counted, a multiply-add as two operations, as ``torch.utils.flop_counter`` does.

Symbols: B batch, N receivers, M senders, H heads, G key/value heads, D width of an attention query or key, d_h width
of a head, R relations (the paper's d_r), p width of one relation's query or key, K rows of a library of relative
symbols.
"""

from __future__ import annotations

from typing import NamedTuple

from ..functional import MaskPattern


class Flops(NamedTuple):
    """Floating-point operations of both passes, as they are run: with what the backward pass computes again."""

    forward: int
    backward: int


def pairs(n: int, m: int, *, causal: bool = False, window: int | None = None) -> int:
    """Pairs (receiver, sender) that order allows.

    Math: N M;  causal: N (N + 1) / 2;  window w <= N: N (2 w - 1) - w (w - 1);  both: w (w + 1) / 2 + (N - w) w
    """
    if window is not None and (window < n or not causal):
        w = min(window, n)
        return w * (w + 1) // 2 + (n - w) * w if causal else n * (2 * w - 1) - w * (w - 1)
    return n * (n + 1) // 2 if causal else n * m


def block_pairs(n: int, m: int, block: int, *, causal: bool = False, window: int | None = None, offset: int = 0) -> int:
    """Pairs computed by what handles a block of receivers with all senders that any of them sees."""
    pattern = MaskPattern(n, m, causal=causal, window=window, offset=offset)
    total = 0
    for start in range(0, n, block):
        stop = min(start + block, n)
        first, last = pattern.senders(start, stop)
        total += (stop - start) * (last - first)
    return total


def fused_attention(batch: int, heads: int, n_pairs: int, key_width: int, value_width: int) -> Flops:
    """Attention that keeps no weights: scores and attended values, and in the backward pass the scores again.

    Math: forward 2 B H pairs (D + d_h);  backward 2 B H pairs (3 D + 2 d_h)
    """
    one = 2 * batch * heads * n_pairs
    return Flops(one * (key_width + value_width), one * (3 * key_width + 2 * value_width))


def linear_form(
    batch: int,
    heads: int,
    n_pairs: int,
    symbol_pairs: int,
    key_width: int,
    head_width: int,
    relations: int,
    p: int,
    *,
    tiles: bool,
) -> Flops:
    """Relational attention for a block of receivers at a time, whose weights are built again in the backward pass.

    Math, with tiles of relations that are built once for all heads:
        forward  2 B (pairs (H D + R p + H R) + symbol_pairs H d_h)
        backward 2 B (pairs (3 H D + 3 R p + 2 H R) + symbol_pairs 2 H d_h)
    with relation keys under the weights of each head:
        forward  2 B H (pairs (D + R p) + symbol_pairs d_h)
        backward 2 B H (pairs (3 D + 3 R p) + symbol_pairs 2 d_h)

    In the backward pass: scores again, dq, dk; relations or keys again, for du; dw; dalpha (and dr); dalpha and ds.
    Pairs of receiver and symbol are ``n_pairs``, or N K with a library of relative symbols.
    """
    scores, symbols = heads * key_width, symbol_pairs * heads * head_width
    if tiles:
        again, once = relations * p, heads * relations
    else:
        again, once = heads * relations * p, 0
    forward = 2 * batch * (n_pairs * (scores + again + once) + symbols)
    backward = 2 * batch * (n_pairs * (3 * scores + 3 * again + 2 * once) + 2 * symbols)
    return Flops(forward, backward)


def fused_form(
    batch: int, heads: int, n_pairs: int, symbol_pairs: int, key_width: int, head_width: int, relations: int, p: int
) -> Flops:
    """Relational attention as one attention whose values are symbols and relation keys, in the fused kernels.

    Math: forward  2 B H (pairs (D + R p) + symbol_pairs d_h)
          backward 2 B H (pairs (5 D + 4 R p) + symbol_pairs 3 d_h)

    Each of the three backward kernels computes the scores again. Relation keys are taken as one group; with more
    groups the scores are computed once for each.
    """
    one, keys = 2 * batch * heads, relations * p
    forward = one * (n_pairs * (key_width + keys) + symbol_pairs * head_width)
    backward = one * (n_pairs * (5 * key_width + 4 * keys) + symbol_pairs * 3 * head_width)
    return Flops(forward, backward)


def least_relational(
    batch: int, heads: int, n_pairs: int, symbol_pairs: int, key_width: int, head_width: int, relations: int, p: int
) -> int:
    """Forward work of the cheaper exact form: as one attention, or dense with the relations built once for all heads.

    Math: 2 B (H (pairs D + symbol_pairs d_h) + pairs min(H R p, R p + H R))
    """
    shared = heads * (n_pairs * key_width + symbol_pairs * head_width)
    return 2 * batch * (shared + n_pairs * min(heads * relations * p, relations * p + heads * relations))
