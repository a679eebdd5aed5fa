"""Results in words and tables, for the terminal and for Markdown."""

from collections.abc import Sequence
from typing import Any

from benchmarks.results import Row, SideResult, spread

HEADINGS = ("side", "median", "quartiles", "minimum", "ours is", "difference", "least: arithmetic", "bytes")
LONG = 26
"""Letters beyond which a remark may run into the next column of plain text."""
MEMORY_HEADINGS = ("side", "allocated", "resident", "ours is", "difference")


def seconds(value: float) -> str:
    """Three digits in a suitable unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}" if value < 1000 * size else f"{value:.0f} {unit}"
    return f"{value * 1e6:.3g} µs"


def mebibytes(value: int | None) -> str:
    """Bytes in MiB."""
    return "" if value is None else f"{value / 2**20:.1f} MiB"


def relation(side: SideResult, *, memory: bool) -> str:
    """A side's figure relative to ours, in words."""
    if side.refused:
        return f"refused: {side.refused}"
    if side.ratio is None or side.name == "ours":
        return ""
    if memory:
        return f"{side.ratio:.2f}x smaller" if side.ratio >= 1 else f"{1 / side.ratio:.2f}x its memory"
    return f"{side.ratio:.2f}x faster" if side.ratio >= 1 else f"{1 / side.ratio:.2f}x its time"


def agreement(side: SideResult) -> str:
    """The difference from the yardstick."""
    if side.agrees is None:
        return "not compared"
    return f"{side.difference:.1e} from {side.yardstick}{'' if side.agrees else ': DISAGREES'}"


def cells(side: SideResult, row: Row) -> list[str]:
    """One line of a table."""
    if side.lost:
        return [side.name, f"{side.status}: {side.note}"]
    last = [relation(side, memory=row.memory), agreement(side)]
    if row.memory:
        sizes = [mebibytes(side.allocated), mebibytes(side.resident)]
        return [side.name, *(sizes if side.status == "measured" else ["only a check", ""]), *last]
    summary = side.summary
    if summary is None:
        return [side.name, "only a check", "", "", *last]
    quartiles = f"{seconds(summary.first_quartile)} – {seconds(summary.third_quartile)}"
    median = seconds(summary.median)
    if row.quantity == "generate":
        median += f" ({1 / summary.median:.3g} tokens/s)"
    floors = [seconds(floor) for floor in (side.floor_arithmetic, side.floor_bytes) if floor is not None]
    return [side.name, median, quartiles, seconds(summary.minimum), *last, *floors]


def title(row: Row) -> str:
    """Title of a table."""
    what = {
        "forward": "forward",
        "step": "forward + backward",
        "generate": "generation, each token",
        "decode": "one token",
    }[row.quantity]
    return f"{row.suite}: {row.label}, n = {row.length}, {'peak memory, ' if row.memory else ''}{what}"


def table(row: Row) -> list[list[str]]:
    """Headings and lines, all of one width."""
    headings = MEMORY_HEADINGS if row.memory else HEADINGS
    lines = [list(headings), *(cells(side, row) for side in row.sides)]
    return [line + [""] * (len(headings) - len(line)) for line in lines]


def plain(row: Row) -> str:
    """The table as aligned text; long remarks stand at the end of their line."""
    lines = table(row)
    columns = list(zip(*lines, strict=True))
    widths = [max(len(cell) for cell in column if len(cell) <= LONG) for column in columns]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([title(row), *text, ""])


def markdown(about: dict[str, Any], rows: Sequence[Row], conclusions: Sequence[str]) -> str:
    """The whole report."""
    parts = [f"# Benchmark, {about['date']}", "", *(f"- {line}" for line in setting(about)), ""]
    for row in rows:
        headings, *lines = (["" if not cell else cell.replace("|", "\\|") for cell in line] for line in table(row))
        parts += [f"## {title(row)}", "", f"| {' | '.join(headings)} |", f"|{' --- |' * len(headings)}"]
        parts += [f"| {' | '.join(line)} |" for line in lines]
        parts.append("")
    if conclusions:
        parts += ["## In short", "", *(f"- {line}" for line in conclusions), ""]
    return "\n".join(parts)


def spreads(rows: Sequence[Row], other_runs: Sequence[Sequence[Row]] = ()) -> list[str]:
    """For each label, how far times lie apart: of ours, and at most of any side.

    With other runs these are the medians of all runs, otherwise the quartiles of this one, relative to their median.
    """
    earlier: dict[tuple[str, ...], list[float]] = {}
    for row in (row for run in other_runs for row in run):
        for side in row.sides:
            if side.summary:
                earlier.setdefault(key_of(row, side), []).append(side.summary.median)
    found: dict[tuple[str, str, int], list[tuple[str, float]]] = {}
    for row in rows:
        for side in row.sides:
            if side.summary:
                medians = [*earlier.get(key_of(row, side), ()), side.summary.median]
                group = found.setdefault((row.suite, row.label, len(medians)), [])
                group.append((side.name, side.summary.spread if len(medians) == 1 else spread(medians)))
    lines = []
    for (suite, label, runs), group in found.items():
        if all(name != "ours" for name, _ in group):  # sides that earlier runs did not have
            continue
        ours, worst = [size for name, size in group if name == "ours"], max(size for _, size in group)
        what = "quartiles" if runs == 1 else f"medians of {runs} runs"
        ends = dict.fromkeys(f"{size:.0%}" for size in (min(ours), max(ours)))
        lines.append(
            f"spread, {suite}, {label}: {what} of ours {' to '.join(ends)} apart, of any side at most {worst:.0%}"
        )
    return lines


def key_of(row: Row, side: SideResult) -> tuple[str, ...]:
    """Tells what was measured, in any run."""
    return row.suite, row.label, str(row.length), row.quantity, side.name


def setting(about: dict[str, Any]) -> list[str]:
    """Lines on the machine, the settings and the versions."""
    hardware, rates, versions, git = (about[key] for key in ("hardware", "rates", "versions", "git"))
    settings = about["settings"]
    commit = "unknown" if git["commit"] is None else git["commit"][:12] + (", with changes" if git["dirty"] else "")
    published = about["published"]
    gpu = hardware.get("gpu")
    lines = [
        f"{hardware['cpu']}, {hardware['cores']} cores, {hardware['threads']} threads, {hardware['cpu_capability']}",
        f"{settings['dtype']} on {settings['device']}; {about['repeats']} samples of each side, in turn",
        f"rates: {rates['multiply_adds'] / 1e9:.1f} G multiply-adds/s, {rates['bytes'] / 1e9:.1f} GB/s moved",
        "versions: " + ", ".join(f"{name} {version}" for name, version in versions.items() if version),
        f"commit {commit}",
        "published package: "
        + (f"{published['dual_attention']} with torch {published['torch']}" if published else "not run"),
    ]
    if gpu:
        lines.insert(1, f"{gpu['name']}, {gpu['memory_bytes'] / 2**30:.0f} GiB, CUDA {gpu['cuda']}")
    if about["quick"]:
        lines.append("a quick trial in small sizes: nothing here is a measurement")
    if about["unfinished"]:
        lines.append(f"unfinished: {about['unfinished']}")
    return lines
