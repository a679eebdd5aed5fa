"""Peak memory of one relational layer, forward and backward, over the length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.cases import OURS, Case, Request, SideSpec, Suite
from benchmarks.needs import of_dense, of_published, of_reference
from benchmarks.results import Row
from benchmarks.suites.sizes import size
from benchmarks.summary import growth, growth_exponent
from benchmarks.work import Draw, Work

LONGEST_REFERENCE = 1024
"""Beyond this length the dense form checks results in place of the readable reference, as in the suite ``step``."""


def cases(request: Request) -> Iterator[Case]:
    """The relational heads of a 343M layer, beside as many heads of plain attention; causal, batch 1."""
    for relations in size(request.quick).relations:
        for n in request.lengths:
            yield case(relations, n, quick=request.quick)


def case(relations: int, n: int, *, quick: bool) -> Case:
    """Symbols are an input, whose gradient is needed as well."""
    sizes = size(quick)
    heads = {"d_model": sizes.d_model, "n_heads": sizes.heads, "total_n_heads": 2 * sizes.heads}
    dual = {"causal": True, **heads, **sizes.relational(relations)}
    plain = {"causal": True, **heads, "n_kv_heads": sizes.kv}
    x = Draw((1, n, sizes.d_model))
    inputs = {"x": x, "symbols": x}
    if n <= LONGEST_REFERENCE:
        needs = of_reference(1, n, sizes.heads, sizes.width, relations)
        check = SideSpec("reference", Work("relational_layer", dual, inputs, impl="reference"), needs=needs)
    else:
        needs = of_dense(1, n, sizes.heads)
        check = SideSpec("dense", Work("relational_layer", dual, inputs, impl="dense"), needs=needs)
    published = of_published(1, n, sizes.heads, relations)
    return Case(
        suite="memory",
        label=f"one layer, d={sizes.d_model}, {sizes.heads} heads, R={relations}",
        length=n,
        quantities=("step",),
        memory=True,
        sides=(
            SideSpec(OURS, Work("relational_layer", dual, inputs)),
            SideSpec("plain", Work("plain_layer", plain, {"x": x}), function="plain"),
            SideSpec("published", Work("relational_layer", dual, inputs), place="published", needs=published),
            check,
        ),
    )


def conclude(rows: Sequence[Row]) -> list[str]:
    """How each side grows with the length."""
    points: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row in rows:
        for side in row.sides:
            if side.allocated:
                points.setdefault((row.label, side.name), []).append((row.length, side.allocated))
    lines = []
    for (label, name), found in points.items():
        if len({length for length, _ in found}) > 1:
            exponent = growth_exponent(*zip(*found, strict=True))
            lengths = ", ".join(str(length) for length, _ in found)
            lines.append(f"{label}: memory of {name} grows as n^{exponent:.2f} ({growth(exponent)}), n = {lengths}")
    return lines


SUITE = Suite("memory", "peak memory of one relational layer", cases, (1024, 2048, 4096, 8192), (32, 64), conclude)
