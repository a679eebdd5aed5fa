"""Decoding: one step after a long context, beside a plain model's, and its floor by bytes."""

import functools
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch

from benchmarks.comparing import TOLERANCES
from benchmarks.decoding import OwnCache, bytes_of_weights
from benchmarks.gpu.observing import rates, timed, what_ran
from benchmarks.gpu.plan import Item, Phase, Result, Setting, Step
from benchmarks.report import seconds
from benchmarks.runner import implementation
from benchmarks.subjects import build
from benchmarks.suites.decoding import BATCHES
from benchmarks.suites.generation import LAYERS, SYMBOLS, language_model
from benchmarks.suites.layers import size
from benchmarks.work import Work
from dual_attention.generation.graph import GraphDecoder

CONTEXT, DRY_CONTEXT = 8192, 24


def built(work: Work, device: str, dtype: torch.dtype) -> Any:
    """The language model itself, without the benchmark's wrapper; its weights are drawn where it will be."""
    with torch.device(device):
        wrapper: Any = build(work.subject, work.kwargs)
    return wrapper.model.to(device, dtype)


def phases(setting: Setting) -> list[Phase]:
    """Recorded steps of a plain model and of ours, as ``generate(graph=True)`` repeats them; steps with growing caches;
    and two kinds of symbols by the fused kernels, which are not the library's choice."""
    sizes = size(setting.dry_run)
    first = sizes.relations[0]
    kinds: dict[str, tuple[int | None, str]] = {"plain": (None, "")}
    kinds |= {f"R={r}, symbolic_attention": (r, "symbolic_attention") for r in sizes.relations}
    kinds |= {f"R={first}, {symbols}": (first, symbols) for symbols in SYMBOLS[1:]}
    usual, relative = f"R={first}, symbolic_attention", f"R={first}, position_relative"
    ways = [(name, "recorded", None) for name in kinds] + [(name, "growing", None) for name in ("plain", usual)]
    ways += [(name, "growing", "triton") for name in (usual, relative)]
    return [
        Phase(
            [
                Item(
                    f"{name}{f', impl {impl}' if impl else ''}, {way}, batch {batch}",
                    functools.partial(measure, setting, *kinds[name], impl, batch, recorded=way == "recorded"),
                )
                for batch in BATCHES
                for name, way, impl in ways
            ]
        )
    ]


def recorded_step(model: Any, tokens: torch.Tensor) -> Callable[[], torch.Tensor]:
    """The step that ``generate(graph=True)`` would record for the last token, which is forgotten after each."""
    found: list[Callable[[], torch.Tensor]] = []

    def again(step: Callable[[], torch.Tensor], steps: Any) -> Callable[[], torch.Tensor]:
        place = steps.place.clone()
        found.append(lambda: (step(), steps.place.copy_(place))[0])
        return found[0]

    decoder = GraphDecoder(model, max_length=tokens.shape[1], record=again)
    for part in (tokens[:, :-1], tokens[:, -1:]):
        decoder.step(part)
    return found[0]


@torch.no_grad()
def measure(
    setting: Setting, relations: int | None, symbols: str, impl: str | None, batch: int, *, recorded: bool
) -> Result:
    """A step by a model of some layers, the same one again and again. ``impl`` of relational attention in it, or the
    library's own choice; ``recorded``: with caches of a fixed size, whose senders are split."""
    context = DRY_CONTEXT if setting.dry_run else CONTEXT
    layers = 1 if setting.dry_run else LAYERS
    sizes = size(setting.dry_run)
    work = language_model(sizes, layers, context + 1, relations, symbols)
    torch.manual_seed(0)
    model = built(work, setting.device, getattr(torch, setting.dtype)).eval()
    tokens = torch.randint(sizes.vocabulary, (batch, context + 1), device=setting.device)
    held = OwnCache(model, context + 1)
    held.read(tokens[:, :-1])
    one = recorded_step(model, tokens) if recorded else lambda: held.try_one(tokens[:, -1:])[:, -1]

    def step() -> torch.Tensor:
        with implementation(impl):
            return one()

    whole = model(tokens, all_logits=False).logits[:, -1]
    error = float((step() - whole).abs().max() / whole.abs().max())
    floor = (bytes_of_weights(model, context) + held.nbytes()) / rates(setting).bytes
    samples = timed(step, setting)
    median, launched = statistics.median(samples), statistics.median(timed(step, setting, launched=True))
    return {
        "samples": samples,
        "launched": launched,
        "median": median,
        "floor": floor,
        "difference": error,
        "agrees": error <= TOLERANCES[setting.dtype],
        "ran": what_ran(step, setting),
        "says": f"{seconds(median)}, launched from Python {seconds(launched)}, floor by bytes {seconds(floor)}",
    }


def conclude(results: Mapping[str, Result]) -> list[str]:
    """Each model's time over the plain one's by the same caches and batch, and over its floor."""
    lines = []
    for key, result in results.items():
        plain = results.get(", ".join(["plain", *key.split(", ")[-2:]]), {})
        if "median" in result and "median" in plain and result is not plain:
            times, over = result["median"] / plain["median"], result["median"] / result["floor"]
            lines.append(f"{key}: {times:.2f}x a plain model's step, {over:.2f}x its own floor by bytes")
    return lines


STEP = Step("decode", 2, "one step of decoding after 8,192 tokens, beside a plain model's", phases, conclude)
