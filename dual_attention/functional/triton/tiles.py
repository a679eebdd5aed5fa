"""Parts that the kernels share: tiles of rows, of relations and of the mask.

Shapes: in a tile I receivers, J senders, C columns of relation keys (relations of a group times the padded p).
``x`` and ``form`` are the :class:`.Operands` and the :class:`.Form` of the kernel.
"""

import triton
import triton.language as tl

PLACES = ("offset", "symbol_offset")
"""Arguments that grow with every step of decoding: a kernel is not compiled anew for what divides them."""


@triton.jit
def product(a, b, total, form):
    """``total + a @ b`` in float32. The interpreter cannot multiply bfloat16: there (``WIDEN``) its values are widened,
    which changes nothing, since a tensor core multiplies exactly and sums in float32 too."""
    if form.WIDEN:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, total, input_precision=form.PRECISION)


@triton.jit
def at(tensor, batch, head):
    """Start of the rows of an example and a head in a :class:`.Strided` tensor."""
    return tensor.start + batch * tensor.batch + head * tensor.head


@triton.jit
def load_rows(base, rows, stride, n_rows, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """Rows of a matrix, ``(rows, PADDED)``; zero beyond its last row and column."""
    columns = tl.arange(0, PADDED)
    inside = rows[:, None] < n_rows
    if WIDTH != PADDED:  # left out otherwise, so that whole rows are known to be whole vectors
        inside = inside & (columns[None, :] < WIDTH)
    return tl.load(base + rows[:, None] * stride + columns[None, :], mask=inside, other=0.0)


@triton.jit
def store_rows(base, rows, stride, n_rows, tile, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """Counterpart of :func:`load_rows`."""
    columns = tl.arange(0, PADDED)
    inside = (rows[:, None] < n_rows) & (columns[None, :] < WIDTH)
    tl.store(base + rows[:, None] * stride + columns[None, :], tile.to(base.dtype.element_ty), mask=inside)


@triton.jit
def relation_columns(first, form):
    """Places in memory of the columns of a group of relations, and which exist: p is padded here, not there.

    Column ``c`` of a tile is feature ``c % P_PAD`` of relation ``first + c // P_PAD``.
    """
    c = tl.arange(0, form.GROUP * form.P_PAD)
    if form.P == form.P_PAD:
        columns = first * form.P + c
        valid = columns < form.R * form.P
    else:
        relation = first + c // form.P_PAD
        feature = c % form.P_PAD
        columns = relation * form.P + feature
        valid = (relation < form.R) & (feature < form.P)
    return columns, valid


@triton.jit
def load_relations(base, rows, stride, n_rows, columns, valid):
    """Relation queries or keys of some rows, ``(rows, C)``."""
    inside = (rows[:, None] < n_rows) & valid[None, :]
    return tl.load(base + rows[:, None] * stride + columns[None, :], mask=inside, other=0.0)


@triton.jit
def store_relations(base, rows, n_rows, columns, valid, tile, form):
    """Counterpart of :func:`load_relations` for a contiguous matrix, ``(n_rows, R p)``."""
    inside = (rows[:, None] < n_rows) & valid[None, :]
    places = base + rows[:, None] * (form.R * form.P) + columns[None, :]
    tl.store(places, tile.to(base.dtype.element_ty), mask=inside)


@triton.jit
def load_of_relations(base, row, i, first, x, form):
    """One number of each receiver and relation of a group, ``(I, GROUP)``, from ``(B, H, N, R)``, in float32."""
    relation = first + tl.arange(0, form.GROUP)
    inside = (i[:, None] < x.n) & (relation[None, :] < form.R)
    numbers = base + row * x.n * form.R + i[:, None] * form.R + relation[None, :]
    return tl.load(numbers, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def times_relations(tile, of_relations, form):
    """Multiply the columns ``(I, C)`` of each relation by its number ``(I, GROUP)``."""
    parts = tl.reshape(tile, (form.I, form.GROUP, form.P_PAD)) * of_relations[:, :, None]
    return tl.reshape(parts, (form.I, form.GROUP * form.P_PAD))


@triton.jit
def gradient_of_keys(x, batch, row, i, first, form):
    """Gradient of the attended relation keys, ``(I, C)``, in the dtype of the products; ``row`` is that of ``(B, H)``.

    Math: G_i = [rel_scale g^a_i,l u^l_i]_l
    """
    columns, valid = relation_columns(first, form)
    u = load_relations(at(x.u, batch, 0), i, x.u.row, x.n, columns, valid)
    of_relations = load_of_relations(x.grad_relations, row, i, first, x, form) * x.rel_scale
    return times_relations(u.to(tl.float32), of_relations, form).to(u.dtype)


@triton.jit
def tile_scores(rows, columns, x, form):
    """Scores of a tile, times log2(e): of queries and keys, or of keys and queries for the tile transposed."""
    nothing = tl.zeros((rows.shape[0], columns.shape[0]), tl.float32)
    return product(rows, tl.trans(columns), nothing, form) * x.log2_scale


@triton.jit
def masked_scores(scores, i, j, x, batch, offset, form):
    """Scores, minus infinity where nothing may be attended, for receivers ``(I, 1)`` and senders ``(1, J)``, or
    ``(1, I)`` and ``(J, 1)`` for the tile transposed."""
    return tl.where(may_attend(i, j, x, batch, offset, form), scores, float("-inf"))


@triton.jit
def masked_unless_whole(scores, i, j, first_i, first_j, x, batch, offset, form):
    """As :func:`masked_scores`; a tile in which every pair may be attended is left as it is."""
    if form.HOLES:
        scores = masked_scores(scores, i, j, x, batch, offset, form)
    else:
        whole = (first_i + form.I <= x.n) & (first_j + form.J <= x.m)
        if form.CAUSAL:
            whole = whole & (first_j + form.J - 1 <= first_i + offset)
        if not whole:
            scores = masked_scores(scores, i, j, x, batch, offset, form)
    return scores


@triton.jit
def whole_senders(first, x, offset, form):
    """End of the first tiles of senders, all of which every receiver from ``first`` on may attend; zero if the mask has
    holes."""
    end = first * 0
    if not form.HOLES:
        end = x.m // form.J * form.J
        if form.CAUSAL:
            end = tl.minimum(end, tl.maximum(first + offset + 1, 0) // form.J * form.J)
    return end


@triton.jit
def may_attend(i, j, x, batch, offset, form):
    """The mask of a tile, for receivers and senders as in :func:`masked_scores`."""
    allowed = (i < x.n) & (j >= 0) & (j < x.m)
    place = i + offset
    if form.CAUSAL:
        allowed = allowed & (j <= place)
    if form.WINDOW:
        allowed = allowed & (j - place < x.window) & (place - j < x.window)
    if x.padding is not None:
        allowed = allowed & (tl.load(x.padding + batch * x.m + j, mask=(j >= 0) & (j < x.m), other=0) != 0)
    if x.receivers is not None:
        of_receiver = tl.load(x.receivers + batch * x.receivers_batch + i, mask=i < x.n, other=0)
        of_sender = tl.load(x.senders + batch * x.senders_batch + j, mask=(j >= 0) & (j < x.m), other=0)
        allowed = allowed & (of_receiver == of_sender)
    return allowed


@triton.jit
def sender_range(first, x, batch, offset, reach, form):
    """Senders that some receiver in ``[first, first + I)`` may attend by order and segments; the start is a multiple of
    J. ``reach`` is the :func:`.segments.segment_reach` of the receivers."""
    begin = first * 0
    end = x.m
    if form.CAUSAL:
        end = tl.minimum(end, first + offset + form.I)
    return narrowed(begin, end, first, first + offset, x, batch, reach, form.WINDOW, form.I, form.J)


@triton.jit
def receiver_range(first, x, batch, offset, reach, form):
    """Receivers that may attend some sender in ``[first, first + J)``, as in :func:`sender_range`, with I and J, and
    receivers and senders, exchanged."""
    begin = first * 0
    if form.CAUSAL:
        begin = tl.maximum(begin, first - offset) // form.I * form.I
    return narrowed(begin, x.n, first, first - offset, x, batch, reach, form.WINDOW, form.J, form.I)


@triton.jit
def narrowed(begin, end, first, place, x, batch, reach, WINDOW: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr):
    """A range narrowed by the window around ROWS rows, whose places on the other side begin at ``place``, and to where
    their segments lie; ``first`` is a multiple of ROWS."""
    if WINDOW:
        begin = tl.maximum(begin, tl.maximum(place - x.window + 1, 0) // STEP * STEP)
        end = tl.minimum(end, place + ROWS + x.window - 1)
    if reach.start is not None:
        block = at(reach, batch, 0) + first // ROWS * 2
        begin = tl.maximum(begin, tl.load(block) // STEP * STEP)
        end = tl.minimum(end, tl.load(block + 1))
    return begin, end


@triton.jit
def load_numbers(base, row, i, x):
    """One number of each receiver, ``(I,)``, from ``(B, H, N)``."""
    return tl.load(base + row * x.n + i, mask=i < x.n, other=0.0)
