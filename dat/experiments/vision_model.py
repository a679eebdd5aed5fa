"""Vision Transformers and DATs that a configuration describes, for all experiments on images."""

from __future__ import annotations

from collections.abc import Sequence

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
    if not config.relational:
        return VisionTransformer(
            image_shape=image_shape,
            num_classes=num_classes,
            n_heads=config.n_heads_sa,
            **arguments_for(VisionTransformer, config),
        )
    return VisionDualAttnTransformer(
        image_shape=image_shape,
        num_classes=num_classes,
        symbol_retrieval=config.symbols,
        symbol_retrieval_kwargs=symbols,
        ra_kwargs=config.relational_options(),
        sa_kwargs={"n_kv_heads": config.n_kv_heads},
        **arguments_for(VisionDualAttnTransformer, config),
    )


def vision_symbols(config: VisionModelKeys, image_shape: Sequence[int], *, class_token: bool = True) -> SymbolOptions:
    """Arguments of the symbol mechanism for the patches of an image and, in a DAT, a class token."""
    rows, columns = (side // patch for side, patch in zip(image_shape[1:], config.patch_size, strict=True))
    n_tokens = rows * columns + class_token
    in_grid = config.symbols == "position_relative_2d"
    return config.symbol_options(n_tokens, (rows - 1, columns - 1) if in_grid else n_tokens)
