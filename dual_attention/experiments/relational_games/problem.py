"""Relational Games as a problem for the training loop."""

from __future__ import annotations

from typing import Any

import torch

from ...data.relational_games import make_splits, num_classes, official_splits
from ...training.device import prepare_device
from ...training.problem import ImageExamples, Problem, classification_loss
from .config import RelationalGamesConfig
from .model import build_model

TEST_SETS = ("test", "hexominoes", "stripes")
"""Evaluation sets of the final accuracies: pentominoes, and the two object sets held out of training."""


def load_splits(config: RelationalGamesConfig) -> dict[str, Any]:
    """The splits of a run by name, each with ``images`` (n, 3, 36, 36) uint8 and ``labels`` (n,) int64."""
    data = config.data
    if data.official_folder is not None:
        return official_splits(
            data.official_folder,
            config.task,
            data.n_train,
            n_val=data.n_val,
            n_test=data.n_test,
            seed=config.data_seed,
        )
    return make_splits(
        config.task,
        data.n_train,
        n_val=data.n_val,
        n_test=data.n_test,
        n_heldout=data.n_heldout,
        seed=config.data_seed,
    )


def build_problem(config: RelationalGamesConfig, splits: dict[str, Any] | None = None) -> tuple[Problem, torch.device]:
    """Model, data and loss of a run, on its device; ``splits`` may be given when they are at hand."""
    device = prepare_device(config.machine)
    splits = load_splits(config) if splits is None else splits
    model = build_model(config.model, num_classes(config.task), seed=config.seed).to(device)
    sets = {name: ImageExamples(split.images, split.labels, device) for name, split in splits.items()}
    train = sets.pop("train")
    return Problem(model=model, train=train, loss=classification_loss, evaluation=sets), device
