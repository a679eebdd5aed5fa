"""Two layers of the paper's 343M language model beside a plain Transformer, over the length."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.cases import OURS, Case, Request, SideSpec, Suite
from benchmarks.needs import of_dense, of_published, of_reference
from benchmarks.suites.sizes import size
from benchmarks.work import Draw, Work

LAYERS = 2
LONGEST_TIMED = 256
"""Beyond this length the readable reference only checks results: it takes half a minute a step at n = 1024."""
LONGEST_REFERENCE = 1024
"""Beyond this length it takes too much memory, and the dense form checks results in its place."""


def cases(request: Request) -> Iterator[Case]:
    """For each number of relations and each length; batch 1."""
    for relations in size(request.quick).relations:
        for n in request.lengths:
            yield case(relations, n, quick=request.quick)


def case(relations: int, n: int, *, quick: bool) -> Case:
    """Causal layers with rotary embedding and symbolic attention."""
    sizes = size(quick)
    inputs = {"x": Draw((1, n, sizes.d_model))}
    layers = {"d_model": sizes.d_model, "n_layers": LAYERS}
    dual = {
        **layers,
        "rotary": n,
        "block": {**sizes.block(relations), "causal": True},
        "symbols": {"kind": "SymbolicAttention", **sizes.retriever()},
    }
    plain = {**layers, "rotary": n, "block": {**sizes.plain_block(), "causal": True}}
    if n <= LONGEST_REFERENCE:
        needs = of_reference(1, n, sizes.heads, sizes.width, relations, layers=LAYERS)
        work = Work("dual_layers", dual, inputs, impl="reference")
        check = SideSpec("reference", work, needs=needs, timed=n <= LONGEST_TIMED)
    else:
        needs = of_dense(1, n, sizes.heads, layers=LAYERS)
        check = SideSpec("dense", Work("dual_layers", dual, inputs, impl="dense"), needs=needs, timed=False)
    published = of_published(1, n, sizes.heads, relations, layers=LAYERS)
    return Case(
        suite="step",
        label=f"{LAYERS} layers, d={sizes.d_model}, R={relations}",
        length=n,
        sides=(
            SideSpec(OURS, Work("dual_layers", dual, inputs)),
            SideSpec("plain", Work("plain_layers", plain, inputs), function="plain"),
            SideSpec("published", Work("dual_layers", dual, inputs), place="published", needs=published),
            check,
            SideSpec(
                "llama",
                Work("llama_layers", sizes.llama(LAYERS, n), inputs),
                function="llama",
                package="transformers",
            ),
        ),
    )


SUITE = Suite("step", "layers of the 343M language model", cases, (256, 1024, 3072, 4096), (16, 32))
