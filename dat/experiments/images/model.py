"""Building the model of a run."""

import torch

from dual_attention.vision_models import VisionModel

from ...data.images import ImageSet
from ...training.experiment import without_values
from ...training.seeding import derive_seed
from ..vision_model import build_vision_model
from .config import ImageModelConfig


def build_image_model(config: ImageModelConfig, about: ImageSet, *, seed: int) -> VisionModel:
    """The model of a set of images; its initial weights depend on ``seed`` only, which is left in the generators."""
    torch.manual_seed(derive_seed(seed, "weights"))
    return build_vision_model(config, about.shape, about.classes)


def empty_image_model(config: ImageModelConfig, about: ImageSet) -> VisionModel:
    """The model on the meta device; random generators are left as they are."""
    with without_values():
        return build_image_model(config, about, seed=0)
