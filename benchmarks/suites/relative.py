"""One layer with position-relative symbols, over the length."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.cases import OURS, Case, Request, SideSpec, Suite
from benchmarks.needs import of_published, of_reference
from benchmarks.work import Draw, Work


def cases(request: Request) -> Iterator[Case]:
    """Eight heads and relations, width 512, every offset a symbol of its own; no mask, batch 1."""
    d_model, heads = (32, 2) if request.quick else (512, 8)
    for n in request.lengths:
        inputs = {"x": Draw((1, n, d_model))}
        heads_of_both = {"causal": False, "d_model": d_model, "n_heads": heads}
        dual = {
            **heads_of_both,
            "n_relations": heads,
            "use_relative_positional_symbols": True,
            "symbols": {"kind": "PositionRelativeSymbolRetriever", "symbol_dim": d_model, "max_rel_pos": n},
        }
        work = Work("relational_layer", dual, inputs)
        published = of_published(1, n, heads, heads, symbols=d_model)
        readable = of_reference(1, n, heads, d_model // heads, heads, symbols=d_model)
        yield Case(
            suite="relative",
            label=f"one layer, d={d_model}, position-relative symbols",
            length=n,
            sides=(
                SideSpec(OURS, work),
                SideSpec("published", work, place="published", needs=published),
                SideSpec("reference", Work("relational_layer", dual, inputs, impl="reference"), needs=readable),
                SideSpec("plain", Work("plain_layer", heads_of_both, inputs), function="plain"),
            ),
        )


SUITE = Suite("relative", "position-relative symbols", cases, (256, 512, 1024), (16, 32))
