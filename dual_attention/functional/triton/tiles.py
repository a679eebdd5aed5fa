"""Parts that the kernels share: tiles of rows, of relations and of the mask.

Shapes: in a tile I receivers, J senders, C columns of relation keys (relations of a group times the padded p).
"""

import triton
import triton.language as tl

PLACES = ("offset", "symbol_offset")
"""Arguments that grow with every step of decoding: a kernel is not compiled anew for what divides them."""


@triton.jit
def product(a, b, total, PRECISION: tl.constexpr, WIDEN: tl.constexpr):
    """``total + a @ b`` in float32. The interpreter cannot multiply bfloat16: there (``WIDEN``) its values are widened,
    which changes nothing, since a tensor core multiplies exactly and sums in float32 too."""
    if WIDEN:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, total, input_precision=PRECISION)


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
def relation_columns(first, R: tl.constexpr, P: tl.constexpr, GROUP: tl.constexpr, P_PAD: tl.constexpr):
    """Places in memory of the columns of a group of relations, and which exist: p is padded here, not there.

    Column ``c`` of a tile is feature ``c % P_PAD`` of relation ``first + c // P_PAD``.
    """
    c = tl.arange(0, GROUP * P_PAD)
    if P == P_PAD:
        columns = first * P + c
        valid = columns < R * P
    else:
        relation = first + c // P_PAD
        feature = c % P_PAD
        columns = relation * P + feature
        valid = (relation < R) & (feature < P)
    return columns, valid


@triton.jit
def load_relations(base, rows, stride, n_rows, columns, valid):
    """Relation queries or keys of some rows, ``(rows, C)``."""
    inside = (rows[:, None] < n_rows) & valid[None, :]
    return tl.load(base + rows[:, None] * stride + columns[None, :], mask=inside, other=0.0)


@triton.jit
def load_of_relations(base, rows, n_rows, first, R: tl.constexpr, GROUP: tl.constexpr):
    """One number of each row and relation of a group, ``(rows, GROUP)``, from a matrix ``(n_rows, R)``, in float32."""
    relation = first + tl.arange(0, GROUP)
    inside = (rows[:, None] < n_rows) & (relation[None, :] < R)
    return tl.load(base + rows[:, None] * R + relation[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def times_relations(tile, of_relations, ROWS: tl.constexpr, GROUP: tl.constexpr, P_PAD: tl.constexpr):
    """Multiply the columns ``(ROWS, C)`` of each relation by its number ``(ROWS, GROUP)``."""
    parts = tl.reshape(tile, (ROWS, GROUP, P_PAD)) * of_relations[:, :, None]
    return tl.reshape(parts, (ROWS, GROUP * P_PAD))


@triton.jit
def gradient_of_keys(
    grad_base,
    u_base,
    rows,
    u_stride,
    n_rows,
    first,
    rel_scale,
    R: tl.constexpr,
    P: tl.constexpr,
    ROWS: tl.constexpr,
    GROUP: tl.constexpr,
    P_PAD: tl.constexpr,
):
    """Gradient of the attended relation keys, ``(ROWS, C)``, in the dtype of the products.

    Math: G_i = [rel_scale g^a_i,l u^l_i]_l
    """
    columns, valid = relation_columns(first, R, P, GROUP, P_PAD)
    u = load_relations(u_base, rows, u_stride, n_rows, columns, valid)
    of_relations = load_of_relations(grad_base, rows, n_rows, first, R, GROUP) * rel_scale
    return times_relations(u.to(tl.float32), of_relations, ROWS, GROUP, P_PAD).to(u_base.dtype.element_ty)


@triton.jit
def may_attend(
    i,
    j,
    n,
    m,
    padding,
    receiver_segments,
    sender_segments,
    offset,
    window,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    PADDING: tl.constexpr,
    SEGMENTS: tl.constexpr,
):
    """The mask of a tile, for receivers ``(I, 1)`` and senders ``(1, J)``, or ``(1, I)`` and ``(J, 1)``."""
    allowed = (i < n) & (j >= 0) & (j < m)
    place = i + offset
    if CAUSAL:
        allowed = allowed & (j <= place)
    if WINDOW:
        allowed = allowed & (j - place < window) & (place - j < window)
    if PADDING:
        allowed = allowed & (tl.load(padding + j, mask=(j >= 0) & (j < m), other=0) != 0)
    if SEGMENTS:
        of_receiver = tl.load(receiver_segments + i, mask=i < n, other=0)
        of_sender = tl.load(sender_segments + j, mask=(j >= 0) & (j < m), other=0)
        allowed = allowed & (of_receiver == of_sender)
    return allowed


@triton.jit
def sender_range(
    first,
    n,
    m,
    offset,
    window,
    reach,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    SEGMENTS: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
):
    """Senders that some receiver in ``[first, first + ROWS)`` may attend by order and segments; the start is a multiple
    of STEP. ``reach`` points to the :func:`.segments.segment_reach` of the receivers."""
    begin = first * 0
    end = m
    if CAUSAL:
        end = tl.minimum(end, first + offset + ROWS)
    if WINDOW:
        begin = tl.maximum(begin, first + offset - window + 1) // STEP * STEP
        end = tl.minimum(end, first + offset + ROWS + window - 1)
    if SEGMENTS:
        begin, end = within_reach(begin, end, reach, first, ROWS, STEP)
    return begin, end


@triton.jit
def receiver_range(
    first,
    n,
    m,
    offset,
    window,
    reach,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    SEGMENTS: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
):
    """Receivers that may attend some sender in ``[first, first + ROWS)`` by order and segments; the start is a multiple
    of STEP. ``reach`` points to the :func:`.segments.segment_reach` of the senders."""
    begin = first * 0
    end = n
    if CAUSAL:
        begin = tl.maximum(begin, first - offset) // STEP * STEP
    if WINDOW:
        begin = tl.maximum(begin, tl.maximum(first - offset - window + 1, 0) // STEP * STEP)
        end = tl.minimum(end, first - offset + ROWS + window - 1)
    if SEGMENTS:
        begin, end = within_reach(begin, end, reach, first, ROWS, STEP)
    return begin, end


@triton.jit
def within_reach(begin, end, reach, first, ROWS: tl.constexpr, STEP: tl.constexpr):
    """A range narrowed to where the segments of rows ``[first, first + ROWS)`` lie; ``first`` is a multiple of ROWS."""
    block = reach + first // ROWS * 2
    return tl.maximum(begin, tl.load(block) // STEP * STEP), tl.minimum(end, tl.load(block + 1))
