"""Numbers in words, and tables of text."""

from collections.abc import Container, Sequence

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


def aligned(table: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Lines of a table whose columns have one width; those of the numbers in ``right`` end at the same place."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = [f"{cell:{'>' if i in right else '<'}{widths[i]}}" for i, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
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
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
