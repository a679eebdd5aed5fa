"""The common part of experiments that train the models of Relational Games on images of its tasks."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dual_attention.vision_models import VisionDualAttnTransformer, VisionTransformer

from ...data.relational_games import num_classes
from ...sweeps.durations import EVALUATION_SHARE
from ...sweeps.experiment import Cost, SweptExperiment
from ...sweeps.table import Axis, ResultTable
from ...training.device import check_memory, prepare_device
from ...training.experiment import Prepared, count_parameters
from ...training.problem import Batch, ImageExamples, LossFunction, Problem, classification_loss
from ..base_width import scaled_from_base
from ..vision_model import export_vision_model
from .config import GamesRunConfig
from .model import build_games_model, empty_games_model
from .presets import COLOURS, LABELS, ORDER, PRESETS

Run = TypeVar("Run", bound=GamesRunConfig)


class ImageGames(SweptExperiment[Run, Prepared]):
    """Curves of accuracy against the number of training images, a panel for each task."""

    presets = PRESETS

    def empty_model(self, config: Run) -> nn.Module:
        return empty_games_model(config.model, config.task, config.image_shape)

    def export(self, config: Run, model: nn.Module, folder: Path, **saving: Any) -> None:
        if not isinstance(model, VisionTransformer | VisionDualAttnTransformer):
            super().export(config, model, folder)
        shape = config.image_shape
        export_vision_model(model, config.model, shape, folder, **saving)

    def cost(self, config: Run) -> Cost:
        data = config.data
        evaluated = (data.n_images - data.n_train) * (1 + len(config.loop.measure_at))
        work = config.loop.epochs * data.n_train + EVALUATION_SHARE * evaluated
        return Cost(work, lambda: timed_games(config))


def loss_of(config: GamesRunConfig) -> LossFunction:
    """Cross-entropy and, while a model with a decoder is training, the weighted error of what its slots paint."""
    weight = 0.0 if config.model.slots is None else config.model.slots.reconstruction

    def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        if not weight or not model.training:
            return classification_loss(model, batch)
        images, _ = batch
        output = model(images, need_weights=True)
        error = nn.functional.mse_loss(output.painted.images, images)
        entropy, metrics = classification_loss(lambda _: output.scores, batch)  # of the same forward pass
        return entropy + weight * error, {**metrics, "reconstruction": error.detach()}

    return loss


def timed_games(config: GamesRunConfig) -> Problem:
    """A batch of noise."""
    size = config.loop.batch_size
    images = torch.randint(256, (size, *config.image_shape), dtype=torch.uint8)
    shape = config.image_shape
    model = build_games_model(config.model, num_classes(config.task), seed=0, image_shape=shape)
    factors = scaled_from_base(config, model, lambda keys: empty_games_model(keys, config.task, shape))
    examples = ImageExamples(images, torch.randint(2, (size,)))
    return Problem(model, examples, loss_of(config), factors=factors)


def images_table(tasks: Sequence[str], **own: Any) -> ResultTable:
    """The table of such an experiment, with the tasks in this order."""
    return ResultTable(
        counted="images",
        axes=(
            Axis("task", "task", "task", "tasks", order=tuple(tasks)),
            Axis("model", "model.name", "model", "models", order=ORDER, labels=LABELS),
            Axis("n_train", "data.n_train", "training-set size", "training images", number=True, prefix="n"),
        ),
        scale=100.0,
        unit=" %",
        decimals=1,
        caption="Accuracy in percent after the last epoch",
        y_title="accuracy (%)",
        y_range=(45.0, 101.0),
        chance=lambda task: 100 / num_classes(task),
        colours=COLOURS,
        **own,
    )


def prepare_images(config: GamesRunConfig, load: Callable[[], Mapping[str, Any]]) -> Prepared:
    """Model, data and loss of a run, on its device; ``load`` makes the splits, if there is memory for them."""
    device = prepare_device(config.machine)
    check_memory("data", "its images", math.prod(config.image_shape) * config.data.n_images)
    shape = config.image_shape
    empty = empty_games_model(config.model, config.task, shape)
    check_memory("model", "its weights", 4 * count_parameters(empty), device)
    splits = load()
    model = build_games_model(config.model, num_classes(config.task), seed=config.weight_seed, image_shape=shape)
    factors = scaled_from_base(config, model, lambda keys: empty_games_model(keys, config.task, shape))
    sets = {name: ImageExamples(split.images, split.labels, device) for name, split in splits.items()}
    train = sets.pop("train")
    problem = Problem(model.to(device), train, loss_of(config), sets, factors=factors)
    return Prepared(problem, device, chance=1 / num_classes(config.task))
