"""Vision Transformers and DATs that a configuration describes, for all experiments on images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dual_attention._base.files import write_json
from dual_attention.vision_models import VisionDualAttnTransformer, VisionModel, VisionTransformer

from .model_keys import VisionModelKeys
from .own_parts import with_named_parts


def build_vision_model(config: VisionModelKeys, image_shape: tuple[int, int, int], num_classes: int) -> VisionModel:
    """The model, with weights drawn from the global generator; ``image_shape`` is channels, width and height."""
    kind, arguments = _class_and_arguments(config, image_shape)
    return with_named_parts(kind(num_classes=num_classes, **arguments), config)


def _class_and_arguments(config: VisionModelKeys, image_shape: tuple[int, int, int]) -> tuple[Any, dict[str, Any]]:
    """The class of a model and its arguments, without the number of classes."""
    kind = VisionDualAttnTransformer if config.relational else VisionTransformer
    arguments = {**config.arguments_for(kind), "image_shape": image_shape}
    if config.relational:
        arguments["symbol_retrieval_kwargs"] = config.symbols_of(image_shape)
    return kind, arguments


def export_vision_model(
    model: Any,
    config: VisionModelKeys,
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
        image_shape: as :func:`build_vision_model`.
        mean, std: of each channel, by which images in 0..1 are normalised; without them they are not.
        names: of the classes; without them they are numbered.
        cut: images are resized by cubic interpolation and cut to a square, to half a pixel as pictures of a folder are.
        saving: arguments of ``save_pretrained``.
    """
    from dual_attention.hf import DualAttnForImageClassification, DualAttnVisionConfig

    kind, arguments = _class_and_arguments(config, image_shape)
    name = "transformer" if kind is VisionTransformer else "dat"
    classes = {"id2label": dict(enumerate(names))} if names else {"num_labels": model.final_out.out_features}
    about = DualAttnVisionConfig(model=name, **classes, **arguments)
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
