"""Building the model that a configuration describes."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from dual_attention.baselines import (
    OCRA,
    SlotAbstractor,
    SlotDecoder,
    SlotEncoder,
    VisionAbstractor,
    VisionCoRelNet,
    VisionESBN,
    VisionPrediNet,
    VisionSlots,
)

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
"""By the name of the architecture."""

FACTORED_CLASSES: dict[str, type[nn.Module]] = {"slot_abstractor": SlotAbstractor, "ocra": OCRA}
"""The same of those that take features and positions of slots."""


def build_games_model(
    config: GamesModelConfig, num_classes: int, *, seed: int, image_shape: tuple[int, int, int] = IMAGE_SHAPE
) -> nn.Module:
    """The model with initial weights that depend on ``seed`` only; the global generators are left seeded by it."""
    torch.manual_seed(derive_seed(seed, "weights"))
    if config.slots is None:
        return _build_on(config, image_shape, num_classes)
    slots = {name: value for name, value in vars(config.slots).items() if name != "reconstruction"}
    encoder = SlotEncoder(image_shape, d_model=config.d_model, **slots)
    decoder = SlotDecoder(image_shape, config.d_model) if config.slots.reconstruction else None
    kind = FACTORED_CLASSES.get(config.architecture)
    if kind is not None:
        model = kind(**{**config.arguments_for(kind), **vars(config.baseline)})
        return VisionSlots(encoder, model, num_classes, decoder=decoder)
    over = replace(config, front_end="patches", slots=None, patch_size=(1, 1))
    model = _build_on(over, (config.d_model, config.slots.n_slots, 1), num_classes)
    return VisionSlots(encoder, model, decoder=decoder)


def _build_on(config: GamesModelConfig, image_shape: tuple[int, int, int], num_classes: int) -> nn.Module:
    """The model over patches."""
    images: dict[str, Any] = {"image_shape": image_shape, "num_classes": num_classes}
    if config.baseline is not None:
        return build_baseline(config, images)
    return config.finished(build_vision_model(config, **images))


def build_baseline(config: GamesModelConfig, images: dict[str, Any]) -> nn.Module:
    """One of the relational architectures that came before DATs."""
    kind = BASELINE_CLASSES[config.architecture]
    arguments = {**images, **config.arguments_for(kind), **vars(config.baseline)}
    if config.architecture == "abstractor":
        symbols = config.symbols_of(images["image_shape"])
        arguments |= {"norm_type": config.norm_type, "bias": config.bias, "symbol_retrieval_kwargs": symbols}
    return kind(**arguments)


def empty_games_model(
    config: GamesModelConfig, task: str, image_shape: tuple[int, int, int] = IMAGE_SHAPE
) -> nn.Module:
    """The model for a task, on the meta device; random generators are left as they are."""
    with without_values():
        return build_games_model(config, num_classes(task), seed=0, image_shape=image_shape)
