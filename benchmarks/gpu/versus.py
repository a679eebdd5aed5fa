"""Two checkouts in one process, on one card: a training step of this one and of another, by turns.

The step of each is captured as a CUDA graph while its packages are those that Python knows; replays of the two then
alternate, so that a card that grows warm favours neither.
"""

import contextlib
import functools
import importlib
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from benchmarks.gpu.plan import Item, LeftOut, Phase, Result, Setting, Step
from benchmarks.gpu.rival import BATCH, DRY_BATCH, DRY_LAYERS, DRY_LENGTH, LAYERS, LENGTH
from benchmarks.gpu.running import ROOT
from benchmarks.measuring import replay, seconds_per_call
from benchmarks.report import seconds
from benchmarks.suites.generation import language_model
from benchmarks.suites.layers import size

PACKAGE = "dual_attention"
TURNS = 5


def phases(setting: Setting) -> list[Phase]:
    """A model of each number of relations."""
    relations = size(setting.dry_run).relations
    return [Phase([Item(f"R={some}", functools.partial(measure, setting, some)) for some in relations])]


@contextlib.contextmanager
def package_of(root: str | Path) -> Iterator[None]:
    """The library of a checkout, in the place of the one that is imported."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if f"{name}.".startswith(f"{PACKAGE}.")}
    sys.path.insert(0, str(root))
    try:
        yield
    finally:
        sys.path.remove(str(root))
        for name in [name for name in sys.modules if f"{name}.".startswith(f"{PACKAGE}.")]:
            del sys.modules[name]
        sys.modules.update(before)


def step_of(root: str | Path, setting: Setting, relations: int) -> Callable[[], object]:
    """A training step of a checkout's language model, which needs no package any more where it can be captured."""
    layers, n, batch = (DRY_LAYERS, DRY_LENGTH, DRY_BATCH) if setting.dry_run else (LAYERS, LENGTH, BATCH)
    sizes = size(setting.dry_run)
    with package_of(root):
        kwargs = dict(language_model(sizes, layers, n, relations).kwargs)
        module, _, kind = kwargs.pop("kind").rpartition(".")
        torch.manual_seed(0)
        with torch.device(setting.device):
            model = getattr(importlib.import_module(f"{PACKAGE}.{module}"), kind)(**kwargs)
            x, targets = (torch.randint(sizes.vocabulary, (batch, n)) for _ in range(2))
        model.to(getattr(torch, setting.dtype))

        def step() -> None:
            model.zero_grad(set_to_none=True)
            model.loss(x, targets).backward()

        step()
        if setting.device == "cpu":
            return step
        captured = replay(step)
        if captured is None:
            raise LeftOut(f"{root}: its step cannot be captured in a CUDA graph")
        return lambda: (captured(), step)[0]  # which keeps the model that is in the graph


def measure(setting: Setting, relations: int) -> Result:
    """Seconds of both, by turns."""
    if setting.against is None:
        raise LeftOut("needs --against, another checkout")
    steps = {"this": step_of(ROOT, setting, relations), "other": step_of(setting.against, setting, relations)}
    number = 1 if setting.dry_run else 10
    samples: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(TURNS):
        for name, step in steps.items():
            samples[name].append(seconds_per_call(step, number, setting.device))
    medians = {name: statistics.median(found) for name, found in samples.items()}
    says = f"this {seconds(medians['this'])}, the other {seconds(medians['other'])}"
    return {"samples": samples, "medians": medians, "against": setting.against, "says": says}


def conclude(results: Mapping[str, Result]) -> list[str]:
    """This checkout's time over the other's."""
    found = {key: result["medians"] for key, result in results.items() if "medians" in result}
    return [f"{key}: {took['this'] / took['other']:.3f}x the other checkout's time" for key, took in found.items()]


STEP = Step("versus", 2, "a training step of this checkout and of another (--against), by turns", phases, conclude)
