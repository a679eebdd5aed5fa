"""Decoding: one step after a long context, beside a plain model's, and its floor by bytes."""

import functools
import statistics
from collections.abc import Mapping
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

CONTEXT, DRY_CONTEXT = 8192, 24


def built(work: Work, device: str, dtype: torch.dtype) -> Any:
    """The language model itself, without the benchmark's wrapper; its weights are drawn where it will be."""
    with torch.device(device):
        wrapper: Any = build(work.subject, work.kwargs)
    return wrapper.model.to(device, dtype)


def phases(setting: Setting) -> list[Phase]:
    """Each kind of symbols with the first number of relations, symbolic attention with the others, a plain model; and
    two kinds by the fused kernels, which split the senders and are not the library's own choice."""
    sizes = size(setting.dry_run)
    first = sizes.relations[0]
    models: dict[str, tuple[int | None, str, str | None]] = {"plain": (None, "", None)}
    models |= {f"R={r}, symbolic_attention": (r, "symbolic_attention", None) for r in sizes.relations}
    models |= {f"R={first}, {symbols}": (first, symbols, None) for symbols in SYMBOLS[1:]}
    fused = ("symbolic_attention", "position_relative")
    models |= {f"R={first}, {symbols}, impl triton": (first, symbols, "triton") for symbols in fused}
    return [
        Phase(
            [
                Item(f"{name}, batch {batch}", functools.partial(measure, setting, *model, batch))
                for batch in BATCHES
                for name, model in models.items()
            ]
        )
    ]


@torch.no_grad()
def measure(setting: Setting, relations: int | None, symbols: str, impl: str | None, batch: int) -> Result:
    """A step by a model of some layers; the token is forgotten after each. ``impl`` of relational attention in it, or
    the library's own choice."""
    context = DRY_CONTEXT if setting.dry_run else CONTEXT
    layers = 1 if setting.dry_run else LAYERS
    sizes = size(setting.dry_run)
    work = language_model(sizes, layers, context + 1, relations, symbols)
    torch.manual_seed(0)
    model = built(work, setting.device, getattr(torch, setting.dtype)).eval()
    tokens = torch.randint(sizes.vocabulary, (batch, context + 1), device=setting.device)
    held = OwnCache(model, context + 1)
    held.read(tokens[:, :-1])

    def step() -> torch.Tensor:
        with implementation(impl):
            return held.try_one(tokens[:, -1:])

    whole = model(tokens, all_logits=False).logits
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
    """Each model's time over the plain one's of its batch, and over its floor."""
    lines = []
    for key, result in results.items():
        plain = results.get(f"plain, {key.rpartition(', ')[2]}", {})
        if "median" in result and "median" in plain and result is not plain:
            times, over = result["median"] / plain["median"], result["median"] / result["floor"]
            lines.append(f"{key}: {times:.2f}x a plain model's step, {over:.2f}x its own floor by bytes")
    return lines


STEP = Step("decode", 2, "one step of decoding after 8,192 tokens, beside a plain model's", phases, conclude)
