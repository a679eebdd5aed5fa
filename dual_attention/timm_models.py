"""Vision models of this library in timm's registry, for ``timm.create_model``.

Shapes: C channels, T tokens (a class token, registers if there are any, and the patches), d width of the model.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from .vision_models import VisionDualAttnTransformer, VisionModel, VisionTransformer

__all__ = ["TIMM_MODELS", "register_with_timm"]

_GRID = {
    "symbol_retrieval": "position_relative_2d",
    "ra_kwargs": {"symmetric_rels": True, "use_relative_positional_symbols": True},
}
_SMALL = {"img_size": 224, "patch_size": 16, "d_model": 384, "n_layers": 12, "final_norm": True}
_CIFAR = {**_SMALL, "img_size": 32, "patch_size": 4, "n_layers": 8, "dff": 384, "pool": "mean", "num_classes": 10}

TIMM_MODELS: Mapping[str, tuple[type[VisionModel], Mapping[str, Any]]] = {
    "vidat_cifar_patch4_32": (VisionDualAttnTransformer, {**_GRID, **_CIFAR, "n_heads_sa": 6, "n_heads_ra": 6}),
    "vit_plain_cifar_patch4_32": (VisionTransformer, {**_CIFAR, "n_heads": 12}),
    "vidat_small_patch16_224": (VisionDualAttnTransformer, {**_GRID, **_SMALL, "n_heads_sa": 3, "n_heads_ra": 3}),
    "vit_plain_small_patch16_224": (VisionTransformer, {**_SMALL, "n_heads": 6}),
}
"""Names in timm's registry -> class, and defaults of its arguments: the paper's sizes for CIFAR, and those of timm's
``vit_small_patch16_224``. Symbols are those of rows and columns."""

_NAMES = {
    "embed_dim": "d_model",
    "depth": "n_layers",
    "num_heads": "n_heads",
    "drop_rate": "dropout_rate",
    "reg_tokens": "n_registers",
    "global_pool": "pool",
}
"""timm's names of arguments -> ours."""


def register_with_timm() -> None:
    """Register :data:`TIMM_MODELS`, so that ``timm.create_model`` and ``timm.list_models`` know them.

    ``create_model`` takes the arguments of the model's class by name, ``img_size``, ``patch_size`` (each one number, or
    height and width) and ``in_chans`` in the place of the first two, and ``embed_dim``, ``depth``, ``num_heads``,
    ``drop_rate``, ``reg_tokens``, ``global_pool``, ``dynamic_img_size``, ``device`` and ``dtype`` as timm has them;
    ``features_only`` with ``out_indices`` gives :meth:`.VisionModel.features_only`. There are no trained weights:
    ``pretrained=True`` is a ``ValueError``.

    Raises:
        ImportError: if timm cannot be imported.

    >>> import timm
    >>> register_with_timm()
    >>> timm.list_models("vidat*")
    ['vidat_cifar_patch4_32', 'vidat_small_patch16_224']
    """
    try:
        models = importlib.import_module("timm.models")
    except ImportError as error:
        raise ImportError(f"register_with_timm: needs timm ({error}): pip install timm") from error
    exported = list(__all__)
    for name, (kind, defaults) in TIMM_MODELS.items():
        if not models.is_model(name):
            models.register_model(_entry(name, kind, defaults))
    __all__[:] = exported  # to which timm adds the names, that are no attributes here


def _entry(name: str, kind: type[VisionModel], defaults: Mapping[str, Any]) -> Callable[..., nn.Module]:
    """Function that timm calls for a model of that name."""

    def create(
        pretrained: bool = False,
        *,
        pretrained_cfg: Any = None,
        pretrained_cfg_overlay: Mapping[str, Any] | None = None,
        features_only: bool = False,
        out_indices: Any = None,
        cache_dir: Any = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **arguments: Any,
    ) -> nn.Module:
        if pretrained:
            raise ValueError(f"pretrained: expected False, since there are no weights of {name}, got {pretrained!r}")
        with torch.device(torch.get_default_device() if device is None else device):
            model = _model(kind, {**defaults, **{_NAMES.get(key, key): value for key, value in arguments.items()}})
        model.to(dtype=dtype)
        about: Any = model
        about.pretrained_cfg = about.default_cfg = _about(name, model) | dict(pretrained_cfg_overlay or {})
        if not features_only:
            return model
        features: Any = model.features_only(out_indices)
        features.pretrained_cfg = features.default_cfg = about.pretrained_cfg
        return features

    create.__name__ = create.__qualname__ = name
    return create


def _model(kind: Any, arguments: dict[str, Any]) -> VisionModel:
    """A model by the arguments of its class, and timm's of images and classifiers."""
    height, width = _pair(arguments.pop("img_size"))
    rows, columns = _pair(arguments.pop("patch_size"))
    image_shape = (arguments.pop("in_chans", 3), width, height)
    num_classes, pool = arguments.pop("num_classes", 1000), arguments.pop("pool", "cls")
    if arguments.pop("dynamic_img_size", False):
        arguments["pos_enc"] = "interpolated"
    if arguments.get("symbol_retrieval") == "position_relative_2d" and not arguments.get("symbol_retrieval_kwargs"):
        arguments["symbol_retrieval_kwargs"] = {"max_rel_pos": (height // rows - 1, width // columns - 1)}
    model = kind(image_shape, (columns, rows), num_classes or 1, **arguments)
    model.reset_classifier(num_classes, pool)
    return model


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else tuple(size)


def _about(name: str, model: VisionModel) -> dict[str, Any]:
    """Entries that timm's transforms and training scripts read of a model."""
    rows, columns = model.grid_size
    return {
        "architecture": name,
        "input_size": (model.image_channels, rows * model.patch_height, columns * model.patch_width),
        "fixed_input_size": model.pos_enc == "learned",
        "num_classes": model.num_classes,
        "classifier": "final_out",
        "interpolation": "bicubic",
        "crop_pct": 0.9,
        "mean": (0.5, 0.5, 0.5),
        "std": (0.5, 0.5, 0.5),
    }
