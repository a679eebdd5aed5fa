"""Arithmetic of a training step by the convention of PaLM (Chowdhery et al. 2022, arXiv 2204.02311, appendix B).

Six floating-point operations for each weight of a matrix product, forward and backward, and attention as if nothing
were masked. :mod:`dual_attention.estimate` counts what is really computed.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from ..attention import Attention
from ..relational_attention import DisentangledRelationalCrossAttention, RelationalAttention, RelationalCrossAttention
from ..symbol_retrieval import SymbolicAttention

A100 = 312e12
"""Operations per second that an A100 promises in bfloat16."""

PER_PRODUCT = 6
"""Operations of a multiply-add: two in the forward pass, four in the backward pass."""


def weights_used(modules: Iterable[nn.Module]) -> int:
    """Weights of matrix products for one token that passes through all modules, some of them more than once.

    A weight that a layer has under two names (`wk_rel` is `wq_rel`) is used twice.
    """
    weights = 0
    # The list, since `modules()` of a linear layer has no layer that owns it.
    for part in (part for module in modules for part in nn.ModuleList([module]).modules()):
        weights += sum(child.weight.numel() for child in part._modules.values() if isinstance(child, nn.Linear))
        if isinstance(part, RelationalAttention):
            weights += part.wr.numel()
        elif isinstance(part, SymbolicAttention):
            weights += part.template_features.numel() + part.symbol_library.numel()
    return weights


def pair_products(module: nn.Module) -> int:
    """Multiply-adds of a receiver and a sender in all heads of a module, as they are defined.

    These are scores, relations and what is received.
    """
    products = 0
    for heads in module.modules():
        if isinstance(heads, Attention):
            products += heads.n_heads * (heads.key_dim + heads.head_dim)
        elif isinstance(heads, RelationalAttention):
            products += heads.n_heads * (heads.key_dim + heads.head_dim)
            products += heads.n_relations * (heads.rel_proj_dim + heads.n_heads)
        elif isinstance(heads, RelationalCrossAttention):
            products += heads.n_heads * 2 * heads.head_dim
        elif isinstance(heads, DisentangledRelationalCrossAttention):
            products += heads.n_heads * 3 * heads.head_dim
    return products
