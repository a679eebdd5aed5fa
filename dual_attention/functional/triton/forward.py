"""Forward kernel: attended symbols, attended relations and the row log-sum-exp in one pass over the senders.

A program owns a block of receivers of one head and a group of relations. Its accumulators, in float32 registers, are
the attended relation keys of the group and, in the launch for the first group, the attended symbols.

What makes it reach the matrix units' rate. The product that dominates, weights (I x J) by relation keys (J x C), uses
each key that is read for I rows: with I = 128 every byte of keys feeds 64 multiply-adds, as in plain attention, which
keeps the L2 cache's bandwidth from being the limit. The relation keys are the same for all heads, so stacking several
heads' rows in one tile would use them more; but attention keys differ between heads, so the scores would be as many
products as heads. One head with 128 rows has the same shape, and programs that differ only in the head are neighbours
in the grid, so that they find the keys in L2. A wide group (C = 256) spreads the scores, which every group computes
again, over more useful work: for D = d_h = 64 and R p = 512 two groups cost 1.1 times the arithmetic of one, four
1.3 times. 128 x 256 sums take 128 registers of each of 256 threads, which leaves room for symbols and scores, but not
for a second group: that is why only the first group carries symbols.

Every tile is masked. Beside 320 or more multiply-adds for a pair, a handful of comparisons is a small part; a second
loop for the tiles that need none is worth trying where R p is small.
"""

import triton
import triton.language as tl

from .offsets import attend_offsets
from .tiles import PLACES, load_relations, load_rows, may_attend, product, relation_columns, sender_range, store_rows


@triton.jit(do_not_specialize=PLACES)
def forward_kernel(
    q,
    k,
    s,
    u,
    w,
    padding,
    receiver_segments,
    sender_segments,
    reach,
    out_symbols,
    out_relations,
    log_sum,
    q_batch,
    q_head,
    q_row,
    k_batch,
    k_head,
    k_row,
    s_batch,
    s_head,
    s_row,
    u_batch,
    u_row,
    w_batch,
    w_row,
    rseg_batch,
    sseg_batch,
    reach_batch,
    n,
    m,
    heads,
    groups,  # of relations in this launch
    first_group,
    offset,
    window,
    max_offset,
    symbol_offset,
    log2_scale,  # of the scores, times log2(e): exponentials are powers of two
    rel_scale,
    REP: tl.constexpr,
    D: tl.constexpr,
    DH: tl.constexpr,
    R: tl.constexpr,
    P: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    PADDING: tl.constexpr,
    SEGMENTS: tl.constexpr,
    RELATIVE: tl.constexpr,
    SYMBOLS: tl.constexpr,  # whether this launch computes symbols and the log-sum-exp
    I: tl.constexpr,  # noqa: E741
    J: tl.constexpr,
    T: tl.constexpr,
    D_PAD: tl.constexpr,
    DH_PAD: tl.constexpr,
    GROUP: tl.constexpr,
    P_PAD: tl.constexpr,
    PRECISION: tl.constexpr,
    WIDEN: tl.constexpr,
):
    head = tl.program_id(0)
    # Under causality the last receivers have the most senders: they start first.
    first_i = (tl.num_programs(1) - 1 - tl.program_id(1)) * I
    batch = (tl.program_id(2) // groups).to(tl.int64)
    first_relation = (first_group + tl.program_id(2) % groups) * GROUP
    row = batch * heads + head  # of (B, H)

    i = first_i + tl.arange(0, I)
    columns, valid = relation_columns(first_relation, R, P, GROUP, P_PAD)
    k += batch * k_batch + (head // REP) * k_head
    w += batch * w_batch
    s += batch * s_batch + (head // REP) * s_head
    padding += batch * m
    receiver_segments += batch * rseg_batch
    sender_segments += batch * sseg_batch
    reach += batch * reach_batch

    q_tile = load_rows(q + batch * q_batch + head * q_head, i, q_row, n, D, D_PAD)
    top = tl.full((I,), float("-inf"), tl.float32)
    total = tl.zeros((I,), tl.float32)
    attended = tl.zeros((I, GROUP * P_PAD), tl.float32)
    symbols = tl.zeros((I, DH_PAD), tl.float32)
    first_place = first_i + symbol_offset
    begin, end = sender_range(first_i, n, m, offset, window, reach, CAUSAL, WINDOW, SEGMENTS, I, J)
    for first_j in range(begin, end, J):
        j = first_j + tl.arange(0, J)
        k_tile = load_rows(k, j, k_row, m, D, D_PAD)
        scores = product(q_tile, tl.trans(k_tile), tl.zeros((I, J), tl.float32), PRECISION, WIDEN) * log2_scale
        allowed = may_attend(
            i[:, None], j[None, :], n, m, padding, receiver_segments, sender_segments, offset, window,
            CAUSAL, WINDOW, PADDING, SEGMENTS,
        )  # fmt: skip
        scores = tl.where(allowed, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        # A row that has seen no sender yet has the maximum minus infinity; subtracting zero keeps its weights zero.
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)
        weights = tl.exp2(scores - shift[:, None])
        shrink = tl.exp2(top - shift)
        total = total * shrink + tl.sum(weights, 1)
        top = new_top
        rounded = weights.to(w.dtype.element_ty)
        w_tile = load_relations(w, j, w_row, m, columns, valid)
        attended = product(rounded, w_tile, attended * shrink[:, None], PRECISION, WIDEN)
        if SYMBOLS:
            symbols = symbols * shrink[:, None]
            if RELATIVE:
                symbols = attend_offsets(
                    symbols, weights, s, first_place, first_j, s_row, max_offset, DH, DH_PAD, I, J, T, PRECISION, WIDEN
                )
            else:
                s_tile = load_rows(s, j, s_row, m, DH, DH_PAD)
                symbols = product(rounded, s_tile, symbols, PRECISION, WIDEN)

    some = total > 0.0
    total = tl.where(some, total, 1.0)
    # Math: a_i,l = rel_scale <u^l_i, c^l_i>, taken here, so that c is never written
    u_tile = load_relations(u + batch * u_batch, i, u_row, n, columns, valid).to(tl.float32)
    relations = tl.sum(tl.reshape(attended * u_tile, (I, GROUP, P_PAD)), 2) * (rel_scale / total)[:, None]
    relation = first_relation + tl.arange(0, GROUP)
    tl.store(
        out_relations + (row * n + i)[:, None] * R + relation[None, :],
        relations.to(out_relations.dtype.element_ty),
        mask=(i[:, None] < n) & (relation[None, :] < R),
    )
    if SYMBOLS:
        store_rows(out_symbols + row * n * DH, i, DH, n, symbols / total[:, None], DH, DH_PAD)
        tl.store(log_sum + row * n + i, tl.where(some, top + tl.log2(total), 0.0), mask=i < n)
