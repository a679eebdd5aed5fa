"""The figure of lengths of training beside the published runs."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from dual_attention._base.extras import require
from dual_attention._base.plots import house_style, legend_below, matplotlib_figure, save_figure

from .protocol_cells import CellFit

SIZES = {250: "#9ecae1", 500: "#4292c6", 1000: "#08519c", 2000: "#041f3f"}
"""Colours of training-set sizes."""
HALVES = {
    True: {"marker": "o", "linestyle": "-", "label": "cells of the choice"},
    False: {"marker": "s", "linestyle": "none", "markerfacecolor": "white", "label": "cells held out"},
}
"""Looks of the half that the length is chosen on, and of the one held out."""
BATCH = 512
"""Size of the batches of the curves; other candidates are not drawn."""
GREY = "#444444"


def draw_lengths(cells: Sequence[CellFit], path: Path) -> None:
    """Draw score, loss over the published one, and accuracy less the published one, against epochs.

    The score is of all cells of a half, the others are means over the cells of each size.
    """
    with house_style():
        figure, axes = matplotlib_figure(1, 3, figsize=(12, 3.8))
        halves, sizes = set(), set()
        for chosen_on, look in HALVES.items():
            half = [cell for cell in cells if cell.candidate[0] == BATCH and cell.chosen_on == chosen_on]
            if not half:
                continue
            halves.add(chosen_on)
            axes[0].plot(*along(half, lambda own: fmean(sum(c.squares) for c in own)), color=GREY, **look)
            for size, colour in SIZES.items():
                own = [cell for cell in half if cell.n_train == size]
                if own:
                    sizes.add(size)
                    axes[1].plot(*along(own, lambda c: math.exp(fmean(x.log_ratio for x in c))), color=colour, **look)
                    axes[2].plot(*along(own, lambda c: fmean(x.difference for x in c)), color=colour, **look)
        titles = ("score (lower is better)", "test loss, ours / published", "accuracy, ours − published (points)")
        for axis, title, level in zip(axes, titles, (None, 1.0, 0.0), strict=True):
            axis.set_title(title, loc="left")
            axis.set_xlabel("epochs")
            axis.xaxis.set_major_locator(require("matplotlib.ticker", extra="train").MultipleLocator(25))
            if level is not None:
                axis.axhline(level, color="#606060", linewidth=1.2, linestyle=":")
        axes[0].set_ylim(bottom=0)
        figure.suptitle("Relational Games: lengths of training beside the published runs", x=0.01, ha="left")
        figure.tight_layout()
        line = require("matplotlib.lines", extra="train").Line2D
        handles = [line([], [], color=GREY, **HALVES[half]) for half in sorted(halves, reverse=True)]
        handles += [line([], [], color=SIZES[size], label=f"{size:,} images") for size in sorted(sizes)]
        legend_below(figure, handles)
        save_figure(figure, path)


def along(cells: Sequence[CellFit], value: Callable[[Sequence[CellFit]], float]) -> tuple[Sequence[int], Sequence[Any]]:
    """Epochs, and a value of the cells of each."""
    epochs = sorted({cell.candidate[1] for cell in cells})
    return epochs, [value([cell for cell in cells if cell.candidate[1] == e]) for e in epochs]
