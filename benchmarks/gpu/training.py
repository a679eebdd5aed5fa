"""Step and memory of two layers of the 343M language model over the length, and the longest text that trains."""

import contextlib
import functools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.cases import OURS, Case, SideSpec, published_bytes
from benchmarks.comparing import Bench
from benchmarks.floors import multiply_adds
from benchmarks.gpu.observing import SAMPLE_SECONDS, SAMPLES, kernels_in, rates, utilisation, what_ran
from benchmarks.gpu.plan import Item, Phase, Result, Setting, Step
from benchmarks.report import mebibytes, plain, relation, seconds
from benchmarks.runner import Runner, draw_inputs
from benchmarks.suites.layers import LAYERS, size, step_case

LENGTHS, DRY_LENGTHS = (1024, 4096, 8192, 32768), (16, 32)
LONGEST, DRY_LONGEST = (65536, 131072, 262144, 524288), (64,)
REACH = 1024
"""Offsets beyond which relative symbols are those of the farthest."""


def phases(setting: Setting) -> list[Phase]:
    """First a step at the shortest length, in several processes, so that kernels are compiled at the same time."""
    lengths, longest = (DRY_LENGTHS, DRY_LONGEST) if setting.dry_run else (LENGTHS, LONGEST)
    kinds = [(relations, relative) for relative in (False, True) for relations in size(setting.dry_run).relations]
    compiled = [Item(f"compiled, {name(*kind)}", functools.partial(once, setting, *kind, lengths[0])) for kind in kinds]
    rows = [
        Item(f"{name(*kind)}, n = {n}", functools.partial(row, setting, *kind, n)) for n in lengths for kind in kinds
    ]
    rows += [
        Item(f"longest, {side}, {name(*kind)}, n = {n}", functools.partial(once, setting, *kind, n, side))
        for n in longest
        for kind in kinds[: len(kinds) // 2]
        for side in (OURS, "plain")
        if side == OURS or kind == kinds[0]
    ]
    return [Phase(compiled, processes=4), Phase(rows)]


def name(relations: int, relative: bool) -> str:
    return f"R={relations}, {'relative' if relative else 'shared'} symbols"


def case(setting: Setting, relations: int, relative: bool, n: int) -> Case:
    """That of the suite ``step``, with SDPA as a further side, or with relative symbols."""
    found = step_case(relations, n, quick=setting.dry_run)
    sides = {side.name: side for side in found.sides if side.name not in ("llama", "reference")}
    dual = sides[OURS].work
    if relative:
        reach = min(n, REACH)
        symbols = {
            "kind": "PositionRelativeSymbolRetriever",
            "symbol_dim": dual.kwargs["d_model"],
            "max_rel_pos": reach,
        }
        block = dual.kwargs["block"]
        block = {**block, "ra_kwargs": {**block["ra_kwargs"], "use_relative_positional_symbols": True}}
        dual = replace(dual, kwargs={**dual.kwargs, "block": block, "symbols": symbols})
        heads, width = block["n_heads_ra"], dual.kwargs["d_model"]
        needs = published_bytes(1, n, heads, relations, symbols=width, layers=LAYERS)
        sides["published"] = replace(sides["published"], needs=needs)
        sides = {side: replace(spec, work=dual) if spec.function == "dual" else spec for side, spec in sides.items()}
    else:
        sides["sdpa"] = SideSpec("sdpa", replace(dual, impl="sdpa"))
    if n <= (16 if setting.dry_run else 8192):  # the weights whole, only to check the others
        sides["dense"] = SideSpec("dense", replace(dual, impl="dense"), timed=False)
    return replace(
        found, suite="gpu", label=name(relations, relative), sides=list(sides.values()), quantities=("step",)
    )


@contextlib.contextmanager
def bench(setting: Setting) -> Iterator[Bench]:
    repeats, long = (2, 0.0) if setting.dry_run else (SAMPLES, SAMPLE_SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        made = Bench(setting.settings, Path(folder), repeats, long, setting.published, also_memory=True)
        with contextlib.closing(made):
            yield made


def row(setting: Setting, relations: int, relative: bool, n: int) -> Result:
    """All sides in turn, with their agreement, times, peak memory and utilisation."""
    compared = case(setting, relations, relative, n)
    with bench(setting) as made:
        (found,) = made.run(compared)
    found.set_floors(rates(setting))
    parts = {
        side.name: utilisation(side.multiply_adds, side.figure, setting)
        for side in found.sides
        if side.multiply_adds and side.figure
    }
    says = []
    for side in found.sides:
        if side.summary:
            memory = f", {mebibytes(side.allocated)}" if side.allocated else ""
            figures = f"{seconds(side.summary.median)}{memory}, {parts[side.name]:.1%}"
            says.append(f"{side.name} {figures} {relation(side, memory=False)}".rstrip())
    ours = Runner(compared.sides[0].work, setting.settings, {"inputs": draw_inputs(compared.sides[0].work.inputs)})
    ours.cotangent = torch.ones_like(ours.inputs["x"])
    ran = what_ran(ours.step, setting)
    return {
        "row": found.to_json(),
        "table": plain(found),
        "utilisation": parts,
        "agrees": not found.disagreements and not any(side.status == "failed" for side in found.sides),
        "ran": ran,
        "says": "; ".join([*says, f"ours by {', '.join(ran['relational'])}", kernels_in(ran)]),
    }


def once(setting: Setting, relations: int, relative: bool, n: int, side: str = OURS) -> Result:
    """One step after a first one: whether it trains, how long it takes and its peak memory."""
    work = next(spec.work for spec in case(setting, relations, relative, n).sides if spec.name == side)
    torch.manual_seed(0)
    runner = Runner(work, setting.settings, {"inputs": draw_inputs(work.inputs)})
    runner.cotangent = torch.ones_like(runner.inputs["x"])
    peak = runner.memory("step")["allocated"]
    took = runner.sample("step", 1)
    part = utilisation(multiply_adds(work, "step"), took, setting)
    says = f"{seconds(took)}, {mebibytes(peak)}, {part:.1%} of the measured matrix rate"
    return {"median": took, "allocated": peak, "utilisation": part, "says": says}


def conclude(results: Mapping[str, Result]) -> list[str]:
    """Time and utilisation over the plain model's, and the longest length."""
    lines: list[str] = []
    for key, result in results.items():
        sides: Sequence[Any] = result.get("row", {}).get("sides", ())
        figures = {side["name"]: side["summary"]["median"] for side in sides if side["summary"]}
        if figures.keys() >= {OURS, "plain"}:
            parts = result["utilisation"]
            lines.append(
                f"{key}: {figures[OURS] / figures['plain']:.2f}x the plain layers' time, "
                f"{parts[OURS] / parts['plain']:.2f}x their utilisation"
            )
    trained = [key for key, result in results.items() if key.startswith(f"longest, {OURS}") and "median" in result]
    return lines + [f"trains: {key.removeprefix('longest, ')}" for key in trained[-2:]]


STEP = Step("training", 10, "step and memory over the length, and the longest that trains", phases, conclude)
