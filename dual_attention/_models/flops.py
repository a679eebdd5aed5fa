"""Arithmetic of a training step by the convention of PaLM (Chowdhery et al. 2022, arXiv 2204.02311, appendix B).

Six floating-point operations for each weight of a matrix product, forward and backward, and attention as if nothing
were masked. ``dat estimate`` counts the operations that are really computed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

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
        if getattr(part, "uncounted", False):
            raise ValueError("flops_per_token: parts of your own are not counted; dat.estimate counts their operations")
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


class BesidePlain(NamedTuple):
    """Least arithmetic of a language model's layers, as multiples of a plain Transformer's of the same sizes.

    Attributes:
        linear: with relation keys under the weights of each head, as in the fused kernels and ``linear``.
        per_pair: with the relations of a pair formed once for all heads; ``linear`` where that is less.
    """

    linear: float
    per_pair: float


def beside_plain(
    blocks: Iterable[Any], retrievers: Iterable[nn.Module], d_model: int, length: int
) -> BesidePlain | None:
    """The floors of causal blocks that are given symbols by the retrievers; None without relational attention."""
    blocks = list(blocks)
    heads = [part for block in blocks for part in block.modules() if isinstance(part, Heads)]
    relational = [part for part in heads if isinstance(part, RelationalAttention)]
    if not relational:
        return None

    def seen(part: Heads) -> float:
        """Senders that a receiver sees, on average."""
        w = min(part.window or length, length)
        return w - w * (w - 1) / (2 * length)

    linear = per_pair = weights_used([*blocks, *retrievers]) + sum(pair_products(part) * seen(part) for part in heads)
    for part in relational:
        keys, of_heads = part.n_relations * part.rel_proj_dim, part.n_relations * part.n_heads
        linear += (part.n_heads * keys - keys - of_heads) * seen(part)
        if part.use_relative_positional_symbols:  # the weights of the same symbol may be summed first
            symbols = part.n_heads * part.head_dim * seen(part)
            linear, per_pair = linear - symbols, per_pair - symbols
    plain = weights_used(blocks) - weights_used(block.attention for block in blocks)
    plain += len(blocks) * (4 * d_model**2 + 2 * d_model * seen(heads[0]))
    return BesidePlain(linear / plain, min(per_pair, linear) / plain)


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
