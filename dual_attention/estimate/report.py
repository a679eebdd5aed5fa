"""An estimate as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .result import Estimate

EXCLUDED = (
    "Counted: matrix products, a multiply-add as two operations, and tensors.",
    "Not counted: elementwise work, norms, softmax, and what an allocator adds.",
)


def report(estimate: Estimate) -> str:
    """Tables of the parts, of memory and of arithmetic."""
    e = estimate
    context = f" after {e.context_length:,}" if e.context_length else ""
    precision = dtype_name(e.dtype)
    if e.param_dtype != e.dtype:
        precision += f" (autocast; parameters in {dtype_name(e.param_dtype)})"
    passes = "training" if e.training else "inference"
    if e.checkpointing and e.training:
        passes += " with checkpointed blocks"
    lines = [
        f"{e.model}: {e.batch:,} x {e.length:,} tokens{context}, {passes}, {precision}, {e.device}",
        "",
        *parts_table(e),
        "",
        *rows(figures(e)),
        "",
        *EXCLUDED,
    ]
    return "\n".join(lines)


def parts_table(e: Estimate) -> list[str]:
    """One line for each part, and their sum."""
    header = ["part", "parameters", "forward/token"]
    if e.training:
        header += ["backward/token", "activations"]
    table = [header]
    for part in e.parts:
        line = [part.name, count(part.parameters), flops(part.forward_flops / e.tokens)]
        if e.training:
            line += [flops(part.backward_flops / e.tokens), nbytes(part.activation_bytes)]
        table.append(line)
    total = ["total", count(e.parameters), flops(e.forward_flops_per_token)]
    if e.training:
        total += [flops(e.backward_flops_per_token), nbytes(e.activation_bytes)]
    table.append(total)
    return aligned(table)


def figures(e: Estimate) -> list[tuple[str, str]]:
    """What is said of the whole model."""
    frozen = e.parameters - e.trainable_parameters
    found = [("parameters", f"{e.parameters:,}")]
    if frozen:
        found.append(("  frozen", f"{frozen:,}"))
    found.append(("  without embeddings", f"{e.non_embedding_parameters:,}"))
    found.append(("arithmetic of a step" if e.training else "arithmetic", flops(e.step_flops)))
    found.append(("  at least", flops(e.least_step_flops)))
    if e.training:
        found += [
            ("memory, training", nbytes(e.training_bytes)),
            ("  parameters", nbytes(e.parameter_bytes)),
            ("  gradients", nbytes(e.gradient_bytes)),
            ("  AdamW", nbytes(e.optimizer_bytes)),
            ("  activations", nbytes(e.activation_bytes)),
            *([("  parameters, cast", nbytes(e.cast_bytes))] if e.cast_bytes else []),
            ("  transient", nbytes(e.transient_bytes)),
        ]
    found += [
        ("memory, inference", nbytes(e.parameter_bytes + e.inference_bytes)),
        ("  parameters", nbytes(e.parameter_bytes)),
        ("  activations", nbytes(e.inference_bytes)),
    ]
    if e.cached:
        found.append(("cache, a token", nbytes(e.cache_bytes_per_token)))
        found.append(("cache, the batch", nbytes(e.cache_bytes())))
    return found


def rows(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Names and what is said of them, in two columns."""
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


def dtype_name(dtype: object) -> str:
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
