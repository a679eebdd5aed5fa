"""Parts of the model by themselves, in two forms each, and what two kernels wait for.

Symbolic attention has one set of templates for all examples: as one example of all queries, or expanded over the batch.
The projections of a layer are one product or several.
"""

import functools
import shutil
import statistics
import sys
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F

from benchmarks.gpu.observing import library_attention, timed
from benchmarks.gpu.plan import Item, LeftOut, Phase, Result, Setting, Step
from benchmarks.gpu.right import command
from benchmarks.report import seconds
from benchmarks.suites.layers import size

BATCH, LENGTH, DRY_LENGTH = 8, 1024, 16
LAYOUTS = ("one example", "expanded")
FORMS = ("one product", "seven products")
STALLED = ("forward_kernel", "k_kernel")


def phases(setting: Setting) -> list[Phase]:
    """Symbolic attention by each layout and kernel, the projections by each form, and the kernels' stalls."""
    items = [
        Item(f"symbolic attention, {layout}, {way}", functools.partial(symbolic, setting, layout, way))
        for way in ("default", "cudnn", "flash")
        for layout in LAYOUTS
    ]
    items += [Item(f"projections, {form}", functools.partial(projections, setting, form)) for form in FORMS]
    items += [Item(f"stalls, {kernel}", functools.partial(stalls, kernel)) for kernel in STALLED]
    return [Phase(items)]


def step_of(forward: Callable[[], torch.Tensor], leaves: list[torch.Tensor], setting: Setting) -> Result:
    """Time of a forward and backward pass."""
    cotangent = torch.ones_like(forward())

    def step() -> None:
        torch.autograd.grad(forward(), leaves, cotangent)

    step()
    samples = timed(step, setting)
    median = statistics.median(samples)
    return {"samples": samples, "median": median, "says": seconds(median)}


def drawn(setting: Setting, *shape: int) -> torch.Tensor:
    return torch.randn(shape, device=setting.device, dtype=getattr(torch, setting.dtype)).requires_grad_()


def symbolic(setting: Setting, layout: str, way: str) -> Result:
    """Queries of all tokens over the templates of a head."""
    sizes, n = size(setting.dry_run), DRY_LENGTH if setting.dry_run else LENGTH
    heads, width = sizes.symbol_heads, sizes.d_model // sizes.symbol_heads
    q = drawn(setting, BATCH, heads, n, width)
    k, v = (drawn(setting, 1, heads, sizes.symbols, width) for _ in range(2))

    def forward() -> torch.Tensor:
        if layout == "expanded":
            return F.scaled_dot_product_attention(q, k.expand(BATCH, -1, -1, -1), v.expand(BATCH, -1, -1, -1))
        return F.scaled_dot_product_attention(q.transpose(0, 1).flatten(1, 2)[None], k, v)

    with library_attention(way):
        return step_of(forward, [q, k, v], setting)


def projections(setting: Setting, form: str) -> Result:
    """Queries, keys and values of both kinds of head, and relation queries and keys, of one input."""
    sizes, n = size(setting.dry_run), DRY_LENGTH if setting.dry_run else LENGTH
    d = sizes.d_model
    widths = [d // 2, d // 4, d // 4, d // 2, d // 4, d // 2, d // 2]
    x, weights = drawn(setting, BATCH * n, d), [drawn(setting, width, d) for width in widths]

    def forward() -> torch.Tensor:
        if form == "one product":
            return F.linear(x, torch.cat(weights))
        return torch.cat([F.linear(x, weight) for weight in weights], -1)

    return step_of(forward, [x, *weights], setting)


def stalls(kernel: str) -> Result:
    """What the warps of a kernel wait for, by Nsight Compute."""
    found = shutil.which("ncu")
    if found is None:
        raise LeftOut("ncu is not on the PATH")
    program = [sys.executable, "-c", "from benchmarks.gpu.right import small_cases; small_cases()"]
    sections = ["--section", "WarpStateStats", "--section", "SpeedOfLight"]
    status, lines = command([found, "--kernel-name", kernel, "--launch-count", "1", *sections, *program])
    if status:
        raise LeftOut(f"ncu ended with status {status}: {lines[-1] if lines else ''}")
    return {"lines": lines, "says": lines[-1] if lines else "nothing"}


def conclude(results: Mapping[str, Result]) -> list[str]:
    """The first form of each part beside the second."""
    pairs = [(f"symbolic attention, {{}}, {way}", LAYOUTS) for way in ("default", "cudnn", "flash")]
    lines = []
    for name, forms in [*pairs, ("projections, {}", FORMS)]:
        first, second = (results.get(name.format(form), {}) for form in forms)
        if "median" in first and "median" in second:
            lines.append(f"{name.format(forms[1])}: {second['median'] / first['median']:.2f}x the time of {forms[0]}")
    return lines


STEP = Step(
    "parts", 2, "symbolic attention and projections, each in two forms; stalls of two kernels", phases, conclude
)
