"""The common part of experiments that train the models of Relational Games on images of its tasks."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from dual_attention.vision_models import VisionDualAttnTransformer, VisionTransformer

from ...data.relational_games import num_classes
from ...sweeps.durations import EVALUATION_SHARE
from ...sweeps.experiment import Cost, SweptExperiment
from ...sweeps.table import PERCENT, Axis, ResultTable
from ...training.device import check_memory, prepare_device
from ...training.experiment import Prepared, count_parameters
from ...training.problem import ImageExamples, Problem, classification_loss
from ..base_width import scaled_from_base
from ..vision_model import export_vision_model
from .config import IMAGE_SHAPE, GamesRunConfig
from .model import build_games_model, empty_games_model
from .presets import COLOURS, LABELS, ORDER, PRESETS

Run = TypeVar("Run", bound=GamesRunConfig)


class ImageGames(SweptExperiment[Run, Prepared]):
    """Curves of accuracy against the number of training images, a panel for each task."""

    presets = PRESETS

    def empty_model(self, config: Run) -> nn.Module:
        return empty_games_model(config.model, config.task)

    def export(self, config: Run, model: nn.Module, folder: Path, **saving: Any) -> None:
        if not isinstance(model, VisionTransformer | VisionDualAttnTransformer):
            super().export(config, model, folder)
        export_vision_model(model, config.model, IMAGE_SHAPE, folder, **saving)

    def cost(self, config: Run) -> Cost:
        data = config.data
        evaluated = (data.n_images - data.n_train) * (1 + len(config.loop.measure_at))
        work = config.loop.epochs * data.n_train + EVALUATION_SHARE * evaluated
        return Cost(work, lambda: timed_games(config))


def timed_games(config: GamesRunConfig) -> Problem:
    """A batch of noise."""
    size = config.loop.batch_size
    images = torch.randint(256, (size, *IMAGE_SHAPE), dtype=torch.uint8)
    model = build_games_model(config.model, num_classes(config.task), seed=0)
    factors = scaled_from_base(config, model, lambda keys: empty_games_model(keys, config.task))
    examples = ImageExamples(images, torch.randint(2, (size,)))
    return Problem(model, examples, classification_loss, factors=factors)


def images_table(tasks: Sequence[str], **own: Any) -> ResultTable:
    """The table of such an experiment, with the tasks in this order."""
    return ResultTable(
        counted="images",
        axes=(
            Axis("task", "task", "task", "tasks", order=tuple(tasks)),
            Axis("model", "model.name", "model", "models", order=ORDER, labels=LABELS),
            Axis("n_train", "data.n_train", "training-set size", "training images", number=True, prefix="n"),
        ),
        **PERCENT,
        caption="Accuracy in percent after the last epoch",
        y_range=(45.0, 101.0),
        chance=lambda task: 100 / num_classes(task),
        colours=COLOURS,
        **own,
    )


def prepare_images(config: GamesRunConfig, load: Callable[[], Mapping[str, Any]]) -> Prepared:
    """Model, data and loss of a run, on its device; ``load`` makes the splits, if there is memory for them."""
    device = prepare_device(config.machine)
    check_memory("data", "its images", math.prod(IMAGE_SHAPE) * config.data.n_images)
    empty = empty_games_model(config.model, config.task)
    check_memory("model", "its weights", 4 * count_parameters(empty), device)
    splits = load()
    model = build_games_model(config.model, num_classes(config.task), seed=config.weight_seed)
    factors = scaled_from_base(config, model, lambda keys: empty_games_model(keys, config.task))
    sets = {name: ImageExamples(split.images, split.labels, device) for name, split in splits.items()}
    train = sets.pop("train")
    problem = Problem(model.to(device), train, classification_loss, sets, factors=factors)
    return Prepared(problem, device, chance=1 / num_classes(config.task))
