"""Backward kernels that own a block of senders: gradients of the attention keys and symbols, and of the relation keys.

Tiles are transposed, senders by receivers, so that the weights are the left operand of every product and can stay in
registers. Nothing is added by atomics; the notation is that of :mod:`.backward_receivers`.

Math: dk = scale dS^T q,   ds = alpha^T g^s,   dw = sum_h alpha^T G
"""

# Checkers see neither that a branch on a constexpr is taken at compile time, nor that reductions return tensors.
# pyright: reportPossiblyUnboundVariable=false, reportArgumentType=false

import triton
import triton.language as tl

from .offsets import products_with_offsets
from .tiles import (
    PLACES,
    gradient_of_keys,
    load_relations,
    load_rows,
    may_attend,
    product,
    receiver_range,
    relation_columns,
    store_rows,
)


@triton.jit(do_not_specialize=PLACES)
def k_kernel(
    q,
    k,
    s,
    u,
    w,
    padding,
    receiver_segments,
    sender_segments,
    reach,
    log_sum,
    grad_symbols,
    grad_relations,
    delta,
    dk,
    ds,  # (B, G, M, d_h), written unless RELATIVE
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
    """dk and ds of one key/value head. One group of relations (GROUPS = 1) keeps w in shared memory throughout."""
    group_of_heads = tl.program_id(0)
    first_j = tl.program_id(1) * J
    batch = tl.program_id(2).to(tl.int64)
    j = first_j + tl.arange(0, J)
    w += batch * w_batch
    u += batch * u_batch
    s += batch * s_batch + group_of_heads * s_head
    padding += batch * m
    receiver_segments += batch * rseg_batch
    sender_segments += batch * sseg_batch
    reach += batch * reach_batch

    k_tile = load_rows(k + batch * k_batch + group_of_heads * k_head, j, k_row, m, D, D_PAD)
    if not RELATIVE:
        s_tile = load_rows(s, j, s_row, m, DH, DH_PAD)
    if GROUPS == 1:
        columns, valid = relation_columns(0, R, P, GROUP, P_PAD)
        w_tile = load_relations(w, j, w_row, m, columns, valid)

    total_k = tl.zeros((J, D_PAD), tl.float32)
    total_s = tl.zeros((J, DH_PAD), tl.float32)
    begin, end = receiver_range(first_j, n, m, offset, window, reach, CAUSAL, WINDOW, SEGMENTS, J, I)
    for member in range(0, REP):
        head = group_of_heads * REP + member
        row = batch * heads + head
        for first_i in range(begin, end, I):
            i = first_i + tl.arange(0, I)
            q_tile = load_rows(q + batch * q_batch + head * q_head, i, q_row, n, D, D_PAD)
            row_log_sum = tl.load(log_sum + row * n + i, mask=i < n, other=0.0)
            row_delta = tl.load(delta + row * n + i, mask=i < n, other=0.0)
            g_s = load_rows(grad_symbols + row * n * DH, i, DH, n, DH, DH_PAD)
            scores = product(k_tile, tl.trans(q_tile), tl.zeros((J, I), tl.float32), PRECISION, WIDEN) * log2_scale
            allowed = may_attend(
                i[None, :], j[:, None], n, m, padding, receiver_segments, sender_segments, offset, window,
                CAUSAL, WINDOW, PADDING, SEGMENTS,
            )  # fmt: skip
            alpha = tl.exp2(tl.where(allowed, scores, float("-inf")) - row_log_sum[None, :])
            dalpha = tl.zeros((J, I), tl.float32)
            if RELATIVE:
                first_place = first_i + symbol_offset
                dalpha += tl.trans(
                    products_with_offsets(
                        g_s, s, first_place, first_j, s_row, max_offset, DH, DH_PAD, I, J, T, PRECISION, WIDEN
                    )
                )
            else:
                total_s = product(alpha.to(g_s.dtype), g_s, total_s, PRECISION, WIDEN)
                dalpha = product(s_tile, tl.trans(g_s), dalpha, PRECISION, WIDEN)
            for group in range(0, GROUPS):
                g_keys = gradient_of_keys(
                    grad_relations + row * n * R, u, i, u_row, n, group * GROUP, rel_scale, R, P, I, GROUP, P_PAD
                )
                if GROUPS > 1:
                    columns, valid = relation_columns(group * GROUP, R, P, GROUP, P_PAD)
                    w_tile = load_relations(w, j, w_row, m, columns, valid)
                dalpha = product(w_tile, tl.trans(g_keys), dalpha, PRECISION, WIDEN)
            dscores = (alpha * (dalpha - row_delta[None, :])).to(q_tile.dtype)
            total_k = product(dscores, q_tile, total_k, PRECISION, WIDEN)
    of_group = batch * (heads // REP) + group_of_heads
    store_rows(dk + of_group * m * D, j, D, m, total_k * scale, D, D_PAD)
    if not RELATIVE:
        store_rows(ds + of_group * m * DH, j, DH, m, total_s, DH, DH_PAD)


@triton.jit(do_not_specialize=PLACES)
def w_kernel(
    q,
    k,
    u,
    padding,
    receiver_segments,
    sender_segments,
    reach,
    log_sum,
    grad_relations,
    dw,  # (splits, B, M, R, p)
    q_batch,
    q_head,
    q_row,
    k_batch,
    k_head,
    k_row,
    u_batch,
    u_row,
    rseg_batch,
    sseg_batch,
    reach_batch,
    n,
    m,
    heads,
    batches,
    groups,  # of relations
    heads_of_split,
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
    """dw of a group of relations, summed over the heads of a split; the caller adds the splits up."""
    first_relation = (tl.program_id(0) % groups) * GROUP
    split = tl.program_id(0) // groups
    first_j = tl.program_id(1) * J
    batch = tl.program_id(2).to(tl.int64)
    j = first_j + tl.arange(0, J)
    columns, valid = relation_columns(first_relation, R, P, GROUP, P_PAD)
    u += batch * u_batch
    padding += batch * m
    receiver_segments += batch * rseg_batch
    sender_segments += batch * sseg_batch
    reach += batch * reach_batch

    total = tl.zeros((J, GROUP * P_PAD), tl.float32)
    begin, end = receiver_range(first_j, n, m, offset, window, reach, CAUSAL, WINDOW, SEGMENTS, J, I)
    for head in range(split * heads_of_split, tl.minimum((split + 1) * heads_of_split, heads)):
        row = batch * heads + head
        k_tile = load_rows(k + batch * k_batch + (head // REP) * k_head, j, k_row, m, D, D_PAD)
        for first_i in range(begin, end, I):
            i = first_i + tl.arange(0, I)
            q_tile = load_rows(q + batch * q_batch + head * q_head, i, q_row, n, D, D_PAD)
            row_log_sum = tl.load(log_sum + row * n + i, mask=i < n, other=0.0)
            scores = product(k_tile, tl.trans(q_tile), tl.zeros((J, I), tl.float32), PRECISION, WIDEN) * log2_scale
            allowed = may_attend(
                i[None, :], j[:, None], n, m, padding, receiver_segments, sender_segments, offset, window,
                CAUSAL, WINDOW, PADDING, SEGMENTS,
            )  # fmt: skip
            alpha = tl.exp2(tl.where(allowed, scores, float("-inf")) - row_log_sum[None, :])
            g_keys = gradient_of_keys(
                grad_relations + row * n * R, u, i, u_row, n, first_relation, rel_scale, R, P, I, GROUP, P_PAD
            )
            total = product(alpha.to(g_keys.dtype), g_keys, total, PRECISION, WIDEN)
    of_split = split.to(tl.int64) * batches + batch
    tl.store(
        dw + (of_split * m + j)[:, None] * (R * P) + columns[None, :],
        total.to(dw.dtype.element_ty),
        mask=(j[:, None] < m) & valid[None, :],
    )
