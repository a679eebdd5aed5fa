"""Backward kernels.

Two own a block of receivers: those of the gradients of the attention queries and of the relation queries. Two own a
block of senders: those of the attention keys and symbols, and of the relation keys. Their tiles are transposed, senders
by receivers, so that the weights are the left operand of every product and can stay in registers. The last owns a block
of offsets, of a table of relative symbols.

Weights are computed again from the row log-sum-exp. Nothing is added by atomics: every sum has one owner and one order,
so gradients are the same in every run.

Math: G_i = [rel_scale g^a_i,l u^l_i]_l,   dalpha_ij = <g^s_i, s_j> + <G_i, w_j>,
      delta_i = <g^s_i, o_i> + sum_l g^a_i,l <u^l_i, C^l_i>,   dS = alpha (dalpha - delta),   dq = scale dS k,
      du^l_i = sum_h g^a_i,l C^l_i,   dk = scale dS^T q,   ds = alpha^T g^s,   dw = sum_h alpha^T G,
      dT_t = sum_i alpha_i,i+t g^s_i
"""

# Checkers see neither that a branch on a constexpr is taken at compile time, nor that reductions return tensors.
# pyright: reportPossiblyUnboundVariable=false, reportArgumentType=false

import triton
import triton.language as tl

from .offsets import products_with_offsets
from .tiles import (
    PLACES,
    at,
    gradient_of_keys,
    load_numbers,
    load_of_relations,
    load_relations,
    load_rows,
    masked_scores,
    masked_unless_whole,
    product,
    receiver_range,
    relation_columns,
    sender_range,
    store_relations,
    store_rows,
    tile_scores,
    times_relations,
)


@triton.jit(do_not_specialize=PLACES)
def q_kernel(
    x,
    offset,
    symbol_offset,
    reach,
    tails,  # (2, B, H, N): the weight at the first and at the last relative symbol, written if RELATIVE
    parts,  # of delta
    dq,
    form,
):
    """dq, delta, the tails, and G for the other kernels. One group of relations (GROUPS = 1) keeps G in shared memory
    for the whole row."""
    head = tl.program_id(0)
    group_of_heads = head // form.REP
    first_i = (tl.num_programs(1) - 1 - tl.program_id(1)) * form.I
    batch = tl.program_id(2).to(tl.int64)
    row = batch * x.heads + head
    keys_start = x.grad_keys + row * x.n * (form.R * form.P)
    i = first_i + tl.arange(0, form.I)
    k = at(x.k, batch, group_of_heads)
    s = at(x.s, batch, group_of_heads)
    w = at(x.w, batch, 0)

    q_tile = load_rows(at(x.q, batch, head), i, x.q.row, x.n, form.D, form.D_PAD)
    g_s = load_rows(x.grad_symbols + row * x.n * form.DH, i, form.DH, x.n, form.DH, form.DH_PAD)
    o_s = load_rows(x.out_symbols + row * x.n * form.DH, i, form.DH, x.n, form.DH, form.DH_PAD)
    row_delta = tl.sum(g_s.to(tl.float32) * o_s.to(tl.float32), 1)
    for part in range(1, parts + 1):
        row_delta += load_numbers(x.delta, part * tl.num_programs(2) * x.heads + row, i, x)
    for group in range(0, form.GROUPS):
        columns, valid = relation_columns(group * form.GROUP, form)
        g_group = gradient_of_keys(x, batch, row, i, group * form.GROUP, form)
        store_relations(keys_start, i, x.n, columns, valid, g_group, form)
    tl.store(x.delta + row * x.n + i, row_delta, mask=i < x.n)
    row_log_sum = load_numbers(x.log_sum, row, i, x)
    tl.debug_barrier()  # G is read again by other threads than have written it
    if form.GROUPS == 1:
        columns, valid = relation_columns(0, form)
        g_keys = load_relations(keys_start, i, form.R * form.P, x.n, columns, valid)

    total = tl.zeros((form.I, form.D_PAD), tl.float32)
    before = tl.zeros((form.I,), tl.float32)
    after = tl.zeros((form.I,), tl.float32)
    begin, end = sender_range(first_i, x, batch, offset, reach, form)
    for first_j in range(begin, end, form.J):
        j = first_j + tl.arange(0, form.J)
        k_tile = load_rows(k, j, x.k.row, x.m, form.D, form.D_PAD)
        scores = tile_scores(q_tile, k_tile, x, form)
        scores = masked_unless_whole(scores, i[:, None], j[None, :], first_i, first_j, x, batch, offset, form)
        alpha = tl.exp2(scores - row_log_sum[:, None])
        dalpha = tl.zeros((form.I, form.J), tl.float32)
        if form.RELATIVE:
            dalpha += products_with_offsets(g_s, s, first_i + symbol_offset, first_j, x, form)
            apart = j[None, :] - (i[:, None] + symbol_offset)
            before += tl.sum(tl.where(apart <= -x.max_offset, alpha, 0.0), 1)
            after += tl.sum(tl.where((apart >= x.max_offset) & (apart > -x.max_offset), alpha, 0.0), 1)
        else:
            s_tile = load_rows(s, j, x.s.row, x.m, form.DH, form.DH_PAD)
            dalpha = product(g_s, tl.trans(s_tile), dalpha, form)
        for group in range(0, form.GROUPS):
            columns, valid = relation_columns(group * form.GROUP, form)
            w_tile = load_relations(w, j, x.w.row, x.m, columns, valid)
            if form.GROUPS > 1:
                g_keys = load_relations(keys_start, i, form.R * form.P, x.n, columns, valid)
            dalpha = product(g_keys, tl.trans(w_tile), dalpha, form)
        dscores = (alpha * (dalpha - row_delta[:, None])).to(k_tile.dtype)
        total = product(dscores, k_tile, total, form)
    store_rows(dq + row * x.n * form.D, i, form.D, x.n, total * x.scale, form.D, form.D_PAD)
    if form.RELATIVE:
        tl.store(tails + row * x.n + i, before, mask=i < x.n)
        last = tl.num_programs(2) * x.heads + row
        tl.store(tails + last * x.n + i, after, mask=i < x.n)


