"""Arguments that all kernels share, bundled. Imports no Triton.

Shapes: B batch, H heads, G key/value heads (H = G * rep), N receivers, M senders, D width of an attention query or key,
d_h width of a symbol, R relations of width p, K rows of a table of relative symbols.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Strided(NamedTuple):
    """A tensor in which the last axis of a row is contiguous, and the strides, in elements, of the axes before it."""

    start: Any
    batch: int
    row: int
    head: int = 0


class Operands(NamedTuple):
    """Tensors and numbers of a call, of which each kernel reads those that it needs.

    Attributes:
        q: ``(B, H, N, D)``; k: ``(B, G, M, D)``; u: ``(B, N, R, p)``; w: ``(B, M, R, p)``.
        s: symbols, ``(B or 1, G, M, d_h)``, or relative ones ``(K, G, d_h)``.
        padding: bytes ``(B, M)``, contiguous, or None.
        receivers, senders: their segments, ``(B or 1, N)`` and ``(B or 1, M)``, contiguous, or None.
        receivers_batch, senders_batch: strides of these.
        window: or zero; max_offset: P, at which offsets are clipped, or zero.
        log2_scale: of the scores, times log2(e): exponentials are powers of two.
        out_symbols, out_relations, log_sum: results of the forward pass, contiguous, ``(B, H, N, d_h)``,
            ``(B, H, N, R)`` and ``(B, H, N)``, the last in float32.
        attended: relation keys under the weights, times rel_scale, ``(B, H, N, R, p)``, contiguous, or None.
        grad_symbols, grad_relations: gradients of the first two results, contiguous.
        delta: as in :mod:`.backward`, ``(B, H, N)`` in float32, and after it its parts of each group of relations.
        grad_keys: G, gradients of the attended relation keys, ``(B, H, N, R, p)``; the kernel of the queries writes it.
    """

    q: Strided
    k: Strided
    u: Strided
    w: Strided
    s: Strided
    padding: Any
    receivers: Any
    senders: Any
    receivers_batch: int
    senders_batch: int
    n: int
    m: int
    heads: int
    window: int
    max_offset: int
    log2_scale: float
    scale: float
    rel_scale: float
    out_symbols: Any = None
    out_relations: Any = None
    log_sum: Any = None
    attended: Any = None
    grad_symbols: Any = None
    grad_relations: Any = None
    delta: Any = None
    grad_keys: Any = None


class Form(NamedTuple):
    """Constants that a kernel is compiled for; those whose name ends in PAD are rounded up to a power of two.

    Attributes:
        REP: query heads of a key/value head; D, DH, R, P: of the shapes, with DH = d_h and P = p.
        CAUSAL, WINDOW: order; HOLES: whether a window, padding or segments hide pairs, and not only order and the ends.
        RELATIVE: whether symbols are those of offsets.
        PRECISION: of products; WIDEN: whether they take float32 in place of bfloat16.
        I, J: receivers and senders (or offsets) in a tile; T: at least I + J - 1, the diagonals of a tile.
        GROUP: relations in a tile; GROUPS: of so many relations; H_PAD: heads in a tile, in :mod:`.pairs` alone.
    """

    REP: int
    D: int
    DH: int
    R: int
    P: int
    D_PAD: int
    DH_PAD: int
    P_PAD: int
    CAUSAL: bool
    WINDOW: bool
    HOLES: bool
    RELATIVE: bool
    PRECISION: str
    WIDEN: bool
    I: int = 0  # noqa: E741
    J: int = 0
    T: int = 0
    GROUP: int = 0
    GROUPS: int = 0
    H_PAD: int = 0
