"""Trained Transformers as the sensory part of Dual Attention Transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from .._base.words import listed
from .._layers.options import options_dict
from ..dual_attention import DualAttention
from .weights import shared_names


@torch.no_grad()
def start_from_transformer(model: nn.Module, transformer: nn.Module, *, silent: bool = True) -> None:
    """Copy the weights of a Transformer into a Dual Attention Transformer with relational heads beside its heads.

    Every weight of the Transformer is copied. Relational heads and symbol retrievers keep their own weights; biases
    that only ``model`` has become 0. The sensory heads must match the Transformer's in number and width, and the
    relational heads must write into all features::

        sa_kwargs={"total_n_heads": n_heads_sa}
        ra_kwargs={"total_n_heads": n_heads_sa, "out_dim": d_model}

    Args:
        model: a Dual Attention Transformer of this library; it is changed.
        transformer: the Transformer of the same family.
        silent: the output projections of the relational heads become 0. Outputs are then those of the Transformer,
            while these projections get gradients, so that the heads take part after the first step.

    Raises:
        ValueError: if the Transformer has weights for which ``model`` has no place, or the other way round, or two that
            differ where ``model`` has one.

    >>> shape = {"d_model": 32, "n_layers": 1, "bias": False, "max_block_size": 16}
    >>> transformer = TransformerLM(50, n_heads=2, **shape)
    >>> kinds = {"sa_kwargs": {"total_n_heads": 2}, "ra_kwargs": {"total_n_heads": 2, "out_dim": 32}}
    >>> model = DualAttnTransformerLM(50, n_heads_sa=2, n_heads_ra=2, **shape, **kinds)
    >>> start_from_transformer(model, transformer, silent=True)
    >>> tokens = torch.randint(50, (2, 9))
    >>> torch.allclose(model(tokens)[0], transformer(tokens)[0], atol=1e-5)
    True
    """
    own = model.state_dict()
    given = {
        name.replace(".self_attn.", ".dual_attn.self_attention."): w for name, w in transformer.state_dict().items()
    }
    unlike = [name for name, w in given.items() if name not in own or own[name].shape != w.shape]
    lacking = [name for name in own if name not in given and not (_is_new(name) or name.endswith(".bias"))]
    if unlike or lacking:
        raise ValueError(
            f"transformer: its weights do not match those of model; missing in one or of another shape: "
            f"{listed(unlike + lacking)}. Build model with sa_kwargs={{'total_n_heads': n_heads_sa}} and "
            "ra_kwargs={'total_n_heads': n_heads_sa, 'out_dim': d_model}"
        )
    for names in shared_names(model):
        tied = [name for name in names if name in given]
        if any(not torch.equal(given[tied[0]], given[name]) for name in tied[1:]):
            raise ValueError(
                f"transformer: its {' and '.join(tied)} differ, and are one weight in model; "
                "build model with tie_weights=False"
            )
    for name, w in own.items():
        if name in given:
            w.copy_(given[name])
        elif not _is_new(name):
            w.zero_()
    for module in model.modules():
        heads = module.relational_attention if isinstance(module, DualAttention) else None
        if silent and heads is not None:
            for parameter in heads.wo.parameters():
                parameter.zero_()


def _is_new(name: str) -> bool:
    """Whether a weight belongs to what only Dual Attention Transformers have."""
    return ".relational_attention." in name or "symbol_retriever" in name


def beside(
    n_heads: int, d_model: int, attention: Mapping[str, Any], relational: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Arguments of dual attention that begins with the attention of a Transformer, which has these options."""
    width = {"total_n_heads": n_heads}
    return {
        "n_heads_sa": n_heads,
        "sa_kwargs": {**width, **attention},
        "ra_kwargs": {**width, "out_dim": d_model, **options_dict("ra_kwargs", relational)},
    }
