"""Measured learning curves beside the published ones, as a table in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

from .config import TASK_NAMES
from .figures import ordered
from .grid import Row
from .presets import LABELS, ORDER
from .problem import TEST_SETS
from .published import published_curve

SET_TITLES = {
    "test": "Pentominoes, as in training",
    "hexominoes": "Hexominoes, never trained on",
    "stripes": "Stripes, never trained on",
}


def cell_text(values: Sequence[float], published: float | None) -> str:
    """``mean ± standard error (published)`` in percent; the error needs two trials."""
    text = f"{fmean(values):.1f}"
    if len(values) > 1:
        text += f" ± {stdev(values) / len(values) ** 0.5:.1f}"
    return f"{text} ({'–' if published is None else f'{published:.1f}'})"


def comparison_table(rows: Sequence[Row], object_set: str) -> str:
    """One row for each task and model, one column for each training-set size: measured, and published in brackets."""
    lines = []
    for sizes, tasks in size_groups(rows):
        lines += ["| task | model | " + " | ".join(f"{n:,}" for n in sizes) + " |", "|---|---|" + "---|" * len(sizes)]
        for task in tasks:
            for model in ordered({row["model"] for row in rows if row["task"] == task}, ORDER):
                published = dict(published_curve(object_set, task, model))
                cells = []
                for n in sizes:
                    mine = [r for r in rows if (r["task"], r["model"], r["n_train"]) == (task, model, n)]
                    values = [float(r[object_set]) for r in mine if object_set in r]
                    cells.append(cell_text(values, published.get(n)) if values else "")
                lines.append(f"| {task} | {LABELS.get(model, model)} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def size_groups(rows: Sequence[Row]) -> list[tuple[list[int], list[str]]]:
    """Tasks that were run with the same training-set sizes, together with these."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for task in ordered({row["task"] for row in rows}, TASK_NAMES):
        sizes = tuple(sorted({int(row["n_train"]) for row in rows if row["task"] == task}))
        groups.setdefault(sizes, []).append(task)
    return [(list(sizes), tasks) for sizes, tasks in groups.items()]


def comparison_text(rows: Sequence[Row]) -> str:
    """The tables of all object sets as one Markdown text."""
    trials = sorted({len(seeds) for seeds in trials_of(rows).values()})
    count = str(trials[0]) if len(trials) == 1 else f"{trials[0]} to {trials[-1]}"
    parts = [
        "# Measured beside published",
        "",
        f"Accuracy in percent after the last epoch: mean ± standard error of {count} trials, and in brackets the "
        "published mean.",
        "",
    ]
    for object_set in TEST_SETS:
        parts += [f"## {SET_TITLES[object_set]}", "", comparison_table(rows, object_set)]
    return "\n".join(parts).rstrip() + "\n"


def trials_of(rows: Sequence[Row]) -> dict[tuple[str, str, int], set[int]]:
    """Seeds of each task, model and training-set size."""
    seeds: dict[tuple[str, str, int], set[int]] = {}
    for row in rows:
        seeds.setdefault((row["task"], row["model"], int(row["n_train"])), set()).add(int(row["seed"]))
    return seeds
