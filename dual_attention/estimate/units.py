"""Numbers in words, and tables of text."""

from __future__ import annotations

from collections.abc import Sequence

import torch

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "fp64": torch.float64,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
"""Dtypes by name."""


def rows(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Names and texts in two columns."""
    width = max(len(name) for name, _ in pairs)
    return [f"{name:{width}}  {said}" for name, said in pairs]


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """The first column to the left, the others to the right."""
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    lines = []
    for line in table:
        cells = [f"{line[0]:{widths[0]}}", *(f"{cell:>{w}}" for cell, w in zip(line[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells))
    return lines


def dtype_name(dtype: torch.dtype) -> str:
    """``torch.bfloat16`` without the module."""
    return str(dtype).removeprefix("torch.")


def scaled(value: float, base: int, units: Sequence[str]) -> str:
    """A number with three digits and the largest unit that leaves at least one before the point."""
    power = 0
    while value >= base and power < len(units) - 1:
        value, power = value / base, power + 1
    digits = 0 if not power or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {units[power]}".rstrip()


def count(number: float) -> str:
    """Parameters: 12.3 M."""
    return scaled(number, 1000, ("", "k", "M", "B", "T"))


def flops(number: float) -> str:
    """Operations: 12.3 GFLOP."""
    if not number:
        return "0"
    return scaled(number, 1000, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP"))


def nbytes(number: int) -> str:
    """Bytes: 12.3 GiB."""
    if not number:
        return "0"
    return scaled(number, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def duration(seconds: float) -> str:
    """Seconds in words: 3.1 ms, 42 s, 3.2 min, 5.1 h, 2.3 days."""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
