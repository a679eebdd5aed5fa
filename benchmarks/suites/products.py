"""Linear layers of the project's models by themselves, beside PyTorch's with the same weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.cases import OURS, Case, Request, SideSpec, Suite
from benchmarks.results import Row
from benchmarks.work import Draw, Work
from dual_attention.functional import products

TRAINED = (
    ("games", 4608, 128, 128),
    ("games, patches", 4608, 432, 128),
    ("CIFAR", 8320, 384, 384),
    ("CIFAR, grouped keys", 8320, 384, 96),
    ("mathematics", 20480, 128, 256),
    ("343M", 1024, 1024, 1024),
    ("343M, up", 1024, 1024, 4096),
    ("343M, down", 1024, 4096, 1024),
)
"""Models, rows of their batches (of the games without class tokens), and widths of inputs and outputs."""

DECODED = tuple((rows, 1024, width) for width in (1024, 4096, 50304) for rows in (1, 8))
"""Rows of one token, and widths in the 343M model."""

QUICK = 16
"""Divides sizes for a trial."""


def cases(request: Request) -> Iterator[Case]:
    """Batches that are trained on, and the few rows of a token, which only go forward."""
    for model, *shape in TRAINED:
        yield case(model, *shape, quick=request.quick)
    for shape in DECODED:
        yield case("decoding", *shape, quick=request.quick, step=False)


def case(model: str, rows: int, inputs: int, outputs: int, *, quick: bool, step: bool = True) -> Case:
    """``(rows, inputs)`` to ``(rows, outputs)``, without biases; the rows are its length."""
    if quick:
        rows, inputs, outputs = (max(size // QUICK, min(size, QUICK)) for size in (rows, inputs, outputs))
    kwargs = {"in_features": inputs, "out_features": outputs, "bias": False}
    drawn = {"input": Draw((rows, inputs))}
    return Case(
        suite="products",
        label=f"{model}, {inputs} to {outputs}",
        length=rows,
        sides=(SideSpec(OURS, Work("linear", kwargs, drawn)), SideSpec("torch", Work("torch_linear", kwargs, drawn))),
        quantities=("forward", "step") if step else ("forward",),
    )


def conclude(rows: Sequence[Row]) -> list[str]:
    """Which library multiplies here."""
    who = "oneDNN" if products.SLOW_PRODUCTS else "PyTorch's"
    if products.SLOW_ROWS:
        who += f", but for one to eight rows (processor {products.maker()})"
    return [f"products of linear layers, on a CPU in float32: {who}"]


SUITE = Suite("products", "linear layers beside PyTorch's", cases, conclude=conclude)
