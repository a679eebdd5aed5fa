"""Parts of the user's own in the models of experiments: heads, relations and symbols that the keys of a model name."""

from typing import Any, TypeVar

from torch import nn

from dual_attention.mechanisms import Score
from dual_attention.parts import with_parts

from .._own_code import class_named, what_failed

Model = TypeVar("Model", bound=nn.Module)

PLACES: dict[str, tuple[str, type]] = {
    "model.heads": ("heads", nn.Module),
    "model.rel_score": ("relation", Score),
    "model.symbols": ("symbols", nn.Module),
}
"""Argument of :func:`~dual_attention.parts.with_parts` and base class of a part, by key."""


def with_named_parts(model: Model, keys: Any) -> Model:
    """A model with the parts that its keys name, a :class:`.model_keys.ModelKeys`, in it.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming the key, if the user has not named the file, too, it has no such class, or the part fails.
    """
    for key, name in keys.parts.items():
        argument, base = PLACES[key]
        kind: Any = class_named(name, base, key)
        try:
            with_parts(model, **{argument: kind})
        except Exception as error:
            raise ValueError(f"{key}: {name}: {what_failed(error, kind)}") from error
    return model
