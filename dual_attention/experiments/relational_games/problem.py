"""Relational Games as a problem for the training loop."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...data.relational_games import make_splits, num_classes, official_splits, supported_objects
from ...data.relational_games.official import official_path
from ...training.device import check_memory, prepare_device
from ...training.experiment import Prepared, count_parameters
from ...training.problem import ImageExamples, Problem, classification_loss
from .config import GamesDataConfig, RelationalGamesConfig
from .model import IMAGE_SHAPE, build_model, empty_model


def load_splits(config: RelationalGamesConfig) -> dict[str, Any]:
    """The splits of a run by name, each with ``images`` (n, 3, 36, 36) uint8 and ``labels`` (n,) int64."""
    return _splits(config.task, config.data, config.data_seed)


@lru_cache(maxsize=2)  # for the models of a sweep that come next on the same task, size and seed
def _splits(task: str, data: GamesDataConfig, seed: int) -> dict[str, Any]:
    sizes: dict[str, Any] = {"n_val": data.n_val, "n_test": data.n_test, "seed": seed}
    if data.official_folder is not None:
        check_official_folder(data.official_folder, task)
        return official_splits(data.official_folder, task, data.n_train, **sizes)
    return make_splits(task, data.n_train, n_heldout=data.n_heldout, independent_share=data.independent_share, **sizes)


def check_official_folder(folder: str, task: str) -> None:
    """Check that the files of a task are all there. Raises FileNotFoundError naming those that are not."""
    paths = [official_path(folder, task, objects) for objects in supported_objects(task)]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        found = ", ".join(sorted(path.name for path in Path(folder).glob("*.npz"))) or "no npz file"
        raise FileNotFoundError(
            f"data.official_folder: expected {', '.join(path.name for path in paths)} in {folder}, which lacks "
            f"{', '.join(missing)} and holds {found}"
        )


def prepare_games(config: RelationalGamesConfig) -> Prepared:
    """Model, data and loss of a run, on its device."""
    device = prepare_device(config.machine)
    data, image = config.data, math.prod(IMAGE_SHAPE)
    check_memory("data", "its images", image * (data.n_train + data.n_val + data.n_test + 2 * data.n_heldout))
    check_memory("model", "its weights", 4 * count_parameters(empty_model(config.model, config.task)), device)
    splits = load_splits(config)
    model = build_model(config.model, num_classes(config.task), seed=config.weight_seed).to(device)
    sets = {name: ImageExamples(split.images, split.labels, device) for name, split in splits.items()}
    train = sets.pop("train")
    return Prepared(Problem(model=model, train=train, loss=classification_loss, evaluation=sets), device)
