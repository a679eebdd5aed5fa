"""The analysis that ANNOUNCED.md fixes: paired differences of bits per byte on three axes, their tests and readings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

from dual_attention._files import write_atomically
from dual_attention.model_analysis.measures.intervals import half_width, holm, paired_p
from dual_attention.model_analysis.views.plots import house_style, matplotlib_figure, save_figure

from ...training.metrics import Row
from .arms import ARMS, COLOURS, LABELS

MEASURE = "bits_per_byte"
BOUND = 0.005
"""Differences within it count as none, bits per byte."""
LEVEL = 0.05
FEWEST = 3
"""Pairs that a difference needs."""

PRIMARY = {"parameters": ("DAT", "T"), "operations": ("DAT", "T-operations"), "time": ("DAT", "T-time")}
"""What is held equal, and the arms that are compared."""
SECONDARY = {
    "RCA or a Transformer": ("RCA", "T"),
    "a gate or none": ("T-gated", "T"),
    "relations or a gate": ("DAT", "T-gated"),
    "relations or RCA": ("DAT", "RCA"),
}
"""Differences at equal parameters that are reported beside them."""


@dataclass(frozen=True)
class Difference:
    """Mean difference of an arm from another, paired by seed, with its test.

    Attributes:
        question: what is held equal, or asked.
        arm, against: names of the arms.
        values: differences, one a seed.
        half: half of the 95 % t-interval of their mean.
        p, adjusted: of the two-sided paired t-test, and after Holm among its family.
    """

    question: str
    arm: str
    against: str
    values: tuple[float, ...]
    half: float
    p: float
    adjusted: float = math.nan

    @property
    def mean(self) -> float:
        """Mean difference; below zero the first arm is better."""
        return fmean(self.values)

    @property
    def reading(self) -> str:
        """Words that ANNOUNCED.md has for this outcome."""
        alike = abs(self.mean) + self.half < BOUND
        if self.adjusted < LEVEL:
            side = "better" if self.mean < 0 else "worse"
            return f"{side}, by less than {BOUND}" if alike else side
        return "alike" if alike else "undecided"


def widths(rows: Sequence[Row]) -> list[int]:
    """Widths of which there are arms in ``rows``."""
    return sorted({ARMS[row["model"]].d_model for row in rows if row["model"] in ARMS})


def final_values(rows: Sequence[Row], d_model: int) -> dict[str, dict[int, Row]]:
    """For each arm of a width, in order, the rows of its longest training by seed."""
    found: dict[str, dict[int, Row]] = {}
    for name in (name for name in ARMS if ARMS[name].d_model == d_model):
        own = [row for row in rows if row["model"] == name and row.get(MEASURE) is not None]
        longest = max((row["steps"] for row in own), default=0)
        found[name.removesuffix(f"-{d_model}")] = {row["seed"]: row for row in own if row["steps"] == longest}
    return {arm: by_seed for arm, by_seed in found.items() if by_seed}


def differences(rows: Sequence[Row], d_model: int, family: dict[str, tuple[str, str]]) -> list[Difference]:
    """Differences of a family of questions, of those whose two arms have enough seeds in common.

    p-values are corrected for the whole family, which was announced; those that are missing count as 1.
    """
    values = final_values(rows, d_model)
    found = []
    for question, (arm, against) in family.items():
        seeds = sorted(values.get(arm, {}).keys() & values.get(against, {}).keys())
        if len(seeds) >= FEWEST:
            pairs = tuple(values[arm][seed][MEASURE] - values[against][seed][MEASURE] for seed in seeds)
            found.append(Difference(question, arm, against, pairs, half_width(pairs), paired_p(pairs)))
    adjusted = holm([one.p for one in found] + [1.0] * (len(family) - len(found)))
    return [replace(one, adjusted=p) for one, p in zip(found, adjusted, strict=False)]


def study_text(rows: Sequence[Row]) -> str:
    """Arms, differences and readings of every width as Markdown; empty where there is no difference."""
    parts = []
    for d_model in widths(rows):
        primary, secondary = (differences(rows, d_model, family) for family in (PRIMARY, SECONDARY))
        if not primary and not secondary:
            continue
        parts += [f"## Width {d_model}", "", *_arms_table(final_values(rows, d_model), d_model), ""]
        for title, family in (("Primary, held equal", primary), ("Beside it", secondary)):
            if family:
                parts += [f"| {title} | difference of | pairs | bits per byte | p | p (Holm) | reading |"]
                parts += ["|---|---|---|---|---|---|---|", *map(_line, family), ""]
    if not parts:
        return ""
    head = [
        "# At equal parameters, operations and time",
        "",
        "Bits per byte of the validation text after the last step, lower is better. Differences are paired by seed: "
        f"mean ± half of the 95 % t-interval; alike: that interval lies within ±{BOUND}. Seconds are of training, of "
        "one thread, and depend on what else the machine did.",
        "",
    ]
    return "\n".join([*head, *parts]).rstrip() + "\n"


def _arms_table(values: dict[str, dict[int, Row]], d_model: int) -> list[str]:
    lines = ["| arm | parameters | tokens | trials | bits per byte | median seconds |", "|---|---|---|---|---|---|"]
    for arm, by_seed in values.items():
        trials = list(by_seed.values())
        numbers = [row[MEASURE] for row in trials]
        mean = f"{fmean(numbers):.4f}" + (f" ± {half_width(numbers):.4f}" if len(numbers) > 1 else "")
        lines.append(
            f"| {LABELS[f'{arm}-{d_model}']} | {trials[0]['parameters']:,} | {trials[0]['tokens']:,.0f} "
            f"| {len(trials)} | {mean} | {median(row['seconds'] for row in trials):.0f} |"
        )
    return lines


def _line(one: Difference) -> str:
    difference = f"{one.mean:+.4f} ± {one.half:.4f}"
    return (
        f"| {one.question} | {one.arm} − {one.against} | {len(one.values)} | {difference} | {one.p:.2g} "
        f"| {one.adjusted:.2g} | {one.reading} |"
    )


def write_study(rows: Sequence[Row], path: Path) -> None:
    """Write :func:`study_text`, if there is anything to write."""
    if text := study_text(rows):
        write_atomically(path, text)


def draw_study(rows: Sequence[Row], path: Path) -> None:
    """Draw the differences of every width as intervals beside the bound; nothing where there are none."""
    found = {
        d_model: [
            (one, family is PRIMARY) for family in (PRIMARY, SECONDARY) for one in differences(rows, d_model, family)
        ]
        for d_model in widths(rows)
    }
    found = {d_model: lines for d_model, lines in found.items() if lines}
    if not found:
        return
    most = max(map(len, found.values()))
    with house_style():
        size = (3.0 + 4.2 * len(found), 1.4 + 0.45 * most)
        figure, axes = matplotlib_figure(1, len(found), figsize=size, squeeze=False)
        for axis, (d_model, lines) in zip(axes[0], found.items(), strict=True):
            axis.axvspan(-BOUND, BOUND, color="#e9e9e9", zorder=0)
            axis.axvline(0, color="#606060", linewidth=1.2, linestyle=":")
            for place, (one, _) in enumerate(lines):
                colour = COLOURS[f"{one.arm}-{d_model}"]
                filled = colour if one.adjusted < LEVEL else "white"
                axis.errorbar(one.mean, place, xerr=one.half, color=colour, marker="o", markerfacecolor=filled)
                axis.scatter(one.values, [place + 0.22] * len(one.values), color=colour, s=7, alpha=0.5, linewidths=0)
            labels = [
                f"{one.arm} − {one.against}\n({'equal ' if primary else ''}{one.question})" for one, primary in lines
            ]
            axis.set_yticks(range(len(lines)), labels, fontsize=9)
            axis.set_ylim(len(lines) - 0.4, -0.6)
            axis.set_title(f"width {d_model}", loc="left", fontweight="bold")
            axis.set_xlabel(
                "difference in bits per byte; left of 0 the first is better\n"
                "mean of pairs, 95 % t-interval, dots: pairs; filled: p < 0.05 (Holm); grey: counts as none",
                fontsize=8,
            )
            axis.grid(axis="y", visible=False)
        figure.tight_layout()
        save_figure(figure, path)
