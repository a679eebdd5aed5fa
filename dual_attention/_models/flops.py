"""Arithmetic of a training step by the convention of PaLM (Chowdhery et al. 2022, arXiv 2204.02311, appendix B).

Six floating-point operations for each weight of a matrix product, forward and backward, and attention as if nothing
were masked. :mod:`dual_attention.estimate` counts the operations that are really computed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from torch import nn

from .._layers.calls import TypedModule
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
    """Multiply-adds of a receiver and a sender in all heads of a module: scores, relations and what is received."""
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


class CountsParameters(TypedModule):
    """A model that counts its parameters."""

    def get_num_params(self) -> int:
        """Number of parameters; tied ones count once."""
        return sum(parameter.numel() for parameter in self.parameters())


class Arithmetic(CountsParameters):
    """A model that accounts for the arithmetic of its training."""

    layers: Any

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


class LanguageArithmetic(Arithmetic):
    """Parameters and arithmetic of a language model."""

    block_size: int
    pos_enc_type: Literal["pos_emb", "RoPE", "none"]

    @abstractmethod
    def _retrievers_used(self) -> Sequence[nn.Module]: ...

    def get_num_params(self, non_embedding: bool = True, *, trainable_only: bool = False) -> int:
        """Number of parameters, each counted once under however many names.

        Args:
            non_embedding: leave out tables that are only looked up: learned positions, and the token embedding unless
                it is the output matrix, too.
            trainable_only: leave out what is frozen, as the parameter counts of the paper do with symbol libraries.
        """
        left_out: list[nn.Module] = []
        if non_embedding and self.pos_enc_type == "pos_emb":
            left_out.append(self.layers.positional_embedder)
        if non_embedding and self.layers.token_embedder.weight is not self.layers.final_out.weight:
            left_out.append(self.layers.token_embedder)
        skipped = {id(parameter) for module in left_out for parameter in module.parameters()}
        return sum(
            parameter.numel()
            for parameter in self.parameters()
            if id(parameter) not in skipped and (parameter.requires_grad or not trainable_only)
        )

    def flops_per_token(self, length: int | None = None) -> int:
        """Floating-point operations of a training step for one token of a sequence of ``length``, forward and backward.

        The convention is that of PaLM (Chowdhery et al. 2022, arXiv 2204.02311, appendix B). A weight counts as
        often as it is used, so the weights of a shared symbol retriever count for every layer.

        Args:
            length: by default the context length.
        """
        weights = weights_used([*self.layers.blocks, *self._retrievers_used(), self.layers.final_out])
        pairs = sum(pair_products(block) for block in self.layers.blocks)
        return PER_PRODUCT * (weights + pairs * (self.block_size if length is None else length))

    def _flops_per_example(self) -> int:
        return self.flops_per_token() * self.block_size


class Seq2SeqArithmetic(Arithmetic):
    """Parameters and arithmetic of a sequence-to-sequence model."""

    in_block_size: int
    out_block_size: int

    @abstractmethod
    def _blocks(self, side: Literal["encoder", "decoder"]) -> list[Any]: ...

    @abstractmethod
    def _parts_of_encoder(self) -> list[nn.Module]: ...

    @abstractmethod
    def _retrievers_used(self, side: Literal["encoder", "decoder"]) -> list[nn.Module]: ...

    def flops_per_pair(self, source_length: int | None = None, target_length: int | None = None) -> int:
        """Floating-point operations of a training step for one pair of source and target, forward and backward.

        Counted as :meth:`LanguageModel.flops_per_token
        <dual_attention.language_models.LanguageModel.flops_per_token>` does, each weight for the positions that pass
        through it: those of the source in the encoder and in the keys and values of cross-attention, those of the
        target in all else.

        Args:
            source_length, target_length: S and T, by default ``in_block_size`` and ``out_block_size``.
        """
        s = self.in_block_size if source_length is None else source_length
        t = self.out_block_size if target_length is None else target_length
        encoder, decoder = self._parts_of_encoder(), self._blocks("decoder")
        crosses = [part.cross_attn for block in decoder for part in block.modules() if hasattr(part, "cross_attn")]
        context = [layer for cross in crosses for layer in (cross.wk, cross.wv)]
        of_source = [self.layers["source_embedder"], *encoder, *context]
        of_target = [
            self.layers["target_embedder"],
            *decoder,
            *self._retrievers_used("decoder"),
            self.layers["final_out"],
        ]
        for_source = weights_used(of_source)
        for_target = weights_used(of_target) - weights_used(context)
        cross = sum(pair_products(attention) for attention in crosses)
        own = sum(pair_products(block) for block in decoder) - cross
        pairs = sum(pair_products(block) for block in encoder) * s * s + own * t * t + cross * t * s
        return PER_PRODUCT * (for_source * s + for_target * t + pairs)

    def _flops_per_example(self) -> int:
        return self.flops_per_pair()
