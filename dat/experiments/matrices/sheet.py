"""A picture of matrices and their answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dual_attention._base.extras import require
from dual_attention._base.plots import empty_figure, house_style, save_figure

from ...data.matrices import CONTEXT, DRAWN
from ...training.configs import check_seed
from .config import MatricesConfig, MatricesDataConfig

WORDS = {
    "train": "as in training",
    "values": "with values never trained on",
    "pairs": "with rules never trained on with their attributes",
    "noise": "with more attributes of noise",
}
SIDE = 40


@dataclass(frozen=True)
class MatricesSheet:
    """A matrix of each set, drawn whatever form models read, with its answers."""

    out: str
    """Picture (PNG) to write; it is not overwritten."""
    seed: int = 0
    """Seed of the matrices."""

    def __post_init__(self) -> None:
        check_seed(self)

    def draw(self) -> None:
        """Draw it."""
        data = MatricesDataConfig(form="drawings", attributes=len(DRAWN), width=SIDE)
        config = MatricesConfig(seed=self.seed, data=replace(data, n_test=1))
        rectangle = require("matplotlib.patches", extra="train").Rectangle
        with house_style():
            figure = empty_figure((10.0, 2.0 * len(data.sets)))
            for row, name in enumerate(data.sets):
                panels, labels, _ = config.draw(name, 1, config.seed_of(f"sheet of {name}"))
                bottom, height = 1 - (row + 0.92) / len(data.sets), 0.76 / len(data.sets)
                figure.text(0.02, bottom + height * 1.03, WORDS[name], fontsize=10, fontweight="bold")
                places = [(0.02 + 0.0524 * (i % 3), bottom + height * (2 - i // 3) / 3) for i in range(CONTEXT)]
                places += [(0.26 + 0.09 * i, bottom + height / 6) for i in range(data.answers)]
                for number, (place, panel) in enumerate(zip(places, panels[0], strict=True)):
                    size = (0.05, height / 3.2) if number < CONTEXT else (0.08, height / 1.6)
                    axes: Any = figure.add_axes((*place, *size))
                    axes.imshow(panel.numpy(), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
                    axes.axis("off")
                    if number == CONTEXT + int(labels):
                        edge = rectangle((-0.5, -0.5), SIDE, SIDE, fill=False, linewidth=3, edgecolor="#1f6fb4")
                        edge.set_clip_on(False)
                        axes.add_patch(edge)
                figure.text(0.145, bottom + height / 9, "?", fontsize=13, ha="center")
            save_figure(figure, Path(self.out), dpi=110)
