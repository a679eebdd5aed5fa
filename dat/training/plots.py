"""The plot of a run."""

from pathlib import Path
from typing import Any

from dual_attention._base.colours import BLUE, GREY, MUTED
from dual_attention._base.plots import count_along, house_style, legend_below, matplotlib_figure, save_figure, scale_log

from .metrics import read_rows


def plot_run(
    metrics: Path,
    path: Path,
    *,
    title: str,
    over: str = "epoch",
    names: tuple[str, str] = ("loss", "accuracy"),
    dropout: bool = True,
    chance: float | None = None,
) -> None:
    """Two metrics of one run over its epochs or steps, from its ``metrics.jsonl``.

    Args:
        over: the key of a row that is the horizontal axis.
        dropout: whether the numbers of training are measured with dropout.
        chance: the accuracy that guessing reaches, drawn where accuracy is.
    """
    rows = read_rows(metrics)
    with house_style():
        figure, axes = matplotlib_figure(1, 2, figsize=(8.5, 3.4))
        handles: dict[str, Any] = {}
        for axis, name in zip(axes, names, strict=True):
            for split, colour in (("train", GREY), ("val", BLUE)):
                points = [(row[over], row[f"{split}_{name}"]) for row in rows if f"{split}_{name}" in row]
                if points:
                    label = {"train": f"training{' (with dropout)' * dropout}", "val": "validation"}[split]
                    line = axis.plot(*zip(*points, strict=True), color=colour, label=label, marker="o", markersize=2.5)
                    handles.setdefault(label, line[0])
            axis.set(xlabel=over, ylabel=name.replace("_", " "))
            count_along(axis)
            if name == "perplexity":
                scale_log(axis)
            if name == "accuracy":
                axis.set_ylim(0, 1.02)
                if chance is not None:
                    handles["chance"] = draw_level(axis, chance)
        figure.suptitle(title, fontsize=12)
        figure.tight_layout()
        legend_below(figure, list(handles.values()))
        save_figure(figure, path)


def draw_level(axis: Any, level: float) -> Any:
    """Draw the level that guessing reaches; returns the line."""
    return axis.axhline(level, color=MUTED, linewidth=1.2, linestyle=":", zorder=1.5, label="chance")
