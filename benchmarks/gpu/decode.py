"""Decoding: one step after a long context, beside a plain model's, and its floor by bytes."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping
from typing import Any

import torch

from benchmarks.comparing import TOLERANCES
from benchmarks.gpu.observing import rates, timed, what_ran
from benchmarks.gpu.plan import Item, Phase, Result, Setting, Step
from benchmarks.report import seconds
from benchmarks.subjects import build
from benchmarks.suites.generation import LAYERS, common_arguments
from benchmarks.suites.layers import Size, size
from benchmarks.work import Draw, Work

CONTEXT, DRY_CONTEXT = 8192, 24
BATCHES = (1, 8)
SYMBOLS = ("symbolic_attention", "positional_symbols", "position_relative")


def language_model(sizes: Size, layers: int, length: int, relations: int | None, symbols: str = SYMBOLS[0]) -> Work:
    """A language model of the paper's 343M layers, batch 1; a plain one without relations."""
    common = common_arguments(sizes, layers, length)
    inputs = {"x": Draw((1, length), below=sizes.vocabulary)}
    if relations is None:
        return Work("model", {"kind": "language_models.TransformerLM", **common, **sizes.plain_block()}, inputs)
    options: dict[str, dict[str, Any]] = {
        "symbolic_attention": sizes.retriever(),
        "positional_symbols": {"symbol_dim": sizes.d_model, "max_length": length},
        "position_relative": {"symbol_dim": sizes.d_model, "max_rel_pos": min(length, 1024)},
    }
    block = sizes.block(relations)
    if symbols == "position_relative":
        block["ra_kwargs"] = {**block["ra_kwargs"], "use_relative_positional_symbols": True}
    kwargs = {"kind": "language_models.DualAttnTransformerLM", **common, **block}
    kwargs |= {"symbol_retrieval": symbols, "symbol_retrieval_kwargs": options[symbols]}
    return Work("model", kwargs, inputs)


def built(work: Work, device: str, dtype: torch.dtype) -> Any:
    """The language model itself, without the benchmark's wrapper; its weights are drawn where it will be."""
    with torch.device(device):
        wrapper: Any = build(work.subject, work.kwargs)
    return wrapper.model.to(device, dtype)


def phases(setting: Setting) -> list[Phase]:
    """Each kind of symbols with the first number of relations, symbolic attention with the others, a plain model."""
    sizes = size(setting.dry_run)
    models: dict[str, tuple[int | None, str]] = {"plain": (None, "")}
    models |= {f"R={r}, symbolic_attention": (r, "symbolic_attention") for r in sizes.relations}
    models |= {f"R={sizes.relations[0]}, {symbols}": (sizes.relations[0], symbols) for symbols in SYMBOLS[1:]}
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
def measure(setting: Setting, relations: int | None, symbols: str, batch: int) -> Result:
    """A step by a model of some layers; the cache is cut back to the context after each."""
    context = DRY_CONTEXT if setting.dry_run else CONTEXT
    layers = 1 if setting.dry_run else LAYERS
    sizes = size(setting.dry_run)
    work = language_model(sizes, layers, context + 1, relations, symbols)
    torch.manual_seed(0)
    model = built(work, setting.device, getattr(torch, setting.dtype)).eval()
    tokens = torch.randint(sizes.vocabulary, (batch, context + 1), device=setting.device)
    cache = model.new_cache(context + 1)
    model(tokens[:, :-1], cache=cache, all_logits=False)

    def step() -> torch.Tensor:
        logits = model(tokens[:, -1:], cache=cache, all_logits=False).logits
        cache.crop(context)
        return logits

    whole = model(tokens, all_logits=False).logits
    error = float((step() - whole).abs().max() / whole.abs().max())
    held = sum(p.numel() * p.element_size() for p in model.parameters()) + cache.nbytes()
    floor = held / rates(setting).bytes
    samples = timed(step, setting)
    median = statistics.median(samples)
    return {
        "samples": samples,
        "median": median,
        "floor": floor,
        "difference": error,
        "agrees": error <= TOLERANCES[setting.dtype],
        "ran": what_ran(step, setting),
        "says": f"{seconds(median)}, floor by bytes {seconds(floor)}",
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
