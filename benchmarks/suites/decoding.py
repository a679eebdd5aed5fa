"""One token after a context that a cache holds, with a few layers of the paper's 343M language model."""

from collections.abc import Iterator, Sequence

from benchmarks.cases import BYTES, OURS, Case, Request, SideSpec, Suite
from benchmarks.results import Row, SideResult
from benchmarks.suites.generation import LAYERS, OF, SYMBOLS, language_model, llama_model
from benchmarks.suites.layers import LONGEST_REFERENCE, size
from benchmarks.work import Decoding, Work

BATCHES = (1, 8)
READING = "reading"
"""Side that does nothing but read as much as ours has to, in turn with the others: memory may be twice as fast at one
time of a run as at another, so that the best rate of the run says little of a token."""


def cases(request: Request) -> Iterator[Case]:
    """Every kind of symbols that language models have, in every batch and context."""
    for symbols in SYMBOLS:
        for batch in BATCHES:
            for context in request.lengths:
                yield case(symbols, batch, context, quick=request.quick)


def case(symbols: str, batch: int, context: int, *, quick: bool) -> Case:
    """With and without a compiler; with the first kind of symbols beside Llama, too.

    One pass over everything checks single examples.
    """
    sizes, layers = size(quick), 1 if quick else LAYERS
    relations = sizes.relations[0]
    held = batch * context * layers * 2 * sizes.d_model * BYTES
    weights = (sizes.vocabulary + 16 * layers * sizes.d_model) * sizes.d_model * BYTES  # about

    def work(of: Work, *, impl: str | None = None, compiled: bool = False, **how: bool) -> Work:
        decoding = Decoding(context, batch, **how)
        return Work(of.subject, of.kwargs, of.inputs, impl, decoding=decoding, compiled=compiled)

    dual, plain = (language_model(sizes, layers, context + 1, r, symbols) for r in (relations, None))
    rival = work(llama_model(sizes, layers, context + 1))
    sides = [
        SideSpec(OURS, work(dual), needs=held),
        SideSpec("plain", work(plain), function="plain", needs=held),
        SideSpec(READING, work(dual, only_read=True), function=READING, needs=2 * held + weights),
    ]
    if not quick or (symbols == SYMBOLS[0] and batch == 1):  # compiling takes longer than all the rest
        sides += [
            SideSpec("compiled", work(dual, compiled=True), needs=held),
            SideSpec("compiled plain", work(plain, compiled=True), function="plain", needs=held),
        ]
    if symbols == SYMBOLS[0]:  # it copies all that a layer holds
        sides.append(SideSpec("llama", rival, function="llama", needs=1.5 * held, package="transformers"))
    if quick or batch == 1:
        impl = "reference" if context < LONGEST_REFERENCE else None
        sides.append(SideSpec("one pass", work(dual, cached=False, impl=impl), timed=False))
    return Case(
        suite="decoding",
        label=f"{symbols}, R={relations}, batch {batch}, {'small' if quick else f'{layers} of {OF} layers'}",
        length=context,
        sides=sides,
        quantities=("decode",),
    )


def conclude(rows: Sequence[Row]) -> list[str]:
    """Times over their floors by bytes: at the best rate of the run, and at that of reading in turn with them."""
    lines = []
    for row in rows:
        over = {
            side.name: ratios(side, row) for side in row.sides if side.figure and side.floor_bytes and not side.refused
        }
        if OURS in over:
            first, *others = over.values()
            beside = "".join(f"; {name} {times}" for name, times in zip(list(over)[1:], others, strict=True))
            lines.append(f"{row.label}, n = {row.length}: {first} times its floor by bytes{beside}")
    return lines


def ratios(side: SideResult, row: Row) -> str:
    """Time over the floor, and in brackets over the time that reading takes for as many bytes."""
    assert side.figure and side.floor_bytes
    over = side.figure / side.floor_bytes
    for other in row.sides:
        if other.name == READING and other.figure and other.floor_bytes and other is not side:
            return f"{over:.2f} (of reading: {over * other.floor_bytes / other.figure:.2f})"
    return f"{over:.2f}"


SUITE = Suite("decoding", "one token after a long context", cases, (768, 8192), (16, 24), conclude)
