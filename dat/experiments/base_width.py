"""muP in experiments: the factors of a run's model, from the same model at the base width of its configuration."""

from collections.abc import Callable
from typing import Any

from torch import nn

from ..training.experiment import without_values
from ..training.mup import scale_by_mup
from ..training.optim import Factors


def scaled_from_base(config: Any, model: nn.Module, build: Callable[[Any], nn.Module]) -> dict[str, Factors] | None:
    """Scale the initial values of a run's model by muP, if ``optim.mup_base_width`` asks for it; returns the factors.

    Args:
        config: of the run; ``config.model`` has a method ``at_width``.
        build: makes a model from such keys.

    Raises:
        ValueError: naming the key, if there is no such model at the base width or muP is not for models of its kind.
    """
    width = config.optim.mup_base_width
    if width is None:
        return None
    try:
        keys = config.model.at_width(width)
        with without_values():
            base = build(keys)
        return scale_by_mup(model, base)
    except ValueError as error:
        raise ValueError(f"optim.mup_base_width: {width} does not go with this model: {error}") from error
