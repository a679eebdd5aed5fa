"""An honest rival: the plain language model by the fastest of the library's kernels, beside ours.

A step is forward and backward of the loss, which is fused with the output layer in both models; no optimiser. It is
launched from Python, or captured in a CUDA graph and replayed, which shows what the device takes. Model FLOPs are the
least that ``dat estimate`` counts: no masked pair, nothing twice.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import torch

from benchmarks.floors import multiply_adds
from benchmarks.gpu.decode import built
from benchmarks.gpu.observing import described, kernels_in, library_attention, timed, what_ran
from benchmarks.gpu.plan import Item, Phase, Result, Setting, Step
from benchmarks.suites.generation import language_model
from benchmarks.suites.layers import size

LAYERS, LENGTH, BATCH = 24, 1024, 8
DRY_LAYERS, DRY_LENGTH, DRY_BATCH = 1, 16, 2
KERNELS = ("cudnn", "flash", "fa3", "efficient")


def phases(setting: Setting) -> list[Phase]:
    """All models as graphs, then compiled; the plain one by every kernel; and all as they are launched from Python."""
    models = {"plain": None, **{f"R={relations}": relations for relations in size(setting.dry_run).relations}}
    ways = [(name, how, "default") for how in ("graph", "compiled graph") for name in models]
    ways += [("plain", "graph", kernel) for kernel in KERNELS]
    ways += [(name, "launched", "default") for name in models]
    items = [
        Item(f"{name}, {how}, {kernel} attention", functools.partial(measure, setting, models[name], how, kernel))
        for name, how, kernel in ways
    ]
    return [Phase(items)]


def measure(setting: Setting, relations: int | None, how: str, kernel: str) -> Result:
    """A training step of a whole language model; each block is compiled by itself, which all blocks then share."""
    layers, n, batch = (DRY_LAYERS, DRY_LENGTH, DRY_BATCH) if setting.dry_run else (LAYERS, LENGTH, BATCH)
    sizes = size(setting.dry_run)
    work = language_model(sizes, layers, n, relations)
    torch.manual_seed(0)
    model = built(work, setting.device, getattr(torch, setting.dtype))
    if how.startswith("compiled"):
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()
        for block in model.layers.blocks:
            block.compile(backend="aot_eager" if setting.dry_run else "inductor")  # the latter needs a C++ compiler
    x, targets = (torch.randint(sizes.vocabulary, (batch, n), device=setting.device) for _ in range(2))

    def step() -> torch.Tensor:
        model.zero_grad(set_to_none=True)
        loss = model.loss(x, targets)
        loss.backward()
        return loss

    with library_attention(kernel):
        first = float(step().detach())
        step()
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"] if how.startswith("compiled") else 0
        found = described(
            timed(step, setting, launched=how == "launched"), batch * multiply_adds(work, "step"), setting
        )
        ran = what_ran(step, setting)
    found["says"] += f"; {batch * n / found['median']:.0f} tokens/s; attention: {', '.join(ran['library']) or 'none'}"
    found["says"] += f"; {kernels_in(ran)}"
    return {**found, "loss": first, "graphs": graphs, "ran": ran}


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
    "rival", 5, "the plain language model by the fastest of the library's kernels, beside ours", phases, conclude
)
