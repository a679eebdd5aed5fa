"""Sizes of the kernels' tiles against their neighbours: time of each kernel by itself, registers, spills.

A neighbour doubles or halves one size, or rows and warps together. Defaults and neighbours of a shape are first
compiled, in many processes; then they are timed, and their results are held against those of the default.
"""

import functools
import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.gpu.observing import timed
from benchmarks.gpu.plan import MANY, Item, LeftOut, Phase, Result, Setting, Step
from benchmarks.report import seconds
from dual_attention.functional.triton.support import INSTALLED
from dual_attention.functional.triton.tuning import Tile, Tuning, tuning

KERNELS = {
    "forward": "forward",
    "queries": "backward_q",
    "relation_queries": "backward_u",
    "keys": "backward_k",
    "relation_keys": "backward_w",
    "table": "backward_table",
}
"""Fields of a :class:`.Tuning`, and the methods of a call that run their kernels."""


class Shape(NamedTuple):
    """Of a call, in the letters of :mod:`dual_attention.functional.triton.launch`; causal."""

    n_relations: int
    p: int
    relative: bool = False
    width: int = 64
    heads: int = 8
    groups: int = 4
    batch: int = 4
    n: int = 1024

    @property
    def label(self) -> str:
        return f"R={self.n_relations}, p={self.p}, D={self.width}{', relative symbols' if self.relative else ''}"


DEFAULT = " (default)"
SHAPES = (Shape(64, 8), Shape(64, 8, relative=True), Shape(128, 8, width=128), Shape(8, 64))
DRY = (Shape(4, 4, relative=True, width=16, heads=2, groups=1, batch=1, n=32),)


def phases(setting: Setting) -> list[Phase]:
    """Shape by shape, defaults and their neighbours are compiled; then they are timed."""
    found = []
    for shape in DRY if setting.dry_run else SHAPES:
        default = sizes(shape, setting)
        compiled, measured = [], []
        for kernel in KERNELS:
            if kernel == "table" and not shape.relative:
                continue
            tiles = [getattr(default, kernel), *neighbours(getattr(default, kernel))]
            for tile in tiles[:2] if setting.dry_run else tiles:
                name = f"{shape.label}: {kernel} {label(tile)}{DEFAULT if tile == tiles[0] else ''}"
                run = functools.partial(compile_one, setting, shape, kernel, tile)
                compiled.append(Item(f"compiled, {name}", run))
                measured.append(Item(name, functools.partial(measure, setting, shape, kernel, tile)))
        found += [Phase(compiled, processes=MANY)] if setting.device == "cuda" else []
        found.append(Phase(measured))
    return found


def sizes(shape: Shape, setting: Setting) -> Tuning:
    """The default ones; those for Hopper where there is no GPU."""
    memory = 227 * 1024
    if setting.device == "cuda":
        memory = torch.cuda.get_device_properties(0).shared_memory_per_block_optin
    dtype = getattr(torch, setting.dtype)
    return tuning(shape.width, shape.n_relations * shape.p, shape.relative, dtype, None if setting.dry_run else memory)


def label(tile: Tile) -> str:
    return f"{tile.receivers}x{tile.senders}x{tile.columns}, {tile.warps} warps, {tile.stages} stages"


