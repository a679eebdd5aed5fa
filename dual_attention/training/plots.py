"""The plot of a run, and the look that all plots share."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from .._extras import require
from .metrics import read_rows

STYLE: dict[str, Any] = {
    "figure.dpi": 100,
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
}


def matplotlib_figure(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """``plt.subplots(*args, **kwargs)`` drawn off screen."""
    require("matplotlib", extra="train").use("Agg")
    return require("matplotlib.pyplot", extra="train").subplots(*args, **kwargs)


def house_style() -> AbstractContextManager[None]:
    """Context in which figures take :data:`STYLE`."""
    require("matplotlib", extra="train").use("Agg")
    return require("matplotlib.pyplot", extra="train").rc_context(STYLE)


def save_figure(figure: Any, path: Path, *, dpi: int = 150) -> None:
    """Write a PNG of ``dpi`` pixels an inch, atomically, and close the figure."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp.png")
    figure.savefig(temporary, dpi=dpi, bbox_inches="tight", facecolor="white")
    os.replace(temporary, path)
    require("matplotlib.pyplot", extra="train").close(figure)


def plot_run(
    metrics: Path,
    path: Path,
    *,
    title: str,
    over: str = "epoch",
    names: tuple[str, str] = ("loss", "accuracy"),
    dropout: bool = True,
) -> None:
    """Two metrics of one run over its epochs or steps, from its ``metrics.jsonl``.

    Args:
        over: the key of a row that is the horizontal axis.
        dropout: whether the numbers of training are measured with dropout.
    """
    rows = read_rows(metrics)
    with house_style():
        figure, axes = matplotlib_figure(1, 2, figsize=(8.5, 3.4))
        for axis, name in zip(axes, names, strict=True):
            for split, colour in (("train", "#7f7f7f"), ("val", "#1f77b4")):
                points = [(row[over], row[f"{split}_{name}"]) for row in rows if f"{split}_{name}" in row]
                if points:
                    label = {"train": f"training{' (with dropout)' * dropout}", "val": "validation"}[split]
                    axis.plot(*zip(*points, strict=True), color=colour, label=label, marker="o", markersize=2.5)
            axis.set(xlabel=over, ylabel=name.replace("_", " "))
            if name == "perplexity":
                axis.set_yscale("log")
        figure.suptitle(title, fontsize=12)
        figure.tight_layout()
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=2)
        save_figure(figure, path)
