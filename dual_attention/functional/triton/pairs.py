"""Kernels of relations that are formed once for all heads, for few relations.

A program owns a block of receivers, or of senders, of all heads and relations. A tile of relations, ``(R, I, J)``, is
multiplied once and serves every head, where the other kernels multiply the weights of each head by R p columns of
relation keys. The sums over senders are small products, one for each receiver: heads by senders times senders by
relations. With H = R = 8 and widths of 64 a pair costs 1,152 multiplications in the forward pass, and 4,608 there.
Symbols are attended by the library, whose gradients of queries and keys are added to those from here.

Math: A^h_i,l = sum_j alpha^h_ij r^l_ij,   r^l_ij = rel_scale <u^l_i, w^l_j>,
      dr^l_ij = sum_h g^h_i,l alpha^h_ij,   delta^h_i = sum_l g^h_i,l A^h_i,l,
      dS^h_ij = alpha^h_ij (sum_l g^h_i,l r^l_ij - delta^h_i)

Shapes: as in :mod:`.operands`; H and R are padded, R to GROUP.
"""

# pyright: reportArgumentType=false

import triton
import triton.language as tl

from .tiles import PLACES, masked_unless_whole, product, receiver_range, sender_range

DEPTH = tl.constexpr(16)
"""Least depth of a product."""


