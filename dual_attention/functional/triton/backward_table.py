"""Backward kernel of the table of relative symbols.

A program owns a block of offsets, and for each block of receivers computes the weights on the band of senders that
those offsets reach. The two ends of the table, which clipping shares among many senders, are left to the caller, who
has their weights (``tails``) from the kernel of the queries.

Math: dT_t = sum_i beta_it g^s_i,  beta_it = alpha_i,i+t
"""

import triton
import triton.language as tl

from .tiles import PLACES, load_rows, may_attend, product, store_rows


@triton.jit(do_not_specialize=PLACES)
def table_kernel(
    q,
    k,
    padding,
    receiver_segments,
    sender_segments,
    reach,
    log_sum,
    grad_symbols,
    dtable,  # (B * REP, G, K, d_h), float32
    q_batch,
    q_head,
    q_row,
    k_batch,
    k_head,
    k_row,
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
    REP: tl.constexpr,
    D: tl.constexpr,
    DH: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    PADDING: tl.constexpr,
    SEGMENTS: tl.constexpr,
    I: tl.constexpr,  # noqa: E741
    O: tl.constexpr,  # offsets in a block  # noqa: E741
    T: tl.constexpr,  # senders in their band
    D_PAD: tl.constexpr,
    DH_PAD: tl.constexpr,
    PRECISION: tl.constexpr,
    WIDEN: tl.constexpr,
):
    first_row = tl.program_id(0) * O
    group_of_heads = tl.program_id(1)
    batch = (tl.program_id(2) // REP).to(tl.int64)
    head = group_of_heads * REP + tl.program_id(2) % REP
    row = batch * heads + head
    q += batch * q_batch + head * q_head
    k += batch * k_batch + group_of_heads * k_head
    padding += batch * m
    receiver_segments += batch * rseg_batch
    sender_segments += batch * sseg_batch
    reach += batch * reach_batch

    first_offset = first_row - max_offset
    total = tl.zeros((O, DH_PAD), tl.float32)
    # Receivers that reach a sender: 0 <= i + ahead < m for some offset of the block.
    ahead = first_offset + symbol_offset
    begin = tl.maximum(0, -(ahead + O - 1)) // I * I
    end = tl.minimum(n, m - ahead)
    if CAUSAL:
        end = tl.where(ahead > offset, 0, end)
    if WINDOW:
        end = tl.where((ahead - offset >= window) | (ahead + O - 1 - offset <= -window), 0, end)
    for first_i in range(begin, end, I):
        some = True
        if SEGMENTS:
            block = reach + first_i // I * 2
            some = (first_i + ahead < tl.load(block + 1)) & (first_i + ahead + I + O - 1 > tl.load(block))
        if some:
            i = first_i + tl.arange(0, I)
            j = first_i + ahead + tl.arange(0, T)
            q_tile = load_rows(q, i, q_row, n, D, D_PAD)
            feature = tl.arange(0, D_PAD)
            inside = (j[:, None] >= 0) & (j[:, None] < m) & (feature[None, :] < D)
            k_tile = tl.load(k + j[:, None] * k_row + feature[None, :], mask=inside, other=0.0)
            g_s = load_rows(grad_symbols + row * n * DH, i, DH, n, DH, DH_PAD)
            row_log_sum = tl.load(log_sum + row * n + i, mask=i < n, other=0.0)
            scores = product(q_tile, tl.trans(k_tile), tl.zeros((I, T), tl.float32), PRECISION, WIDEN) * log2_scale
            allowed = may_attend(
                i[:, None], j[None, :], n, m, padding, receiver_segments, sender_segments, offset, window,
                CAUSAL, WINDOW, PADDING, SEGMENTS,
            )  # fmt: skip
            alpha = tl.exp2(tl.where(allowed, scores, float("-inf")) - row_log_sum[:, None])
            beta = tl.gather(alpha, tl.arange(0, I)[:, None] + tl.arange(0, O)[None, :], 1)
            total = product(tl.trans(beta).to(g_s.dtype), g_s, total, PRECISION, WIDEN)
    t = first_row + tl.arange(0, O)
    interior = (t > 0) & (t < 2 * max_offset)
    rows_of_table = 2 * max_offset + 1
    start = (tl.program_id(2).to(tl.int64) * (heads // REP) + group_of_heads) * rows_of_table
    store_rows(dtable + start * DH, t, DH, rows_of_table, tl.where(interior[:, None], total, 0.0), DH, DH_PAD)
