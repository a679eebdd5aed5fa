"""Relational Games with handwritten digits as an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from ...data.relational_games.dataset import RelationalGames as Images
from ...data.relational_games.digits import DIGIT_TASKS, digit_splits
from ...sweeps.experiment import CurvesFigure
from ...training.experiment import Prepared
from ...training.metrics import Row
from ..relational_games.image_games import ImageGames, image_axes, prepare_images
from .config import DigitDataConfig, DigitGamesConfig, DigitGamesGrid
from .sheet import DigitSheet

TEST_SETS = {"test": "classes trained on, by new hands", "unseen": "classes never trained on"}
"""Evaluation sets of the final accuracies."""

GRIDS = {
    # Which models see that two digits are the same, and see it of digits that they never met.
    "digits": DigitGamesGrid(out="runs/digit-games", seeds=10, sizes=(2000,)),
}


@lru_cache(maxsize=2)  # for the models of a sweep that come next on the same task, size and seed
def load_splits(task: str, data: DigitDataConfig, seed: int) -> dict[str, Images]:
    """The splits of a run by name."""
    sizes: dict[str, int] = {"n_val": data.n_val, "n_test": data.n_test, "n_unseen": data.n_unseen}
    return digit_splits(task, data.n_train, **sizes, seed=seed, source=data.source, unseen=data.unseen)


class DigitGames(ImageGames[DigitGamesConfig]):
    """The tasks of Relational Games between real things, whose pixels differ where they are the same."""

    name = "digit-games"
    title = "Relational Games with handwritten digits"
    about_train = "Train one model on one task between handwritten digits, in a new run folder."
    about_reproduce = (
        "Accuracy between handwritten digits, of classes trained on and of others. Cells that are done are skipped, so "
        "the same command continues after Ctrl-C. Writes results.csv, comparison.md and figures/ into the folder."
    )
    about_plot = "Learning curves from the results of one or several grids, finished or not."
    about_data = "Draw a contact sheet: examples of every task with digits trained on and others."
    Config = DigitGamesConfig
    Grid = DigitGamesGrid
    Sheet = DigitSheet
    shipped: ClassVar[Mapping[str, Any]] = {
        "configs/dat-0+2-sym.yaml": DigitGamesConfig(),
        **{f"grids/{name}.yaml": grid for name, grid in GRIDS.items()},
    }

    set_title = "digits"
    set_names: ClassVar[Mapping[str, str]] = {"val": "classes trained on, validation", **TEST_SETS}

    axes = image_axes(DIGIT_TASKS)
    digests = ("data", "loop", "optim")
    measures: ClassVar[Mapping[str, str]] = {**TEST_SETS, "fall": "fall from the former classes to the latter"}
    figures = (CurvesFigure("digits.png", "Relational Games with handwritten digits", tuple(TEST_SETS)),)

    def prepare(self, config: DigitGamesConfig, *, cache: Path, run: Path | None = None) -> Prepared:
        return prepare_images(config, lambda: load_splits(config.task, config.data, config.data_seed))

    def headline(self, result: Mapping[str, Any]) -> str:
        return f"{result['task']} between digits, {result['n_train']:,} examples: {result['model']}"

    def row(self, result: Mapping[str, Any]) -> Row:
        row = super().row(result)
        return {**row, "fall": round(row["test"] - row["unseen"], 3)}

    def chance_accuracy(self, config: DigitGamesConfig) -> float:
        return 0.5

    def describe_run(self, row: Row) -> str:
        return f"{row['model']} on {row['task']} between digits, {row['n_train']:,} images, seed {row['seed']}"