@triton.jit
def places_in(start, matrix, matrices, rows, row_stride, n_rows, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """Places of rows of several matrices, ``(matrices, rows, PADDED)``, and which exist; ``matrix``: their starts."""
    column = tl.arange(0, PADDED)
    inside = (rows[None, :, None] < n_rows) & (column[None, None, :] < WIDTH)
    inside = inside & (tl.arange(0, matrix.shape[0])[:, None, None] < matrices)
    return start + matrix[:, None, None] + rows[None, :, None] * row_stride + column[None, None, :], inside


@triton.jit
def load_side(attended, related, batch, rows, n_rows, x, form, REP: tl.constexpr):
    """Queries or keys of all heads, ``(H, rows, D)``, and of all relations, ``(R, rows, p)``."""
    head = tl.arange(0, form.H_PAD) // REP * attended.head
    start = attended.start + batch * attended.batch
    places, inside = places_in(start, head, x.heads, rows, attended.row, n_rows, form.D, form.D_PAD)
    of_heads = tl.load(places, mask=inside, other=0.0)
    relation = tl.arange(0, form.GROUP) * form.P
    start = related.start + batch * related.batch
    places, inside = places_in(start, relation, form.R, rows, related.row, n_rows, form.P, form.P_PAD)
    return of_heads, tl.load(places, mask=inside, other=0.0)


@triton.jit
def store_side(attended, related, batch, rows, n_rows, of_heads, of_relations, x, form):
    """Gradients of both, as in :func:`load_side`, into contiguous ``(B, H, n_rows, D)`` and ``(B, n_rows, R, p)``."""
    head = tl.arange(0, form.H_PAD) * n_rows * form.D
    start = attended + batch * x.heads * n_rows * form.D
    places, inside = places_in(start, head, x.heads, rows, form.D, n_rows, form.D, form.D_PAD)
    tl.store(places, (of_heads * x.scale).to(attended.dtype.element_ty), mask=inside)
    width = form.R * form.P
    start = related + batch * n_rows * width
    places, inside = places_in(
        start, tl.arange(0, form.GROUP) * form.P, form.R, rows, width, n_rows, form.P, form.P_PAD
    )
    tl.store(places, (of_relations * x.rel_scale).to(related.dtype.element_ty), mask=inside)


@triton.jit
def places_of_heads(start, batch, i, x, form):
    """Places of one number of each head and receiver, ``(H, I)``, in ``(B, H, N)``, and which exist."""
    head = tl.arange(0, form.H_PAD)[:, None]
    return start + (batch * x.heads + head) * x.n + i[None, :], (head < x.heads) & (i[None, :] < x.n)


@triton.jit
def places_of_relations(start, batch, i, x, form):
    """Places of one number of each receiver, head and relation, ``(I, H, R)``, in ``(B, H, N, R)``, and which exist."""
    head, relation = tl.arange(0, form.H_PAD)[None, :, None], tl.arange(0, form.GROUP)[None, None, :]
    inside = (i[:, None, None] < x.n) & (head < x.heads) & (relation < form.R)
    return start + ((batch * x.heads + head) * x.n + i[:, None, None]) * form.R + relation, inside


@triton.jit
def products_of(receivers, senders, factor, form):
    """Inner products of receivers and senders in each matrix, ``(matrices, I, J)``, times a factor."""
    nothing = tl.zeros((receivers.shape[0], receivers.shape[1], senders.shape[1]), tl.float32)
    return product(receivers, tl.permute(senders, (0, 2, 1)), nothing, form) * factor


@triton.jit
def masked_pair_scores(q, k, i, j, first_i, first_j, x, batch, offset, form):
    """Scores of all heads, ``(H, I, J)``, masked."""
    scores = products_of(q, k, x.log2_scale, form)
    return masked_unless_whole(scores, i[None, :, None], j[None, None, :], first_i, first_j, x, batch, offset, form)


@triton.jit
def sum_over_middle(a, b, form):
    """``(I, K, A)`` and ``(I, K, B)`` to ``(I, A, B)``; K is filled up with zeros to what a product needs."""
    for _ in tl.static_range(0, 4):
        if a.shape[1] < DEPTH:
            a, b = twice_as_deep(a), twice_as_deep(b)
    nothing = tl.zeros((a.shape[0], a.shape[2], b.shape[2]), tl.float32)
    return product(tl.permute(a, (0, 2, 1)), b, nothing, form)


@triton.jit
def twice_as_deep(a):
    """Zeros after the middle axis."""
    both = tl.permute(tl.join(a, tl.zeros((a.shape[0], a.shape[1], a.shape[2]), a.dtype)), (0, 3, 1, 2))
    return tl.reshape(both, (a.shape[0], 2 * a.shape[1], a.shape[2]))


@triton.jit(do_not_specialize=PLACES)
def pairs_kernel(x, offset, reach, form):
    """A, and the log-sum-exp of the scores of each row."""
    first_i = (tl.num_programs(0) - 1 - tl.program_id(0)) * form.I
    batch = tl.program_id(1).to(tl.int64)
    i = first_i + tl.arange(0, form.I)
    q, u = load_side(x.q, x.u, batch, i, x.n, x, form, 1)
    top = tl.full((form.H_PAD, form.I), float("-inf"), tl.float32)
    total = tl.zeros((form.H_PAD, form.I), tl.float32)
    attended = tl.zeros((form.I, form.H_PAD, form.GROUP), tl.float32)
    begin, end = sender_range(first_i, x, batch, offset, reach, form)
    for first_j in range(begin, end, form.J):
        j = first_j + tl.arange(0, form.J)
        k, w = load_side(x.k, x.w, batch, j, x.m, x, form, form.REP)
        scores = masked_pair_scores(q, k, i, j, first_i, first_j, x, batch, offset, form)
        new_top = tl.maximum(top, tl.max(scores, 2))
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)  # a row without a sender yet keeps weights of zero
        weights = tl.exp2(scores - shift[:, :, None])
        shrink = tl.exp2(top - shift)
        total = total * shrink + tl.sum(weights, 2)
        top = new_top
        relations = products_of(u, w, x.rel_scale, form).to(w.dtype)
        attended = attended * tl.trans(shrink)[:, :, None]
        by_receiver = tl.permute(weights.to(w.dtype), (1, 0, 2))
        attended = product(by_receiver, tl.permute(relations, (1, 2, 0)), attended, form)
    some = total > 0.0
    total = tl.where(some, total, 1.0)
    places, inside = places_of_relations(x.out_relations, batch, i, x, form)
    attended = attended / tl.trans(total)[:, :, None]
    tl.store(places, attended.to(x.out_relations.dtype.element_ty), mask=inside)
    places, inside = places_of_heads(x.log_sum, batch, i, x, form)
    tl.store(places, tl.where(some, top + tl.log2(total), 0.0), mask=inside)