def neighbours(tile: Tile) -> list[Tile]:
    """One size doubled or halved, rows and warps together, or one stage more or less."""
    found = []
    for field, least, most in (("receivers", 16, 256), ("senders", 16, 256), ("columns", 16, 1024), ("warps", 2, 8)):
        size = getattr(tile, field)
        found += [tile._replace(**{field: other}) for other in (size // 2, size * 2) if least <= other <= most]
    for field in ("receivers", "senders"):
        half = tile._replace(**{field: getattr(tile, field) // 2, "warps": tile.warps // 2})
        found += [half] if getattr(half, field) >= 16 and half.warps >= 4 else []
    return found + [tile._replace(stages=other) for other in (tile.stages - 1, tile.stages + 1) if 1 <= other <= 4]


class Noting:
    """A kernel whose launches tell what was launched."""

    def __init__(self, kernel: Any, note: Callable[[Any], None]) -> None:
        self.kernel, self.arg_names, self.note = kernel, kernel.arg_names, note

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda **arguments: self.note(self.kernel[grid](**arguments))


def make_call(setting: Setting, shape: Shape, note: Callable[[Any], None]) -> Any:
    """A call of the fused operation in default tiles, each kernel of which can run by itself: what kernels hand on to
    one another is drawn, so that only those are compiled that are asked for."""
    from dual_attention.functional.triton.launch import Call, KernelArguments

    class Noted(Call):
        def launch(self, kernel: Any, *arguments: Any, **own: Any) -> None:
            super().launch(Noting(kernel, note), *arguments, **own)

    torch.manual_seed(0)
    s, dtype = shape, getattr(torch, setting.dtype)

    def normal(*size: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.randn(size, device=setting.device, dtype=dtype)

    q, k = normal(s.batch, s.heads, s.n, s.width), normal(s.batch, s.groups, s.n, s.width)
    u, w = normal(s.batch, s.n, s.n_relations, s.p), normal(s.batch, s.n, s.n_relations, s.p)
    table = normal(2 * s.n + 1, s.groups, s.width) if s.relative else torch.randn_like(k)
    max_offset = s.n if s.relative else None
    masks, order, scales = (None, None, None), (True, None, 0), (s.width**-0.5, s.p**-0.5)
    tiles = sizes(shape, setting).numbers()
    call = Noted(KernelArguments(q, k, u, w, table, *masks, max_offset, 0, *order, *scales, tiles, True))
    rows = (s.batch, s.heads, s.n)
    call.operands = call.operands._replace(
        out_symbols=torch.randn_like(q),
        grad_symbols=torch.randn_like(q),
        grad_relations=normal(*rows, s.n_relations),
        log_sum=torch.full(rows, math.log2(s.n) + 1, device=setting.device),
        delta=normal(1 + s.n_relations, *rows, dtype=torch.float32),
        attended=normal(*rows, s.n_relations, s.p),
        grad_keys=normal(*rows, s.n_relations, s.p),
    )
    return call


def tensors(value: Any) -> list[Tensor]:
    return [t.double() for t in (value if isinstance(value, tuple) else (value,)) if t.numel()]


def launched(setting: Setting, shape: Shape, kernel: str, tile: Tile) -> tuple[Callable[[], Any], list[Any], float]:
    """The kernel in that tile as a function, what it launched, and how far its results are from the default's."""
    if INSTALLED is None:
        raise LeftOut("triton is not installed")
    launches: list[Any] = []
    call = make_call(setting, shape, launches.append)
    before = (call.backward_q()[1],) if kernel == "table" else ()

    def run() -> Any:
        return getattr(call, KERNELS[kernel])(*before)

    wanted = tensors(run())
    call.sizes = call.sizes._replace(**{kernel: tile})
    launches.clear()
    try:
        found = tensors(run())
    except Exception as error:
        if type(error).__name__ == "OutOfResources":  # of Triton
            raise LeftOut(str(error)) from None
        raise
    pairs = zip(found, wanted, strict=True)
    return run, launches, max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in pairs)


def compile_one(setting: Setting, shape: Shape, kernel: str, tile: Tile) -> Result:
    """Registers, spilled ones and shared memory of each launch; leaves the kernel in Triton's cache on the disk."""
    _, launches, error = launched(setting, shape, kernel, tile)
    found = [{"registers": one.n_regs, "spills": one.n_spills, "shared": one.metadata.shared} for one in launches]
    says = "; ".join(f"{one['registers']} registers, {one['spills']} spills, {one['shared']} B shared" for one in found)
    return {"launches": found, "difference": error, "says": says}


def measure(setting: Setting, shape: Shape, kernel: str, tile: Tile) -> Result:
    """Time of the kernel in that tile."""
    run, _, error = launched(setting, shape, kernel, tile)
    samples = timed(run, setting)
    median = statistics.median(samples)
    agrees = error <= (1e-4 if setting.dtype == "float32" else 8e-2)
    return {"samples": samples, "median": median, "difference": error, "agrees": agrees, "says": seconds(median)}


def conclude(results: Mapping[str, Result]) -> list[str]:
    """The fastest tile of each kernel beside the default."""
    kernels: dict[str, dict[str, float]] = {}
    for key, result in results.items():
        if result.get("agrees"):
            shape, _, named = key.partition(": ")
            kernel, _, tile = named.partition(" ")
            kernels.setdefault(f"{shape}: {kernel}", {})[tile] = result["median"]
    lines = []
    for kernel, times in kernels.items():
        default, best = [tile for tile in times if tile.endswith(DEFAULT)], min(times, key=lambda tile: times[tile])
        if default:
            lines.append(f"{kernel}: {best} is {times[default[0]] / times[best]:.2f}x as fast as {default[0]}")
    return lines


STEP = Step("tiles", 5, "sizes of the kernels' tiles against their neighbours, registers and spills", phases, conclude)
