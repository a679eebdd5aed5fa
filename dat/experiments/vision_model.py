"""Vision Transformers and DATs that a configuration describes, for all experiments on images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dual_attention._base.files import write_json
from dual_attention._layers.config import arguments_for
from dual_attention._layers.options import SymbolOptions
from dual_attention.vision_models import VisionDualAttnTransformer, VisionModel, VisionTransformer

from .model_keys import VisionModelKeys


def build_vision_model(
    config: VisionModelKeys, symbols: SymbolOptions, image_shape: tuple[int, int, int], num_classes: int
) -> VisionModel:
    """The model, with weights drawn from the global generator.

    Args:
        symbols: arguments of the symbol mechanism.
        image_shape: channels, width and height.
    """
    kind, arguments = _class_and_arguments(config, symbols)
    return kind(image_shape=image_shape, num_classes=num_classes, **arguments)


def _class_and_arguments(config: VisionModelKeys, symbols: SymbolOptions) -> tuple[Any, dict[str, Any]]:
    """The class of a model and its arguments, without those of the images."""
    if not config.relational:
        arguments = arguments_for(VisionTransformer, config)
        return VisionTransformer, {**arguments, "n_heads": config.n_heads_sa}
    own = {
        "symbol_retrieval": config.symbols,
        "symbol_retrieval_kwargs": symbols,
        "ra_kwargs": config.relational_options(),
        "sa_kwargs": {"n_kv_heads": config.n_kv_heads},
    }
    return VisionDualAttnTransformer, {**arguments_for(VisionDualAttnTransformer, config), **own}


def export_vision_model(
    model: Any,
    config: VisionModelKeys,
    symbols: SymbolOptions,
    image_shape: tuple[int, int, int],
    folder: Path,
    *,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    names: Sequence[str] = (),
    cut: bool = False,
    **saving: Any,
) -> None:
    """Write a model, and how images become its inputs, into a folder for transformers.

    Args:
        symbols, image_shape: as :func:`build_vision_model`.
        mean, std: of each channel, by which images in 0..1 are normalised; without them they are not.
        names: of the classes; without them they are numbered.
        cut: images are resized by cubic interpolation and cut to a square, to half a pixel as pictures of a folder are.
        saving: arguments of ``save_pretrained``.
    """
    from dual_attention.hf import DualAttnForImageClassification, DualAttnVisionConfig

    kind, arguments = _class_and_arguments(config, symbols)
    name = "transformer" if kind is VisionTransformer else "dat"
    classes = {"id2label": dict(enumerate(names))} if names else {"num_labels": model.final_out.out_features}
    about = DualAttnVisionConfig(model=name, image_shape=image_shape, **classes, **arguments)
    DualAttnForImageClassification(about, model).save_pretrained(folder, **saving)
    channels, width, height = image_shape
    whole = {"height": height, "width": width}
    inputs: dict[str, Any] = {"image_processor_type": "ViTImageProcessor", "size": whole}
    if cut:
        inputs = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": height}, "resample": 3}
        inputs |= {"do_center_crop": True, "crop_size": whole}
    inputs |= {"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": bool(mean)}
    if mean:
        inputs |= {"image_mean": list(mean), "image_std": list(std)}
    if channels == 3:  # transformers turns images into such before it looks at them
        write_json(folder / "preprocessor_config.json", inputs)


def vision_symbols(config: VisionModelKeys, image_shape: Sequence[int], *, class_token: bool = True) -> SymbolOptions:
    """Arguments of the symbol mechanism for the patches of an image and, in a DAT, a class token."""
    columns, rows = (side // patch for side, patch in zip(image_shape[1:], config.patch_size, strict=True))
    n_tokens = rows * columns + class_token
    in_grid = config.symbols == "position_relative_2d"
    return config.symbol_options(n_tokens, (rows - 1, columns - 1) if in_grid else n_tokens)
