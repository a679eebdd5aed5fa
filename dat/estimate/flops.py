"""Arithmetic of attention, in closed form: of the library's own operations, and the least that would do.

Only matrix products are counted, a multiply-add as two operations, as ``torch.utils.flop_counter`` does.

Symbols: B batch, N receivers, M senders, H heads, G key/value heads, D width of an attention query or key, d_h width
of a head, R relations (the paper's d_r), p width of one relation's query or key, K rows of a library of relative
symbols.
"""

from typing import NamedTuple

from dual_attention.functional import MaskPattern


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


class RelationalSizes(NamedTuple):
    """Relational attention by its sizes: B, H, pairs, pairs of receiver and symbol, D, d_h, R, p.

    Pairs of receiver and symbol are ``pairs``, or N K with a library of relative symbols.
    """

    batch: int
    heads: int
    pairs: int
    symbol_pairs: int
    key_width: int
    head_width: int
    relations: int
    p: int

    def linear(self, *, tiles: bool) -> Flops:
        """A block of receivers at a time, whose weights are built again in the backward pass.

        Math, with tiles of relations that are built once for all heads:
            forward  2 B (pairs (H D + R p + H R) + symbol_pairs H d_h)
            backward 2 B (pairs (3 H D + 3 R p + 2 H R) + symbol_pairs 2 H d_h)
        with relation keys under the weights of each head:
            forward  2 B H (pairs (D + R p) + symbol_pairs d_h)
            backward 2 B H (pairs (3 D + 3 R p) + symbol_pairs 2 d_h)

        In the backward pass: scores again, dq, dk; relations or keys again, for du; dw; dalpha (and dr); dalpha and ds.
        """
        scores, symbols = self.heads * self.key_width, self.symbol_pairs * self.heads * self.head_width
        again, once = self.relations * self.p, self.heads * self.relations
        if not tiles:
            again, once = self.heads * again, 0
        forward = 2 * self.batch * (self.pairs * (scores + again + once) + symbols)
        backward = 2 * self.batch * (self.pairs * (3 * scores + 3 * again + 2 * once) + 2 * symbols)
        return Flops(forward, backward)

    def fused(self) -> Flops:
        """One attention whose values are symbols and relation keys, in the fused kernels.

        Math: forward  2 B H (pairs (D + R p) + symbol_pairs d_h)
              backward 2 B H (pairs (5 D + 3 R p) + symbol_pairs 3 d_h)

        Each of the three backward kernels computes the scores again. Relation keys are taken as one group; with more
        groups the scores are computed once for each.
        """
        one, keys = 2 * self.batch * self.heads, self.relations * self.p
        forward = one * (self.pairs * (self.key_width + keys) + self.symbol_pairs * self.head_width)
        backward = one * (self.pairs * (5 * self.key_width + 3 * keys) + self.symbol_pairs * 3 * self.head_width)
        return Flops(forward, backward)

    def least(self) -> int:
        """Forward work of the cheaper exact form: as one attention, or with the relations built once for all heads."""
        return min(self.fused().forward, self.linear(tiles=True).forward)