@triton.jit
def gradients_of_pairs(q, u, k, w, scores, log_sum, delta, grads, x, form):
    """dS, ``(H, I, J)``, and dr, ``(R, I, J)``, in the type of products; ``grads``: g, ``(I, H, R)``."""
    weights = tl.exp2(scores - log_sum[:, :, None])
    relations = tl.permute(products_of(u, w, x.rel_scale, form).to(w.dtype), (1, 0, 2))
    dweights = sum_over_middle(tl.permute(grads, (0, 2, 1)), relations, form)
    dscores = weights * (tl.permute(dweights, (1, 0, 2)) - delta[:, :, None])
    drelations = sum_over_middle(grads, tl.permute(weights.to(w.dtype), (1, 0, 2)), form)
    return dscores.to(w.dtype), tl.permute(drelations.to(w.dtype), (1, 0, 2))


@triton.jit(do_not_specialize=PLACES)
def receivers_kernel(x, offset, reach, dq, du, form):
    """dq, du and delta."""
    first_i = (tl.num_programs(0) - 1 - tl.program_id(0)) * form.I
    batch = tl.program_id(1).to(tl.int64)
    i = first_i + tl.arange(0, form.I)
    q, u = load_side(x.q, x.u, batch, i, x.n, x, form, 1)
    places, inside = places_of_relations(x.grad_relations, batch, i, x, form)
    grads = tl.load(places, mask=inside, other=0.0)
    places, inside = places_of_relations(x.out_relations, batch, i, x, form)
    attended = tl.load(places, mask=inside, other=0.0)
    delta = tl.trans(tl.sum(grads.to(tl.float32) * attended.to(tl.float32), 2))
    places, inside = places_of_heads(x.delta, batch, i, x, form)
    tl.store(places, delta, mask=inside)
    places, inside = places_of_heads(x.log_sum, batch, i, x, form)
    log_sum = tl.load(places, mask=inside, other=0.0)
    total_q = tl.zeros((form.H_PAD, form.I, form.D_PAD), tl.float32)
    total_u = tl.zeros((form.GROUP, form.I, form.P_PAD), tl.float32)
    begin, end = sender_range(first_i, x, batch, offset, reach, form)
    for first_j in range(begin, end, form.J):
        j = first_j + tl.arange(0, form.J)
        k, w = load_side(x.k, x.w, batch, j, x.m, x, form, form.REP)
        scores = masked_pair_scores(q, k, i, j, first_i, first_j, x, batch, offset, form)
        dscores, drelations = gradients_of_pairs(q, u, k, w, scores, log_sum, delta, grads, x, form)
        total_q = product(dscores, k, total_q, form)
        total_u = product(drelations, w, total_u, form)
    store_side(dq, du, batch, i, x.n, total_q, total_u, x, form)


@triton.jit(do_not_specialize=PLACES)
def senders_kernel(x, offset, reach, dk, dw, form):
    """dk of each head, and dw."""
    first_j = tl.program_id(0) * form.J
    batch = tl.program_id(1).to(tl.int64)
    j = first_j + tl.arange(0, form.J)
    k, w = load_side(x.k, x.w, batch, j, x.m, x, form, form.REP)
    total_k = tl.zeros((form.H_PAD, form.J, form.D_PAD), tl.float32)
    total_w = tl.zeros((form.GROUP, form.J, form.P_PAD), tl.float32)
    begin, end = receiver_range(first_j, x, batch, offset, reach, form)
    for first_i in range(begin, end, form.I):
        i = first_i + tl.arange(0, form.I)
        q, u = load_side(x.q, x.u, batch, i, x.n, x, form, 1)
        places, inside = places_of_heads(x.log_sum, batch, i, x, form)
        log_sum = tl.load(places, mask=inside, other=0.0)
        places, inside = places_of_heads(x.delta, batch, i, x, form)
        delta = tl.load(places, mask=inside, other=0.0)
        places, inside = places_of_relations(x.grad_relations, batch, i, x, form)
        grads = tl.load(places, mask=inside, other=0.0)
        scores = masked_pair_scores(q, k, i, j, first_i, first_j, x, batch, offset, form)
        dscores, drelations = gradients_of_pairs(q, u, k, w, scores, log_sum, delta, grads, x, form)
        total_k = product(tl.permute(dscores, (0, 2, 1)), q, total_k, form)
        total_w = product(tl.permute(drelations, (0, 2, 1)), u, total_w, form)
    store_side(dk, dw, batch, j, x.m, total_k, total_w, x, form)
