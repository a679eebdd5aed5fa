"""How the paper's language models are initialised, for models of tokens."""

from __future__ import annotations

import math

import torch
from torch import nn

from .positional_encoding import RelativePositionalEncoding
from .relational_attention import RelationalAttention
from .symbol_retrieval import SymbolicAttention
from .transformer_blocks import RMSNorm


@torch.no_grad()
def init_weights(model: nn.Module, *, n_layers: int | None = None) -> None:
    """Draw the parameters of a model anew.

    Linear layers, embeddings and W_r come from N(0, 0.02), biases are zero; templates and symbols of symbolic attention
    come from N(0, 1). ``wr_init="large"`` of relational attention is left to it.

    Args:
        n_layers: L of a model with blocks: what ends in the residual stream (``wo`` of attention, ``linear2`` of
            feed-forward blocks) comes from N(0, 0.02 / sqrt(2 L)), as in GPT-2.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, RelationalAttention):
            module.reset_wr()
            if module.wr_init == "published":
                nn.init.normal_(module.wr, std=0.02)
        elif isinstance(module, nn.LayerNorm | RMSNorm | SymbolicAttention | RelativePositionalEncoding):
            module.reset_parameters()
    if n_layers is not None:
        for name, parameter in model.named_parameters():
            if name.endswith((".wo.weight", ".linear2.weight")):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * n_layers))
