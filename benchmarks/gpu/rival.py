"""An honest rival: the plain language model by the fastest of the library's kernels, beside ours.

A step is forward and backward of the loss, which is fused with the output layer in both models; no optimiser. It is
launched from Python, or captured in a CUDA graph and replayed, which shows what the device takes; compiled, as one
graph of the compiler, or something is wrong. Model FLOPs are the least that ``dat estimate`` counts: no masked pair,
nothing twice.
"""

import functools
import statistics
from collections.abc import Mapping

import torch

from benchmarks.floors import multiply_adds
from benchmarks.gpu.decode import built
from benchmarks.gpu.observing import described, kernels_in, library_attention, timed, what_ran
from benchmarks.gpu.plan import Item, Phase, Result, Setting, Step
from benchmarks.runner import implementation
from benchmarks.suites.generation import SYMBOLS, language_model
from benchmarks.suites.layers import size

LAYERS, LENGTH, BATCH = 24, 1024, 8
DRY_LAYERS, DRY_LENGTH, DRY_BATCH = 1, 16, 2
KERNELS = ("cudnn", "flash", "fa3", "efficient")
IMPLS = ("sdpa", "linear")


def phases(setting: Setting) -> list[Phase]:
    """All models as graphs, then compiled, then launched from Python; the plain one by every kernel; other symbols."""
    models = {"plain": None, **{f"R={relations}": relations for relations in size(setting.dry_run).relations}}
    ways = [(name, how, "default") for how in ("graph", "compiled graph") for name in models]
    ways += [(name, "launched", "default") for name in models]
    ways += [("plain", "graph", kernel) for kernel in KERNELS]
    items = [
        Item(f"{name}, {how}, {kernel} attention", functools.partial(measure, setting, models[name], how, kernel))
        for name, how, kernel in ways
    ]
    first, relations = list(models.items())[1]
    forms = [
        Item(f"{first}, graph, impl {impl}", functools.partial(measure, setting, relations, "graph", "default", impl))
        for impl in IMPLS
    ]
    others = [
        Item(
            f"{first}, {symbols}, compiled graph",
            functools.partial(measure, setting, relations, "compiled graph", "default", symbols=symbols),
        )
        for symbols in SYMBOLS[1:]
    ]
    place = 3 * len(models)
    return [Phase([*items[:place], *forms, *items[place:], *others])]


def measure(
    setting: Setting,
    relations: int | None,
    how: str,
    kernel: str,
    impl: str | None = None,
    symbols: str = SYMBOLS[0],
) -> Result:
    """A training step of a whole language model; ``impl`` of relational attention, or the library's own choice."""
    layers, n, batch = (DRY_LAYERS, DRY_LENGTH, DRY_BATCH) if setting.dry_run else (LAYERS, LENGTH, BATCH)
    sizes = size(setting.dry_run)
    work = language_model(sizes, layers, n, relations, symbols)
    torch.manual_seed(0)
    model = built(work, setting.device, getattr(torch, setting.dtype))
    loss_of, compiled = model.loss, how.startswith("compiled")
    if compiled:
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()
        loss_of = torch.compile(loss_of, backend="aot_eager" if setting.dry_run else "inductor")  # which needs C++
    x, targets = (torch.randint(sizes.vocabulary, (batch, n), device=setting.device) for _ in range(2))

    def step() -> torch.Tensor:
        model.zero_grad(set_to_none=True)
        loss = loss_of(x, targets)
        loss.backward()
        return loss

    def without_loss() -> None:
        model.zero_grad(set_to_none=True)
        model.hidden(x).sum().backward()

    with library_attention(kernel), implementation(impl):
        first = float(step().detach())
        step()
        counters = torch._dynamo.utils.counters
        graphs, breaks = counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())
        found = described(
            timed(step, setting, launched=how == "launched"), batch * multiply_adds(work, "step"), setting
        )
        ran = what_ran(step, setting)
        if how == "graph":
            without_loss()
            of_loss = found["median"] - statistics.median(timed(without_loss, setting))
            found |= {"loss_seconds": of_loss, "says": f"{found['says']}; loss {1e3 * of_loss:.3g} ms"}
    found["says"] += f"; {batch * n / found['median']:.0f} tokens/s; attention: {', '.join(ran['library']) or 'none'}"
    found["says"] += f"; {kernels_in(ran)}"
    if compiled:
        whole = graphs == 1 and not breaks
        found |= {"graphs": graphs, "breaks": breaks, "agrees": whole}
        found["says"] += f"; {graphs} graphs of the compiler, {breaks} breaks"
    return {**found, "loss": first, "ran": ran}


def conclude(results: Mapping[str, Result]) -> list[str]:
    """The rival is the fastest plain model; ours are related to it."""
    times = {key: result["median"] for key, result in results.items() if "median" in result}
    plain = {key: took for key, took in times.items() if key.startswith("plain")}
    if not plain:
        return []
    rival = min(plain, key=lambda key: plain[key])
    lines = [f"the rival is {rival}: {results[rival]['utilisation']:.1%} of the measured matrix rate"]
    for key in times:
        if key not in plain:
            part = results[key]["utilisation"] / results[rival]["utilisation"]
            lines.append(f"{key}: {times[key] / plain[rival]:.2f}x the rival's time, {part:.2f}x its utilisation")
    return lines


STEP = Step(
    "rival", 3, "the plain language model by the fastest of the library's kernels, beside ours", phases, conclude
)
