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

Tiles in which every pair may be attended come first, in a loop without a mask; a branch in one loop would keep the
products from being pipelined.

In a step of decoding a head has one block of receivers, too few programs to fill a GPU. Then several take a part of the
senders each, and :func:`combine_kernel` adds their results, weighted by their log-sum-exp. Each head still reads all
relation keys, which the others find in L2: at 8,192 senders, eight heads and R p = 512 that is 67 MB beside 17 MB from
memory. A program for all heads would read them once, and compute eight times the scores.
"""

import triton
import triton.language as tl

from .offsets import attend_offsets
from .tiles import (
    PLACES,
    at,
    load_relations,
    load_rows,
    masked_scores,
    product,
    relation_columns,
    sender_range,
    store_relations,
    store_rows,
    tile_scores,
    whole_senders,
)


@triton.jit(do_not_specialize=PLACES)
def forward_kernel(
    x,
    offset,
    symbol_offset,
    reach,
    groups,  # of relations in this launch
    first_group,
    of_part,  # senders of a part, a multiple of J, where all receivers are one block; None if senders are not split
    form,
    SYMBOLS: tl.constexpr,  # whether this launch computes symbols and the log-sum-exp
):
    head = tl.program_id(0)
    group_of_heads = head // form.REP
    if of_part is None:
        # Under causality the last receivers have the most senders: they start first.
        first_i = (tl.num_programs(1) - 1 - tl.program_id(1)) * form.I
    else:
        first_i = tl.program_id(1) * 0
    batch = (tl.program_id(2) // groups).to(tl.int64)
    first_relation = (first_group + tl.program_id(2) % groups) * form.GROUP
    row = batch * x.heads + head  # of (B, H)

    i = first_i + tl.arange(0, form.I)
    columns, valid = relation_columns(first_relation, form)
    k = at(x.k, batch, group_of_heads)
    s = at(x.s, batch, group_of_heads)
    w = at(x.w, batch, 0)
    q_tile = load_rows(at(x.q, batch, head), i, x.q.row, x.n, form.D, form.D_PAD)
    top = tl.full((form.I,), float("-inf"), tl.float32)
    total = tl.zeros((form.I,), tl.float32)
    attended = tl.zeros((form.I, form.GROUP * form.P_PAD), tl.float32)
    symbols = tl.zeros((form.I, form.DH_PAD), tl.float32)
    begin, end = sender_range(first_i, x, batch, offset, reach, form)
    begin, end, whole = own_part(begin, end, whole_senders(first_i, x, offset, form), of_part)
    for MASKED in tl.static_range(1 if form.HOLES else 0, 2):  # first the tiles that need no mask
        for first_j in range(whole if MASKED else begin, end if MASKED else whole, form.J):
            j = first_j + tl.arange(0, form.J)
            k_tile = load_rows(k, j, x.k.row, x.m, form.D, form.D_PAD)
            scores = tile_scores(q_tile, k_tile, x, form)
            if MASKED:
                scores = masked_scores(scores, i[:, None], j[None, :], x, batch, offset, form)
            new_top = tl.maximum(top, tl.max(scores, 1))
            # A row that has seen no sender yet has the maximum minus infinity; subtracting zero keeps its weights zero.
            shift = tl.where(new_top == float("-inf"), 0.0, new_top)
            weights = tl.exp2(scores - shift[:, None])
            shrink = tl.exp2(top - shift)
            total = total * shrink + tl.sum(weights, 1)
            top = new_top
            w_tile = load_relations(w, j, x.w.row, x.m, columns, valid)
            rounded = weights.to(w_tile.dtype)
            attended = product(rounded, w_tile, attended * shrink[:, None], form)
            if SYMBOLS:
                symbols = symbols * shrink[:, None]
                if form.RELATIVE:
                    symbols = attend_offsets(symbols, weights, s, first_i + symbol_offset, first_j, x, form)
                else:
                    s_tile = load_rows(s, j, x.s.row, x.m, form.DH, form.DH_PAD)
                    symbols = product(rounded, s_tile, symbols, form)

    if of_part is not None:
        row += tl.program_id(1) * (tl.num_programs(2) // groups) * x.heads
    some = total > 0.0
    total = tl.where(some, total, 1.0)
    # Math: a_i,l = <u^l_i, C^l_i>,  C_i = rel_scale sum_j alpha_ij w_j
    attended = attended * (x.rel_scale / total)[:, None]
    if x.attended is not None:
        store_relations(x.attended + row * x.n * (form.R * form.P), i, x.n, columns, valid, attended, form)
    u_tile = load_relations(at(x.u, batch, 0), i, x.u.row, x.n, columns, valid).to(tl.float32)
    relations = tl.sum(tl.reshape(attended * u_tile, (form.I, form.GROUP, form.P_PAD)), 2)
    relation = first_relation + tl.arange(0, form.GROUP)
    tl.store(
        x.out_relations + (row * x.n + i)[:, None] * form.R + relation[None, :],
        relations.to(x.out_relations.dtype.element_ty),
        mask=(i[:, None] < x.n) & (relation[None, :] < form.R),
    )
    if SYMBOLS:
        store_rows(x.out_symbols + row * x.n * form.DH, i, form.DH, x.n, symbols / total[:, None], form.DH, form.DH_PAD)
        of_nothing = 0.0 if of_part is None else float("-inf")
        tl.store(x.log_sum + row * x.n + i, tl.where(some, top + tl.log2(total), of_nothing), mask=i < x.n)


@triton.jit
def own_part(begin, end, whole, of_part):
    """The range of senders in this program's part, and from where on in it tiles need a mask."""
    if of_part is not None:
        begin = tl.maximum(begin, tl.program_id(1) * of_part)
        end = tl.minimum(end, (tl.program_id(1) + 1) * of_part)
        whole = tl.minimum(whole, end)
    return begin, end, tl.maximum(begin, whole)


@triton.jit
def combine_kernel(symbols, relations, log_sums, x, rows, parts, form, PARTS: tl.constexpr, R_PAD: tl.constexpr):
    """Results of a row from those of ``parts`` parts of its senders; PARTS is padded."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    from_part = part * rows + row
    log_sum = tl.load(log_sums + from_part, mask=part < parts, other=float("-inf"))
    top = tl.max(log_sum, 0)
    top = tl.where(top == float("-inf"), 0.0, top)
    weights = tl.exp2(log_sum - top)
    total = tl.maximum(tl.sum(weights, 0), 1.0)  # it is at least 1 where there is something to attend
    weights = (weights / total)[:, None]
    one = tl.arange(0, 1)
    symbols = tl.sum(weights * load_rows(symbols, from_part, form.DH, rows * parts, form.DH, form.DH_PAD), 0)
    relations = tl.sum(weights * load_rows(relations, from_part, form.R, rows * parts, form.R, R_PAD), 0)
    store_rows(x.out_symbols + row * form.DH, one, 0, 1, tl.expand_dims(symbols, 0), form.DH, form.DH_PAD)
    store_rows(x.out_relations + row * form.R, one, 0, 1, tl.expand_dims(relations, 0), form.R, R_PAD)
    tl.store(x.log_sum + row, top + tl.log2(total))
