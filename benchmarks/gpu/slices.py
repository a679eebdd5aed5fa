"""Library attention on slices of the wide values against the fused kernels: which should ``impl="auto"`` take.

Relational attention is one attention whose values are a symbol beside the relation keys. They are wider than library
kernels take, so they are cut: out = concatenation, and the gradients of the scores add up.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.comparing import TOLERANCES, difference
from benchmarks.floors import multiply_adds
from benchmarks.gpu.observing import described, library_attention, timed, what_ran
from benchmarks.gpu.plan import Item, Phase, Result, Setting, Step
from benchmarks.report import seconds
from benchmarks.runner import Runner, draw_inputs
from benchmarks.suites.crossing import MOST_PAIRS, QUICK_SHAPES, SHAPES, case
from benchmarks.work import Work
from dual_attention.functional.relational import sdpa
from dual_attention.functional.triton import tuning
from dual_attention.functional.triton.support import MOST_PAIRED
from dual_attention.functional.triton.tuning import Tile

LENGTHS, DRY_LENGTHS = (1024, 4096, 8192), (16,)
WIDTHS = (256, 128, 64)
WAYS = ("cudnn", "flash", "default")
IMPLS = ("triton", "pairs", "linear", "sdpa")
"""Implementations as they are; ``sdpa`` slices by itself, of one width for queries and values; ``pairs`` is for few
relations."""
TILES = {"triton, keys of 128 senders": {"keys": Tile(32, 128, 512, 8, 1)}}
"""Sizes to try: by the machine code this one spills nothing, and issues a seventh less beside each product."""


def phases(setting: Setting) -> list[Phase]:
    """The fused kernels, other forms as they are, then slices of each width by each of the library's kernels.

    First a batch that fills a GPU; of the slices, those of 128 by cuDNN.
    """
    shapes, lengths = (QUICK_SHAPES[:1], DRY_LENGTHS) if setting.dry_run else ((SHAPES[2], *SHAPES[1::-1]), LENGTHS)
    items = []
    for n in lengths:
        for shape in (s for s in shapes if s.batch * n * n <= MOST_PAIRS or s.batch == 1):
            work = case(shape, n, setting.device).sides[0].work
            of_shape = f"{shape.label}, n = {n}"
            for impl in (impl for impl in IMPLS if impl != "pairs" or shape.relations <= MOST_PAIRED):
                items.append(Item(f"{of_shape}: {impl}", functools.partial(measure, setting, work, impl)))
            for tiles in TILES:
                items.append(Item(f"{of_shape}: {tiles}", functools.partial(measure, setting, work, tiles)))
            for width in sorted(WIDTHS, key=lambda width: width != 128):
                for way in WAYS:
                    run = functools.partial(measure, setting, work, way, width)
                    items.append(Item(f"{of_shape}: {way}, width {width}", run))
    return [Phase(items)]


def sliced(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Any, bias: Any) -> tuple[Tensor, None]:
    """Library attention without the padding to one width, which kernels that take two widths do not need."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=mask.only_causal, scale=scale, enable_gqa=True), None


def measure(setting: Setting, work: Work, way: str, width: int = 0) -> Result:
    """Forward and step, by the fused kernels or on slices of that width; both are held against each other's results."""
    torch.manual_seed(2)
    tensors: dict[str, Any] = {"inputs": draw_inputs(work.inputs)}
    like = tensors["inputs"]["q"]
    tensors["cotangent"] = torch.randn(*like.shape[:3], work.inputs["w_r"].shape[1])
    yardstick = Work(work.subject, work.kwargs, work.inputs, impl="linear")
    wanted = Runner(yardstick, setting.settings, tensors).values("step")
    impl = way if way in IMPLS else "triton" if way in TILES else "sdpa"
    own: list[Any] = []
    if width:
        own = [mock.patch.object(sdpa, "COLUMNS", width), mock.patch.object(sdpa, "attend_to_values", sliced)]
    elif way in TILES:
        own = [mock.patch.multiple(tuning, HOPPER=tuning.HOPPER._replace(**TILES[way]))]
    runner = Runner(Work(work.subject, work.kwargs, work.inputs, impl=impl), setting.settings, tensors)
    with contextlib.ExitStack() as stack:
        for patch in (library_attention(way if impl == "sdpa" and width else "default"), *own):
            stack.enter_context(patch)
        found = difference(runner.values("step"), wanted)
        result: Result = {"difference": found.size, "agrees": found.size <= TOLERANCES[setting.dtype]}
        calls: dict[str, Callable[[], object]] = {"forward": runner.forward, "step": runner.step}
        for quantity, call in calls.items():
            result[quantity] = described(timed(call, setting), multiply_adds(work, quantity), setting)
        result["ran"] = what_ran(runner.step, setting)
    times = "; ".join(f"{quantity} {result[quantity]['says']}" for quantity in calls)
    return {**result, "says": f"{times}; ran {', '.join(result['ran']['library']) or impl}"}


def conclude(results: Mapping[str, Result]) -> list[str]:
    """The fastest of each shape."""
    shapes: dict[str, dict[str, float]] = {}
    for key, result in results.items():
        if result.get("agrees"):
            shape, _, way = key.rpartition(": ")
            shapes.setdefault(shape, {})[way] = result["step"]["median"]
    lines = []
    for shape, ways in shapes.items():
        best = min(ways, key=lambda way: ways[way])
        lines.append(f"{shape}: a step is fastest by {best}, {seconds(ways[best])}")
        if best != "triton" and "triton" in ways:
            lines[-1] += f"; triton takes {ways['triton'] / ways[best]:.2f}x its time"
    return lines


STEP = Step("slices", 3, "SDPA on slices of wide values against the fused kernels", phases, conclude)
