"""Building the model that a configuration describes."""

from typing import Any

import torch
from torch import nn

from dual_attention.baselines import VisionAbstractor, VisionCoRelNet, VisionESBN, VisionPrediNet

from ...data.relational_games import num_classes
from ...training.experiment import without_values
from ...training.seeding import derive_seed
from ..vision_model import build_vision_model
from .config import IMAGE_SHAPE, GamesModelConfig

BASELINE_CLASSES: dict[str, type[nn.Module]] = {
    "abstractor": VisionAbstractor,
    "predinet": VisionPrediNet,
    "corelnet": VisionCoRelNet,
    "esbn": VisionESBN,
}
"""Baselines by the name of the architecture."""


def build_games_model(config: GamesModelConfig, num_classes: int, *, seed: int) -> nn.Module:
    """The model with initial weights that depend on ``seed`` only; the global generators are left seeded by it."""
    torch.manual_seed(derive_seed(seed, "weights"))
    if config.baseline is not None:
        return build_baseline(config, num_classes)
    return config.finished(build_vision_model(config, IMAGE_SHAPE, num_classes))


def build_baseline(config: GamesModelConfig, num_classes: int) -> nn.Module:
    """One of the relational architectures that came before DATs."""
    kind = BASELINE_CLASSES[config.architecture]
    images = {"image_shape": IMAGE_SHAPE, "num_classes": num_classes}
    arguments: dict[str, Any] = {**images, **config.arguments_for(kind), **vars(config.baseline)}
    if config.architecture == "abstractor":
        symbols = config.symbols_of(IMAGE_SHAPE)
        arguments |= {"norm_type": config.norm_type, "bias": config.bias, "symbol_retrieval_kwargs": symbols}
    return kind(**arguments)


def empty_games_model(config: GamesModelConfig, task: str) -> nn.Module:
    """The model for a task, on the meta device; random generators are left as they are."""
    with without_values():
        return build_games_model(config, num_classes(task), seed=0)