@triton.jit
def u_kernel(x, du, form):
    """du of a group of relations, a sum over heads of what the forward kernel has kept, and their part of delta."""
    group = tl.program_id(0)
    batch = tl.program_id(2).to(tl.int64)
    i = tl.program_id(1) * form.I + tl.arange(0, form.I)
    columns, valid = relation_columns(group * form.GROUP, form)
    u = load_relations(at(x.u, batch, 0), i, x.u.row, x.n, columns, valid).to(tl.float32)

    total = tl.zeros((form.I, form.GROUP * form.P_PAD), tl.float32)
    for head in range(0, x.heads):
        row = batch * x.heads + head
        start = x.attended + row * x.n * (form.R * form.P)
        attended = load_relations(start, i, form.R * form.P, x.n, columns, valid).to(tl.float32)
        g_a = load_of_relations(x.grad_relations, row, i, group * form.GROUP, x, form)
        of_head = times_relations(attended, g_a, form)
        total += of_head
        part = (group + 1) * tl.num_programs(2) * x.heads + row
        tl.store(x.delta + part * x.n + i, tl.sum(of_head * u, 1), mask=i < x.n)
    store_relations(du + batch * x.n * (form.R * form.P), i, x.n, columns, valid, total, form)


@triton.jit(do_not_specialize=PLACES)
def k_kernel(
    x,
    offset,
    symbol_offset,
    reach,
    dk,
    ds,  # (B, M, G, d_h), as layers hold symbols, written unless RELATIVE
    form,
):
    """dk and ds of one key/value head. One group of relations (GROUPS = 1) keeps w in shared memory throughout."""
    group_of_heads = tl.program_id(0)
    first_j = tl.program_id(1) * form.J
    batch = tl.program_id(2).to(tl.int64)
    j = first_j + tl.arange(0, form.J)
    s = at(x.s, batch, group_of_heads)
    w = at(x.w, batch, 0)

    k_tile = load_rows(at(x.k, batch, group_of_heads), j, x.k.row, x.m, form.D, form.D_PAD)
    if not form.RELATIVE:
        s_tile = load_rows(s, j, x.s.row, x.m, form.DH, form.DH_PAD)
    if form.GROUPS == 1:
        columns, valid = relation_columns(0, form)
        w_tile = load_relations(w, j, x.w.row, x.m, columns, valid)

    total_k = tl.zeros((form.J, form.D_PAD), tl.float32)
    total_s = tl.zeros((form.J, form.DH_PAD), tl.float32)
    begin, end = receiver_range(first_j, x, batch, offset, reach, form)
    for member in range(0, form.REP):
        head = group_of_heads * form.REP + member
        row = batch * x.heads + head
        keys_start = x.grad_keys + row * x.n * (form.R * form.P)
        for first_i in range(begin, end, form.I):
            i = first_i + tl.arange(0, form.I)
            q_tile = load_rows(at(x.q, batch, head), i, x.q.row, x.n, form.D, form.D_PAD)
            row_log_sum = load_numbers(x.log_sum, row, i, x)
            row_delta = load_numbers(x.delta, row, i, x)
            g_s = load_rows(x.grad_symbols + row * x.n * form.DH, i, form.DH, x.n, form.DH, form.DH_PAD)
            scores = tile_scores(k_tile, q_tile, x, form)
            scores = masked_unless_whole(scores, i[None, :], j[:, None], first_i, first_j, x, batch, offset, form)
            alpha = tl.exp2(scores - row_log_sum[None, :])
            dalpha = tl.zeros((form.J, form.I), tl.float32)
            if form.RELATIVE:
                dalpha += tl.trans(products_with_offsets(g_s, s, first_i + symbol_offset, first_j, x, form))
            else:
                total_s = product(alpha.to(g_s.dtype), g_s, total_s, form)
                dalpha = product(s_tile, tl.trans(g_s), dalpha, form)
            for group in range(0, form.GROUPS):
                if form.GROUPS > 1:
                    columns, valid = relation_columns(group * form.GROUP, form)
                    w_tile = load_relations(w, j, x.w.row, x.m, columns, valid)
                g_keys = load_relations(keys_start, i, form.R * form.P, x.n, columns, valid)
                dalpha = product(w_tile, tl.trans(g_keys), dalpha, form)
            dscores = (alpha * (dalpha - row_delta[None, :])).to(q_tile.dtype)
            total_k = product(dscores, q_tile, total_k, form)
    of_group = batch * (x.heads // form.REP) + group_of_heads
    store_rows(dk + of_group * x.m * form.D, j, form.D, x.m, total_k * x.scale, form.D, form.D_PAD)
    if not form.RELATIVE:
        row_width = x.heads // form.REP * form.DH
        start = batch * x.m * row_width + group_of_heads * form.DH
        store_rows(ds + start, j, row_width, x.m, total_s, form.DH, form.DH_PAD)


@triton.jit(do_not_specialize=PLACES)
def w_kernel(
    x,
    offset,
    reach,
    dw,  # (splits, B, M, R, p)
    groups,
    heads_of_split,
    form,
):
    """dw of a group of relations, summed over the heads of a split; the caller adds the splits up."""
    first_relation = (tl.program_id(0) % groups) * form.GROUP
    split = tl.program_id(0) // groups
    first_j = tl.program_id(1) * form.J
    batch = tl.program_id(2).to(tl.int64)
    j = first_j + tl.arange(0, form.J)
    columns, valid = relation_columns(first_relation, form)

    total = tl.zeros((form.J, form.GROUP * form.P_PAD), tl.float32)
    begin, end = receiver_range(first_j, x, batch, offset, reach, form)
    for head in range(split * heads_of_split, tl.minimum((split + 1) * heads_of_split, x.heads)):
        row = batch * x.heads + head
        keys_start = x.grad_keys + row * x.n * (form.R * form.P)
        k_tile = load_rows(at(x.k, batch, head // form.REP), j, x.k.row, x.m, form.D, form.D_PAD)
        for first_i in range(begin, end, form.I):
            i = first_i + tl.arange(0, form.I)
            q_tile = load_rows(at(x.q, batch, head), i, x.q.row, x.n, form.D, form.D_PAD)
            row_log_sum = load_numbers(x.log_sum, row, i, x)
            scores = tile_scores(k_tile, q_tile, x, form)
            scores = masked_unless_whole(scores, i[None, :], j[:, None], first_i, first_j, x, batch, offset, form)
            alpha = tl.exp2(scores - row_log_sum[None, :])
            g_keys = load_relations(keys_start, i, form.R * form.P, x.n, columns, valid)
            total = product(alpha.to(g_keys.dtype), g_keys, total, form)
    of_split = split.to(tl.int64) * tl.num_programs(2) + batch
    store_relations(dw + of_split * x.m * (form.R * form.P), j, x.m, columns, valid, total, form)


@triton.jit(do_not_specialize=PLACES)
def table_kernel(
    x,
    offset,
    symbol_offset,
    reach,
    dtable,  # (B * REP, G, K, d_h), float32
    form,  # J: offsets in a block, T: senders in their band
):
    """dT of a block of offsets: for each block of receivers, the weights on the band of senders that they reach.

    The two ends of the table, which clipping shares among many senders, are left to the caller, who has their weights
    (``tails``) from the kernel of the queries.
    """
    first_row = tl.program_id(0) * form.J
    group_of_heads = tl.program_id(1)
    batch = (tl.program_id(2) // form.REP).to(tl.int64)
    head = group_of_heads * form.REP + tl.program_id(2) % form.REP
    row = batch * x.heads + head

    total = tl.zeros((form.J, form.DH_PAD), tl.float32)
    # Receivers that reach a sender: 0 <= i + ahead < m for some offset of the block.
    ahead = first_row - x.max_offset + symbol_offset
    begin = tl.maximum(0, -(ahead + form.J - 1)) // form.I * form.I
    end = tl.minimum(x.n, x.m - ahead)
    if form.CAUSAL:
        end = tl.where(ahead > offset, 0, end)
    if form.WINDOW:
        beyond = (ahead - offset >= x.window) | (ahead + form.J - 1 - offset <= -x.window)
        end = tl.where(beyond, 0, end)
    for first_i in range(begin, end, form.I):
        some = True
        if reach.start is not None:
            block = at(reach, batch, 0) + first_i // form.I * 2
            some = (first_i + ahead < tl.load(block + 1)) & (first_i + ahead + form.I + form.J - 1 > tl.load(block))
        if some:
            i = first_i + tl.arange(0, form.I)
            j = first_i + ahead + tl.arange(0, form.T)
            q_tile = load_rows(at(x.q, batch, head), i, x.q.row, x.n, form.D, form.D_PAD)
            feature = tl.arange(0, form.D_PAD)
            inside = (j[:, None] >= 0) & (j[:, None] < x.m) & (feature[None, :] < form.D)
            k = at(x.k, batch, group_of_heads)
            k_tile = tl.load(k + j[:, None] * x.k.row + feature[None, :], mask=inside, other=0.0)
            g_s = load_rows(x.grad_symbols + row * x.n * form.DH, i, form.DH, x.n, form.DH, form.DH_PAD)
            row_log_sum = load_numbers(x.log_sum, row, i, x)
            scores = tile_scores(q_tile, k_tile, x, form)
            if form.HOLES:
                scores = masked_scores(scores, i[:, None], j[None, :], x, batch, offset, form)
            else:  # what is gathered of a tile within all ends needs no mask
                whole = (first_i + form.I <= x.n) & (first_i + ahead >= 0)
                whole = whole & (first_i + ahead + form.I + form.J - 1 <= x.m)
                if form.CAUSAL:
                    whole = whole & (ahead + form.J - 1 <= offset)
                if not whole:
                    scores = masked_scores(scores, i[:, None], j[None, :], x, batch, offset, form)
            alpha = tl.exp2(scores - row_log_sum[:, None])
            beta = tl.gather(alpha, tl.arange(0, form.I)[:, None] + tl.arange(0, form.J)[None, :], 1)
            total = product(tl.trans(beta).to(g_s.dtype), g_s, total, form)
    t = first_row + tl.arange(0, form.J)
    interior = (t > 0) & (t < 2 * x.max_offset)
    rows_in_table = 2 * x.max_offset + 1
    start = (tl.program_id(2).to(tl.int64) * (x.heads // form.REP) + group_of_heads) * rows_in_table
    total = tl.where(interior[:, None], total, 0.0)
    store_rows(dtable + start * form.DH, t, form.DH, rows_in_table, total, form.DH, form.DH_PAD)
