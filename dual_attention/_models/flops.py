"""Arithmetic of a training step by the convention of PaLM (Chowdhery et al. 2022, arXiv 2204.02311, appendix B).

Six floating-point operations for each weight of a matrix product, forward and backward, and attention as if nothing
were masked. ``dat estimate`` counts the operations that are really computed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from torch import nn

from .._layers.calls import TypedModule
from .._layers.heads import Heads
from ..relational_attention import DisentangledRelationalCrossAttention, RelationalAttention
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
    """Multiply-adds of a receiver and a sender in all heads of a module: scores, relations and what is received."""
    products = 0
    for heads in module.modules():
        if isinstance(heads, Heads):
            products += heads.n_heads * (heads.key_dim + heads.head_dim)
        if isinstance(heads, RelationalAttention):
            products += heads.n_relations * (heads.rel_proj_dim + heads.n_heads)
        elif isinstance(heads, DisentangledRelationalCrossAttention):
            products += heads.n_heads * heads.head_dim
    return products


class CountsParameters(TypedModule):
    """A model that counts its parameters."""

    def get_num_params(self) -> int:
        """Number of parameters; tied ones count once."""
        return sum(parameter.numel() for parameter in self.parameters())


class Arithmetic(CountsParameters):
    """A model that accounts for the arithmetic of its training."""

    @abstractmethod
    def _flops_per_example(self) -> int:
        """Operations of a training step for one example of the largest length."""

    def estimate_mfu(self, fwdbwd_per_iter: float, dt: float, *, flops_promised: float = A100) -> float:
        """Model FLOPs utilisation: the share of a device's promised arithmetic that training made use of.

        Args:
            fwdbwd_per_iter: examples in an iteration: sequences of the context length, or pairs of source and target
                of the largest lengths.
            dt: seconds it took.
            flops_promised: of the device, per second; by default those of an A100 in bfloat16.
        """
        return self._flops_per_example() * fwdbwd_per_iter / dt / flops_promised
