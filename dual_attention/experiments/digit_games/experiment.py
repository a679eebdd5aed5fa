"""Relational Games with handwritten digits as an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from ...data.relational_games.dataset import RelationalGames as Images
from ...data.relational_games.digits import DIGIT_TASKS, digit_splits
from ...sweeps.durations import EVALUATION_SHARE
from ...sweeps.experiment import Axis, CurvesFigure, SweptExperiment
from ...training.device import prepare_device
from ...training.experiment import Prepared
from ...training.metrics import Row
from ...training.problem import ImageExamples, Problem, classification_loss
from ...training.seeding import derive_seed
from ..relational_games.model import IMAGE_SHAPE, build_model, empty_model
from ..relational_games.presets import COLOURS, LABELS, ORDER, PRESETS
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


class DigitGames(SweptExperiment[DigitGamesConfig, Prepared]):
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
    presets = PRESETS
    shipped: ClassVar[Mapping[str, Any]] = {
        "configs/dat-0+2-sym.yaml": DigitGamesConfig(),
        **{f"grids/{name}.yaml": grid for name, grid in GRIDS.items()},
    }

    set_title = "digits"
    set_names: ClassVar[Mapping[str, str]] = {"val": "classes trained on, validation", **TEST_SETS}
    counted = "images"

    axes = (
        Axis("task", "task", "task", "tasks", order=DIGIT_TASKS),
        Axis("model", "model.name", "model", "models", order=ORDER, labels=LABELS),
        Axis("n_train", "data.n_train", "training-set size", "training images", number=True, prefix="n"),
    )
    measures = TEST_SETS
    scale = 100.0
    unit = " %"
    y_title = "accuracy (%)"
    chance = 50.0
    y_range = (45.0, 101.0)
    caption = "Accuracy in percent after the last epoch"
    colours = COLOURS
    figures = (CurvesFigure("digits.png", "Relational Games with handwritten digits", tuple(TEST_SETS)),)

    def prepare(self, config: DigitGamesConfig, *, cache: Path, run: Path | None = None) -> Prepared:
        device = prepare_device(config.machine)
        splits = load_splits(config.task, config.data, config.data_seed)
        model = build_model(config.model, 2, seed=derive_seed(config.seed, config.task)).to(device)
        sets = {name: ImageExamples(split.images, split.labels, device) for name, split in splits.items()}
        train = sets.pop("train")
        return Prepared(Problem(model=model, train=train, loss=classification_loss, evaluation=sets), device)

    def empty_model(self, config: DigitGamesConfig) -> nn.Module:
        return empty_model(config.model, config.task)

    def headline(self, result: Mapping[str, Any]) -> str:
        return f"{result['task']} between digits, {result['n_train']:,} examples: {result['model']}"

    def chance_accuracy(self, config: DigitGamesConfig) -> float:
        return 0.5

    def describe_run(self, row: Row) -> str:
        return f"{row['model']} on {row['task']} between digits, {row['n_train']:,} images, seed {row['seed']}"

    def work(self, config: DigitGamesConfig) -> float:
        data = config.data
        return config.loop.epochs * data.n_train + EVALUATION_SHARE * (data.n_val + data.n_test + data.n_unseen)

    def timing_problem(self, config: DigitGamesConfig) -> Problem:
        size = config.loop.batch_size
        images = torch.randint(256, (size, *IMAGE_SHAPE), dtype=torch.uint8)
        model = build_model(config.model, 2, seed=0)
        return Problem(model, ImageExamples(images, torch.randint(2, (size,))), classification_loss)
