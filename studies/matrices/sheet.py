"""A picture of matrices and their answers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dat.training.configs import check_seed
from dual_attention._base.plots import empty_figure, house_style, save_figure
from studies.matrices.config import MatricesConfig, MatricesDataConfig
from studies.matrices.data import CONTEXT, DRAWN

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
        config, rows = MatricesConfig(seed=self.seed, data=data), len(data.sets)
        with house_style():
            figure = empty_figure((10.0, 2.0 * rows))
            for row, name in enumerate(data.sets):
                panels, labels, _ = config.draw(name, 1, config.seed_of(f"sheet of {name}"))
                bottom, height = 1 - (row + 0.92) / rows, 0.76 / rows
                figure.text(0.02, bottom + height * 1.03, name, fontsize=10, fontweight="bold")
                for i, panel in enumerate(panels[0]):
                    x, y = 0.02 + 0.0524 * (i % 3), bottom + height * (2 - i // 3) / 3
                    place = (x, y, 0.05, height / 3.2)
                    if i >= CONTEXT:
                        place = (0.26 + 0.09 * (i - CONTEXT), bottom + height / 6, 0.08, height / 1.6)
                    axes: Any = figure.add_axes(place)
                    axes.imshow(panel.numpy(), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
                    axes.axis("off")
                    if i == CONTEXT + int(labels):
                        axes.set_title("right", fontsize=9)
                figure.text(0.145, bottom + height / 9, "?", fontsize=13, ha="center")
            save_figure(figure, Path(self.out), dpi=110)
