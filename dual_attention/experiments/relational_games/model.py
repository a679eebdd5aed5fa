"""Building the model that a configuration describes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..._layers.options import RelationalOptions, SymbolOptions
from ...baselines import VisionAbstractor, VisionCoRelNet, VisionESBN, VisionPrediNet
from ...training.seeding import derive_seed
from ...vision_models import VisionDualAttnTransformer, VisionTransformer
from .config import GamesModelConfig

IMAGE_SHAPE = (3, 36, 36)
"""Channels, width and height of every image."""


def symbol_arguments(config: GamesModelConfig) -> SymbolOptions:
    """Arguments of the symbol retriever for the patches of an image and, in a DAT, a class token."""
    rows, columns = (side // patch for side, patch in zip(IMAGE_SHAPE[1:], config.patch_size, strict=True))
    n_tokens = rows * columns + (config.architecture == "dat")
    if config.symbols == "positional_symbols":
        return {"symbol_dim": config.d_model, "max_length": n_tokens}
    if config.symbols == "position_relative":
        return {"symbol_dim": config.d_model, "max_rel_pos": n_tokens}
    if config.symbols == "position_relative_2d":
        return {"symbol_dim": config.d_model, "max_rel_pos": (rows - 1, columns - 1)}
    if config.symbols == "rel_sym_attn":
        return {
            "d_model": config.d_model,
            "rel_n_heads": config.symbol_heads,
            "symbolic_attn_n_heads": config.symbol_heads,
            "n_symbols": config.n_symbols,
            "nbhd_delta": config.symbol_neighbours,
            "causal_nbhd": False,
        }
    return {"d_model": config.d_model, "n_heads": config.symbol_heads, "n_symbols": config.n_symbols}


def relational_arguments(config: GamesModelConfig) -> RelationalOptions:
    """Arguments of the relational heads."""
    arguments: RelationalOptions = {"n_kv_heads": config.n_kv_heads}
    if config.ra_type == "relational_attention":
        arguments["n_relations"] = config.n_relations
        arguments["rel_proj_dim"] = config.rel_proj_dim
        arguments["symmetric_rels"] = config.symmetric_rels
        arguments["rel_activation"] = config.rel_activation
        arguments["use_relative_positional_symbols"] = config.symbols.startswith("position_relative")
        arguments["wr_init"] = config.wr_init
    elif config.symbols.startswith("position_relative"):
        raise ValueError(f"model.symbols: {config.symbols} needs ra_type relational_attention, not {config.ra_type}")
    return arguments


def build_model(config: GamesModelConfig, num_classes: int, *, seed: int) -> nn.Module:
    """The model with initial weights that depend on ``seed`` only; the global generators are left seeded by it."""
    torch.manual_seed(derive_seed(seed, "weights"))
    build = build_transformer if config.architecture == "dat" else build_baseline
    return build(config, num_classes)


def empty_model(config: GamesModelConfig, task: str) -> nn.Module:
    """The model for a task, on the meta device; random generators are left as they are."""
    from ...data.relational_games import num_classes  # needs numpy, which the model does not

    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return build_model(config, num_classes(task), seed=0)


def build_transformer(config: GamesModelConfig, num_classes: int) -> nn.Module:
    """A DAT, or a Transformer if there are no relational heads."""
    common: dict[str, Any] = {
        "image_shape": IMAGE_SHAPE,
        "patch_size": config.patch_size,
        "num_classes": num_classes,
        "d_model": config.d_model,
        "n_layers": config.n_layers,
        "dff": config.dff,
        "dropout_rate": config.dropout_rate,
        "activation": config.activation,
        "norm_first": config.norm_first,
        "norm_type": config.norm_type,
        "bias": config.bias,
        "pool": config.pool,
        "final_norm": config.final_norm,
    }
    if not config.relational:
        return VisionTransformer(n_heads=config.n_heads_sa, **common)
    return VisionDualAttnTransformer(
        n_heads_sa=config.n_heads_sa,
        n_heads_ra=config.n_heads_ra,
        symbol_retrieval=config.symbols,
        symbol_retrieval_kwargs=symbol_arguments(config),
        ra_type=config.ra_type,
        ra_kwargs=relational_arguments(config),
        sa_kwargs={"n_kv_heads": config.n_kv_heads},
        **common,
    )


def build_baseline(config: GamesModelConfig, num_classes: int) -> nn.Module:
    """One of the relational architectures that came before DATs."""
    images: dict[str, Any] = {
        "image_shape": IMAGE_SHAPE,
        "patch_size": config.patch_size,
        "num_classes": num_classes,
        "d_model": config.d_model,
    }
    own = vars(config.baseline)
    if config.architecture == "predinet":
        return VisionPrediNet(**images, **own)
    if config.architecture == "corelnet":
        return VisionCoRelNet(**images, **own)
    if config.architecture == "esbn":
        return VisionESBN(**images, **own)
    shared: dict[str, Any] = {
        "n_layers": config.n_layers,
        "dff": config.dff,
        "dropout_rate": config.dropout_rate,
        "activation": config.activation,
        "norm_first": config.norm_first,
        "norm_type": config.norm_type,
        "bias": config.bias,
        "symbol_retrieval": config.symbols,
        "symbol_retrieval_kwargs": symbol_arguments(config),
    }
    return VisionAbstractor(**images, **shared, **own)
