"""Run a case: check that sides agree, then time them in turn, or measure the memory of each in a fresh process."""

import contextlib
import gc
import importlib.util
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.cases import OURS, YARDSTICKS, Case, SideSpec
from benchmarks.floors import multiply_adds
from benchmarks.machine import available_bytes
from benchmarks.results import Row, SideResult
from benchmarks.runner import Quantity, Runner, draw_inputs
from benchmarks.sides import RemoteSide, Side, Worker, WorkerError, own_worker
from benchmarks.subjects import build
from benchmarks.work import Settings, Work

TOLERANCES = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 8e-2}
"""Largest difference that counts as agreement, by dtype; see :func:`difference`."""

SMALL = 1e-3
"""Tensors whose largest entry is below this part of the largest of their kind are measured by the latter: a gradient
that is zero but for rounding has no relative error."""


@dataclass(frozen=True)
class Difference:
    """Distance of results from expected ones.

    Attributes:
        size: largest difference relative to the largest expected entry; infinite if something is missing or not finite.
        where: name of the tensor in which it is found.
    """

    size: float
    where: str


def difference(values: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> Difference:
    """The largest difference of any tensor.

    Math: max_t  max |a_t - b_t| / max(max |b_t|, SMALL * max_t' max |b_t'|), t' over results or over gradients

    For integers (generated tokens) it is the share of entries that differ.
    """
    if values.keys() != expected.keys():
        return Difference(math.inf, ", ".join(sorted(values.keys() ^ expected.keys())))
    scales = {name: largest(tensor) for name, tensor in expected.items()}
    worst = Difference(0.0, "")
    for name, right in expected.items():
        left = values[name]
        if left.shape != right.shape:
            size = math.inf
        elif not right.is_floating_point():
            size = float((left != right).double().mean())
        else:
            kind = [scale for other, scale in scales.items() if is_gradient(other) == is_gradient(name)]
            distance = largest(left.double() - right.double())
            scale = max(scales[name], SMALL * max(kind))
            size = distance / scale if distance else 0.0
            size = size if math.isfinite(size) else math.inf
        if size > worst.size:
            worst = Difference(size, name)
    return worst


def is_gradient(name: str) -> bool:
    return name.startswith("gradient of ")


def largest(tensor: Tensor) -> float:
    """Largest absolute entry; zero for an empty tensor or integers, NaN if the tensor has one."""
    if not tensor.is_floating_point() or not tensor.numel():
        return 0.0
    return float(tensor.double().abs().max())


SETTLE = 0.02
"""Seconds before each sample if there are two processes: threads of the other that still spin give up in less."""


Results = dict[str, SideResult]
"""Results by the name of a side."""


@dataclass
class Bench:
    """Settings and processes that cases are run with.

    Attributes:
        folder: for tensors passed between processes.
        repeats: samples of each side.
        sample_seconds: shorter calls are repeated within a sample until they take about as long.
        published: interpreter of the published package's environment.
        only: names of sides to run beside ours; None for all.
        report: takes one line about progress.
    """

    settings: Settings
    folder: Path
    repeats: int = 5
    sample_seconds: float = 0.2
    published: str | None = None
    only: frozenset[str] | None = None
    report: Callable[[str], None] = lambda line: None
    _worker: Worker | None = field(default=None, init=False)

    def worker(self) -> Worker:
        """The worker of the published package, started when it is first needed."""
        if self._worker is None:
            assert self.published is not None
            self._worker = Worker(self.published)
        return self._worker

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def run(self, case: Case) -> Iterator[Row]:
        """Measure one case; a row for each quantity, sides in the order of the case."""
        specs = [spec for spec in case.sides if self.only is None or spec.name in self.only or spec.name == OURS]
        self.report(f"{case.suite}, {case.label}, length {case.length}")
        lost: Results = {}
        for spec in specs:
            reason = self.obstacle(spec)
            if reason is not None:
                lost[spec.name] = SideResult(spec.name, spec.function, "left out", reason)
        tensors = self.prepare(specs, lost)
        if OURS in lost:
            for spec in specs:
                lost.setdefault(spec.name, SideResult(spec.name, spec.function, "left out", "ours does not run"))
        sides = {} if case.memory else self.load(specs, tensors, lost)
        for quantity in case.quantities:
            self.report(f"{case.suite}, {case.label}, length {case.length}, {quantity}")
            results = {s.name: lost.get(s.name) or SideResult(s.name, s.function, "checked") for s in specs}
            if case.memory:
                self.measure_memory(specs, tensors, quantity, results)
            else:
                self.time(specs, sides, quantity, results)
            lost = {name: result for name, result in results.items() if result.lost}
            tolerance, of_sides = TOLERANCES[self.settings.dtype], list(results.values())
            row = Row(case.suite, case.label, case.length, quantity, case.memory, tolerance, of_sides)
            row.relate()
            yield row
        sides.clear()
        gc.collect()
        torch.cuda.empty_cache()
        if self._worker is not None:
            self._worker.ask("unload")

    def obstacle(self, spec: SideSpec) -> str | None:
        """Why a side cannot run here; None if it can."""
        free = available_bytes(self.settings.device)
        if spec.place == "published" and self.published is None:
            return "needs --published"
        if spec.package is not None and importlib.util.find_spec(spec.package) is None:
            return f"{spec.package} is not installed"
        if free is not None and spec.needs > 0.9 * free:
            return f"would need about {spec.needs / 2**30:.0f} GiB of memory, {free / 2**30:.0f} are free"
        return None

    @contextlib.contextmanager
    def watching(self, spec: SideSpec, results: Results) -> Iterator[None]:
        """Turn an error of a side into its result, and go on without that side.

        Lack of memory is not a failure. A worker is not used again after an error.
        """
        try:
            yield
        except Exception as error:
            if spec.place == "published":
                self.close()
            message = " ".join(str(error).split())
            short = ("out of memory", "can't allocate memory", "not enough memory")
            if isinstance(error, torch.OutOfMemoryError) or any(words in message for words in short):
                results[spec.name] = SideResult(spec.name, spec.function, "left out", "out of memory")
            else:
                kind = "" if isinstance(error, WorkerError) else f"{type(error).__name__}: "
                results[spec.name] = SideResult(spec.name, spec.function, "failed", f"{kind}{message}"[:300])

    def prepare(self, specs: Sequence[SideSpec], lost: Results) -> dict[str, Path]:
        """Weights, inputs and cotangents of each function, in files: from the first side of that function."""
        paths: dict[str, Path] = {}
        for spec in specs:
            if spec.name not in lost and spec.function not in paths and OURS not in lost:
                with self.watching(spec, lost):
                    path = self.folder / f"{spec.function}.pt"
                    torch.save(draw(spec.work, self.settings), path)
                    paths[spec.function] = path
        return paths

    def load(self, specs: Sequence[SideSpec], tensors: Mapping[str, Path], lost: Results) -> dict[str, Side]:
        """The sides, ready to run."""
        sides: dict[str, Side] = {}
        for spec in specs:
            if spec.name in lost:
                continue
            path = tensors[spec.function]
            with self.watching(spec, lost):
                if spec.place == "published":
                    sides[spec.name] = RemoteSide(self.worker(), spec.work, self.settings, path, self.folder)
                else:
                    sides[spec.name] = Runner(spec.work, self.settings, torch.load(path, weights_only=True))
        return sides

    def time(self, specs: Sequence[SideSpec], sides: Mapping[str, Side], quantity: Quantity, results: Results) -> None:
        """Check all sides, then time them in turn."""
        values: dict[str, Mapping[str, Tensor]] = {}
        for spec in specs:
            if not results[spec.name].lost:
                with self.watching(spec, results):
                    start = time.perf_counter()
                    values[spec.name] = sides[spec.name].values(quantity)
                    results[spec.name].first = time.perf_counter() - start
        compare(specs, values, results, TOLERANCES[self.settings.dtype])
        values.clear()

        timed = [spec for spec in specs if spec.timed and not results[spec.name].lost]
        for spec in timed:
            result, side = results[spec.name], sides[spec.name]
            with self.watching(spec, results):
                seconds = side.sample(quantity, 1)  # the second warm-up, after the check
                calls = spec.work.generation.new if spec.work.generation and quantity == "generate" else 1
                result.number = max(1, math.ceil(self.sample_seconds / max(seconds * calls, 1e-9)))
                result.status = "measured"
                result.multiply_adds, result.traffic = multiply_adds(spec.work, quantity), side.traffic(quantity)
        settle = SETTLE if any(spec.place == "published" for spec in timed) else 0.0
        for _ in range(self.repeats):
            for spec in timed:
                if not results[spec.name].lost:
                    time.sleep(settle)
                    with self.watching(spec, results):
                        results[spec.name].samples.append(sides[spec.name].sample(quantity, results[spec.name].number))

    def measure_memory(
        self, specs: Sequence[SideSpec], tensors: Mapping[str, Path], quantity: Quantity, results: Results
    ) -> None:
        """Measure the memory of each side in a fresh process, and check what it computed there."""
        values: dict[str, Mapping[str, Tensor]] = {}
        for spec in specs:
            result = results[spec.name]
            if result.lost:
                continue
            with (
                self.watching(spec, results),
                own_worker() if spec.place == "here" else Worker(self.published or "") as worker,
            ):
                side = RemoteSide(worker, spec.work, self.settings, tensors[spec.function], self.folder)
                if spec.timed:
                    peak = side.memory(quantity)
                    result.allocated, result.resident = peak["allocated"], peak["resident"]
                    result.status = "measured"
                values[spec.name] = side.values(quantity)
        compare(specs, values, results, TOLERANCES[self.settings.dtype])


def draw(work: Work, settings: Settings) -> dict[str, Any]:
    """Weights, inputs, and the gradient of the output that a backward pass begins with; the same in every run."""
    torch.manual_seed(1)
    state = build(work.subject, work.kwargs).state_dict()
    torch.manual_seed(2)
    inputs = draw_inputs(work.inputs)
    tensors = {"state": state, "inputs": inputs}
    if work.generation is None and work.decoding is None:
        output = Runner(work, settings, tensors).forward()
        torch.manual_seed(3)
        tensors["cotangent"] = torch.randn(output.shape)
    return tensors


def compare(
    specs: Sequence[SideSpec],
    values: Mapping[str, Mapping[str, Tensor]],
    results: Mapping[str, SideResult],
    tolerance: float,
) -> None:
    """Compare the values of the sides of each function with those of its yardstick."""
    for function in {spec.function for spec in specs}:
        names = [spec.name for spec in specs if spec.function == function and spec.name in values]
        if len(names) < 2:
            continue
        yardstick = next((name for name in YARDSTICKS if name in names), names[0])
        for name in names:
            # The yardstick is compared with the first of the others, which is ours unless ours is the yardstick.
            against = yardstick if name != yardstick else next(other for other in names if other != yardstick)
            found = difference(values[name], values[against])
            result = results[name]
            result.yardstick, result.difference, result.where = against, found.size, found.where
            result.agrees = found.size <= tolerance
