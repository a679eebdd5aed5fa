"""Lengths at which implementations of relational attention cross: the table behind ``impl="auto"``.

Only the operation, on projected tensors. The rule is in ``dual_attention.functional.relational``. It looks at sizes in
which the forms differ: pairs, heads and the width p of a relation's query.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.cases import OURS, Case, Request, SideSpec, Suite, dense_bytes, reference_bytes
from benchmarks.results import Row
from benchmarks.work import Draw, Work


@dataclass(frozen=True)
class Shape:
    """Of the operation, beside the length; relations are together as wide as the heads."""

    batch: int
    heads: int
    kv: int
    width: int
    relations: int
    causal: bool = True
    relative: bool = False

    @property
    def label(self) -> str:
        kind = ("causal" if self.causal else "full") + (", relative symbols" if self.relative else "")
        relations = f"R={self.relations}, p={self.p}"
        return f"B={self.batch}, H={self.heads}, G={self.kv}, d_h={self.width}, {relations}, {kind}"

    @property
    def p(self) -> int:
        """Width of one relation's query and key."""
        return self.heads * self.width // self.relations


SHAPES = (
    Shape(1, 8, 4, 64, 8),
    Shape(1, 8, 4, 64, 64),
    Shape(8, 8, 4, 64, 64),
    Shape(1, 8, 4, 64, 8, causal=False),
    Shape(64, 6, 3, 32, 6, causal=False),
    Shape(64, 4, 4, 16, 4, causal=False),
    Shape(64, 2, 2, 64, 2, causal=False),
    Shape(1, 8, 8, 64, 8, causal=False, relative=True),
    Shape(64, 4, 4, 16, 4, causal=False, relative=True),
)
QUICK_SHAPES = (Shape(2, 2, 1, 8, 4), Shape(2, 2, 2, 8, 2, causal=False, relative=True))
MOST_PAIRS = 2**24
"""Of all examples together: batches are not run at lengths of which a few examples fill the machine."""


def cases(request: Request) -> Iterator[Case]:
    """Every shape at every length."""
    for shape in QUICK_SHAPES if request.quick else SHAPES:
        for n in request.lengths:
            if shape.batch * n * n <= MOST_PAIRS or shape.batch == 1:
                yield case(shape, n, request.device)


def case(s: Shape, n: int, device: str) -> Case:
    """The library's own choice beside each implementation."""
    inputs = {
        "q": Draw((s.batch, s.heads, n, s.width)),
        "k": Draw((s.batch, s.kv, n, s.width)),
        "u": Draw((s.batch, n, s.relations, s.p)),
        "w": Draw((s.batch, n, s.relations, s.p)),
        "symbols": Draw((2 * n + 1, s.kv, s.width) if s.relative else (s.batch, s.kv, n, s.width)),
        "w_r": Draw((s.heads, s.width, s.relations)),
    }
    kwargs = {
        "causal": s.causal,
        "scale": 1 / math.sqrt(s.width),
        "rel_scale": 1 / math.sqrt(s.p),
        "relative": s.relative,
    }
    table = s.kv * s.width if s.relative else 0
    needs = {
        "reference": reference_bytes(s.batch, n, s.heads, s.width, s.relations, symbols=table),
        "dense": dense_bytes(s.batch, n, s.heads),
    }
    impls = ["reference", "dense", "linear"]
    impls += [] if s.relative else ["sdpa"]
    impls += ["triton"] if device == "cuda" else []
    sides = [SideSpec(OURS, Work("operation", kwargs, inputs))]
    for impl in impls:
        sides.append(SideSpec(impl, Work("operation", kwargs, inputs, impl=impl), needs=needs.get(impl, 0.0)))
    return Case("crossing", s.label, n, sides)


def conclude(rows: Sequence[Row]) -> list[str]:
    """Length from which linear is faster than dense, and the worst cost of the library's choice."""
    lines = []
    for label, quantity in dict.fromkeys((row.label, row.quantity) for row in rows):
        mine = [row for row in rows if (row.label, row.quantity) == (label, quantity)]
        lines.append(f"{label}, {quantity}: {crossing(mine)}; {regret(mine)}")
    return lines


def figures(row: Row) -> dict[str, float]:
    """Median times of the sides whose results are right."""
    return {side.name: side.figure for side in row.sides if side.figure is not None and side.ratio is not None}


def crossing(rows: Sequence[Row]) -> str:
    """The smallest length from which linear stays ahead of dense."""
    since = None
    both = [(row.length, figures(row)) for row in rows]
    both = sorted((n, found) for n, found in both if {"dense", "linear"} <= found.keys())
    if not both:
        return "linear and dense were not both measured"
    for n, found in both:
        if found["linear"] >= found["dense"]:
            since = None
        elif since is None:
            since = n
    return "linear is nowhere ahead of dense" if since is None else f"linear is ahead of dense from n = {since}"


def regret(rows: Sequence[Row]) -> str:
    """The most that the library's choice loses to the best implementation."""
    worst = (1.0, 0, OURS)
    for row in rows:
        found = figures(row)
        if OURS in found:
            best = min(found, key=lambda name: found[name])
            if best != OURS:
                worst = max(worst, (found[OURS] / found[best], row.length, best))
    if worst[1] == 0:
        return "the library's choice is the fastest everywhere"
    return f"the library's choice takes at worst {worst[0]:.2f}x the time of {worst[2]} (n = {worst[1]})"


SUITE = Suite(
    "crossing", "implementations of the operation", cases, (32, 64, 128, 256, 512, 1024, 2048), (8, 16), conclude
)
