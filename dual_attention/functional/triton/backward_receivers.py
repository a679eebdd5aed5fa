"""Backward kernels that own a block of receivers: gradients of the attention queries and of the relation queries.

Weights are computed again from the row log-sum-exp. Nothing is added by atomics: every sum has one owner and one order,
so gradients are the same in every run.

Math: G_i = [g^a_i,l u^l_i]_l,   dalpha_ij = <g^s_i, s_j> + <G_i, w_j>,   delta_i = <g^s_i, o_i> + <g^a_i, a_i>,
      dS = alpha (dalpha - delta),   dq = scale dS k,   du^l_i = sum_h g^a_i,l c^l_i,   c_i = sum_j alpha_ij w_j
"""

# Checkers see neither that a branch on a constexpr is taken at compile time, nor that reductions return tensors.
# pyright: reportPossiblyUnboundVariable=false, reportArgumentType=false

import triton
import triton.language as tl

from .offsets import products_with_offsets
from .tiles import (
    PLACES,
    gradient_of_keys,
    load_of_relations,
    load_relations,
    load_rows,
    may_attend,
    product,
    relation_columns,
    sender_range,
    store_rows,
    times_relations,
)


@triton.jit(do_not_specialize=PLACES)
def q_kernel(
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
    grad_symbols,
    grad_relations,
    delta,  # written, read by the kernel of the senders
    tails,  # (2, B, H, N): the weight at the first and at the last relative symbol, written if RELATIVE
    dq,
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
    rows,  # B * H * N
    offset,
    window,
    max_offset,
    symbol_offset,
    log2_scale,
    scale,
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
    I: tl.constexpr,  # noqa: E741
    J: tl.constexpr,
    T: tl.constexpr,
    D_PAD: tl.constexpr,
    DH_PAD: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    P_PAD: tl.constexpr,
    PRECISION: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """dq, delta and the tails. One group of relations (GROUPS = 1) keeps G in shared memory for the whole row."""
    head = tl.program_id(0)
    first_i = (tl.num_programs(1) - 1 - tl.program_id(1)) * I
    batch = tl.program_id(2).to(tl.int64)
    row = batch * heads + head
    i = first_i + tl.arange(0, I)
    k += batch * k_batch + (head // REP) * k_head
    w += batch * w_batch
    u += batch * u_batch
    s += batch * s_batch + (head // REP) * s_head
    padding += batch * m
    receiver_segments += batch * rseg_batch
    sender_segments += batch * sseg_batch
    reach += batch * reach_batch
    grad_relations += row * n * R

    q_tile = load_rows(q + batch * q_batch + head * q_head, i, q_row, n, D, D_PAD)
    g_s = load_rows(grad_symbols + row * n * DH, i, DH, n, DH, DH_PAD)
    o_s = load_rows(out_symbols + row * n * DH, i, DH, n, DH, DH_PAD)
    row_delta = tl.sum(g_s.to(tl.float32) * o_s.to(tl.float32), 1)
    for group in range(0, GROUPS):
        g_a = load_of_relations(grad_relations, i, n, group * GROUP, R, GROUP)
        row_delta += tl.sum(g_a * load_of_relations(out_relations + row * n * R, i, n, group * GROUP, R, GROUP), 1)
    tl.store(delta + row * n + i, row_delta, mask=i < n)
    row_log_sum = tl.load(log_sum + row * n + i, mask=i < n, other=0.0)
    if GROUPS == 1:
        g_keys = gradient_of_keys(grad_relations, u, i, u_row, n, 0, rel_scale, R, P, I, GROUP, P_PAD)

    total = tl.zeros((I, D_PAD), tl.float32)
    before = tl.zeros((I,), tl.float32)
    after = tl.zeros((I,), tl.float32)
    begin, end = sender_range(first_i, n, m, offset, window, reach, CAUSAL, WINDOW, SEGMENTS, I, J)
    for first_j in range(begin, end, J):
        j = first_j + tl.arange(0, J)
        k_tile = load_rows(k, j, k_row, m, D, D_PAD)
        scores = product(q_tile, tl.trans(k_tile), tl.zeros((I, J), tl.float32), PRECISION, WIDEN) * log2_scale
        allowed = may_attend(
            i[:, None], j[None, :], n, m, padding, receiver_segments, sender_segments, offset, window,
            CAUSAL, WINDOW, PADDING, SEGMENTS,
        )  # fmt: skip
        alpha = tl.exp2(tl.where(allowed, scores, float("-inf")) - row_log_sum[:, None])
        dalpha = tl.zeros((I, J), tl.float32)
        if RELATIVE:
            dalpha += products_with_offsets(
                g_s, s, first_i + symbol_offset, first_j, s_row, max_offset, DH, DH_PAD, I, J, T, PRECISION, WIDEN
            )
            apart = j[None, :] - (i[:, None] + symbol_offset)
            before += tl.sum(tl.where(apart <= -max_offset, alpha, 0.0), 1)
            after += tl.sum(tl.where((apart >= max_offset) & (apart > -max_offset), alpha, 0.0), 1)
        else:
            s_tile = load_rows(s, j, s_row, m, DH, DH_PAD)
            dalpha = product(g_s, tl.trans(s_tile), dalpha, PRECISION, WIDEN)
        for group in range(0, GROUPS):
            columns, valid = relation_columns(group * GROUP, R, P, GROUP, P_PAD)
            w_tile = load_relations(w, j, w_row, m, columns, valid)
            if GROUPS > 1:
                g_keys = gradient_of_keys(
                    grad_relations, u, i, u_row, n, group * GROUP, rel_scale, R, P, I, GROUP, P_PAD
                )
            dalpha = product(g_keys, tl.trans(w_tile), dalpha, PRECISION, WIDEN)
        dscores = (alpha * (dalpha - row_delta[:, None])).to(k_tile.dtype)
        total = product(dscores, k_tile, total, PRECISION, WIDEN)
    store_rows(dq + row * n * D, i, D, n, total * scale, D, D_PAD)
    if RELATIVE:
        tl.store(tails + row * n + i, before, mask=i < n)
        tl.store(tails + rows + row * n + i, after, mask=i < n)


@triton.jit(do_not_specialize=PLACES)
def u_kernel(
    q,
    k,
    w,
    padding,
    receiver_segments,
    sender_segments,
    reach,
    log_sum,
    grad_relations,
    du,
    q_batch,
    q_head,
    q_row,
    k_batch,
    k_head,
    k_row,
    w_batch,
    w_row,
    rseg_batch,
    sseg_batch,
    reach_batch,
    n,
    m,
    heads,
    offset,
    window,
    log2_scale,
    rel_scale,
    REP: tl.constexpr,
    D: tl.constexpr,
    R: tl.constexpr,
    P: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    PADDING: tl.constexpr,
    SEGMENTS: tl.constexpr,
    I: tl.constexpr,  # noqa: E741
    J: tl.constexpr,
    D_PAD: tl.constexpr,
    GROUP: tl.constexpr,
    P_PAD: tl.constexpr,
    PRECISION: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """du of a group of relations: a sum over heads, taken one after another, hence two accumulators as wide as C."""
    first_relation = tl.program_id(0) * GROUP
    first_i = (tl.num_programs(1) - 1 - tl.program_id(1)) * I
    batch = tl.program_id(2).to(tl.int64)
    i = first_i + tl.arange(0, I)
    columns, valid = relation_columns(first_relation, R, P, GROUP, P_PAD)
    w += batch * w_batch
    padding += batch * m
    receiver_segments += batch * rseg_batch
    sender_segments += batch * sseg_batch
    reach += batch * reach_batch

    total = tl.zeros((I, GROUP * P_PAD), tl.float32)
    begin, end = sender_range(first_i, n, m, offset, window, reach, CAUSAL, WINDOW, SEGMENTS, I, J)
    for head in range(0, heads):
        row = batch * heads + head
        k_head_start = k + batch * k_batch + (head // REP) * k_head
        q_tile = load_rows(q + batch * q_batch + head * q_head, i, q_row, n, D, D_PAD)
        row_log_sum = tl.load(log_sum + row * n + i, mask=i < n, other=0.0)
        attended = tl.zeros((I, GROUP * P_PAD), tl.float32)
        for first_j in range(begin, end, J):
            j = first_j + tl.arange(0, J)
            k_tile = load_rows(k_head_start, j, k_row, m, D, D_PAD)
            scores = product(q_tile, tl.trans(k_tile), tl.zeros((I, J), tl.float32), PRECISION, WIDEN) * log2_scale
            allowed = may_attend(
                i[:, None], j[None, :], n, m, padding, receiver_segments, sender_segments, offset, window,
                CAUSAL, WINDOW, PADDING, SEGMENTS,
            )  # fmt: skip
            alpha = tl.exp2(tl.where(allowed, scores, float("-inf")) - row_log_sum[:, None])
            w_tile = load_relations(w, j, w_row, m, columns, valid)
            attended = product(alpha.to(w_tile.dtype), w_tile, attended, PRECISION, WIDEN)
        g_a = load_of_relations(grad_relations + row * n * R, i, n, first_relation, R, GROUP)
        total += times_relations(attended, g_a, I, GROUP, P_PAD)
    inside = (i[:, None] < n) & valid[None, :]
    tl.store(
        du + (batch * n + i)[:, None] * (R * P) + columns[None, :],
        (total * rel_scale).to(du.dtype.element_ty),
        mask=inside,
    )
