"""Rivals of relational heads as models: heads of the toolbox by name, and residual values (arXiv 2410.17897)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from dat.experiments.language.model_keys import LanguageModelKeys
from dat.experiments.relational_games.config import GamesModelConfig
from dat.experiments.sequences.model import SequenceModelKeys
from dual_attention.language_models import LanguageModel
from dual_attention.language_presets import LanguageModelConfig
from dual_attention.mechanisms import (
    DifferentialAttention,
    LatentAttention,
    SimplicialAttention,
    TensorProductProjection,
    recipes,
)
from dual_attention.transformer_blocks import EncoderBlock
from studies._lib.heads import HeadsOfTokens

RIVALS: Mapping[str, Callable[[int, int, int], nn.Module]] = {
    "differential": lambda d, heads, layer: DifferentialAttention(d, heads // 2, layer=layer),
    "simplicial": lambda d, heads, layer: SimplicialAttention(d, heads),
    "latent": lambda d, heads, layer: LatentAttention(d, heads, max(d // 4, 1)),
    "stick_breaking": lambda d, heads, layer: recipes.stick_breaking_attention(d, heads),
    "multi_token": lambda d, heads, layer: recipes.multi_token_attention(d, heads, group=2 - heads % 2),
    "tensor_product": lambda d, heads, layer: recipes.tensor_product_attention(
        d, heads, query_rank=min(6, heads), rank=min(2, (heads + 1) // 2)
    ),
    "slot_pair": lambda d, heads, layer: recipes.slot_pair_attention(d, heads),
}
"""Their heads, of the width of the model, the number of heads of the Transformer beside them, and the layer from 1.

Sizes are the papers', except where so few heads leave no room for them: latent vectors are a quarter as wide as the
model, and tensor products have no more than H queries' and H / 2 keys' and values' terms.
"""

VALUES = "value_residual"


def multiplied_projections(model: nn.Module) -> Iterator[nn.Linear]:
    """Linear maps whose outputs are multiplied by each other: with small weights, next to nothing is left of both."""
    for module in model.modules():
        if isinstance(module, SimplicialAttention):
            yield from (module.wq, module.wk, module.wv)
        elif isinstance(module, TensorProductProjection):
            yield module


@dataclass(frozen=True, kw_only=True)
class HeadsModelConfig(LanguageModelConfig):
    """All that builds a language model with heads of a rival: the arguments of a Transformer, and their name."""

    heads: str
    """Heads of a rival in place of self-attention."""

    def build(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Any:
        return HeadsLM(self, device=device, dtype=dtype)

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "heads": self.heads}


class HeadsLM(LanguageModel):
    """A Transformer language model with other heads, which know neither rotary positions nor caches.

    Args:
        config: the heads, and the arguments of a :class:`~dual_attention.language_models.TransformerLM`.
        device, dtype: as there.
    """

    _block_kind = EncoderBlock

    def __init__(
        self, config: HeadsModelConfig, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        self.rival = config.heads
        with nullcontext() if device is None else torch.device(device):
            super().__init__(config)
        self._finish(dtype)

    def _create_block(self, config: Any, layer: int) -> nn.Module:
        block: Any = super()._create_block(config, layer)
        heads = RIVALS[self.rival](config.d_model, config.n_heads, layer)
        block.self_attn = HeadsOfTokens(self.rival, heads, config.dropout_rate)
        return block

    def init_weights(self) -> None:
        """Draw all parameters anew, as of other language models; maps that are multiplied are PyTorch's."""
        super().init_weights()
        for projection in multiplied_projections(self):
            projection.reset_parameters()

    def flops_per_token(self, length: int | None = None) -> NoReturn:
        """Refuse: only the library's own heads are counted."""
        raise ValueError(f"flops_per_token: {self.rival} heads are not counted; dat.estimate counts their operations")


@dataclass(frozen=True, kw_only=True)
class LanguageRival(LanguageModelKeys):
    """A Transformer of language with heads of a rival."""

    rival: str
    """Their name."""

    def language_config(self, vocab_size: int) -> HeadsModelConfig:
        return HeadsModelConfig(heads=self.rival, **vars(super().language_config(vocab_size)))


@dataclass(frozen=True, kw_only=True)
class SequenceRival(LanguageRival, SequenceModelKeys):
    """The same of sequences."""

    def build(self, vocab_size: int, *, seed: int) -> LanguageModel:
        model = super().build(vocab_size, seed=seed)
        with torch.no_grad():
            for projection in multiplied_projections(model):  # they begin with PyTorch's larger weights
                projection.weight.div_(self.initial_scale)
        return model


class HeadsOfValues(HeadsOfTokens):
    """Heads of which the first layer leaves its values to the others, in a list that all of a model share."""

    def __init__(self, heads: nn.Module, dropout: float, values: list[Tensor], *, first: bool) -> None:
        super().__init__(VALUES, heads, dropout)
        self.values, self.first = values, first

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *, attn_mask: Any, need_weights: bool, **others: Any
    ) -> tuple[Tensor, Tensor | None]:
        if self.first:
            self.values[:] = [self.heads.message.wv(query)]  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
        of_first = () if self.first else tuple(self.values)
        found = self.heads(query, key, *of_first, attn_mask=attn_mask, need_weights=need_weights)
        return found.context, found.weights


def shared_values(blocks: Any, d_model: int, n_heads: int, dropout: float) -> None:
    """Give blocks of a Transformer heads with residual values."""
    values: list[Tensor] = []
    for layer, block in enumerate(blocks):
        make = recipes.value_residual_attention if layer else recipes.self_attention
        block.self_attn = HeadsOfValues(make(d_model, n_heads), dropout, values, first=not layer)


@dataclass(frozen=True, kw_only=True)
class GamesRival(GamesModelConfig):
    """A Transformer of Relational Games with heads of a rival."""

    rival: str
    """Their name."""

    def finished(self, model: Any) -> nn.Module:
        if self.rival == VALUES:
            shared_values(model.encoder_blocks, self.d_model, self.n_heads_sa, self.dropout_rate)
            return model
        for layer, block in enumerate(model.encoder_blocks, 1):
            heads = RIVALS[self.rival](self.d_model, self.n_heads_sa, layer)
            block.self_attn = HeadsOfTokens(self.rival, heads, self.dropout_rate)
        return model


@dataclass(frozen=True, kw_only=True)
class ValuesConfig(LanguageModelConfig):
    """A Transformer language model with residual values."""

    def build(self, device: Any = None, dtype: Any = None) -> Any:
        model = super().build(device, dtype)
        shared_values(model.layers.blocks, self.d_model, self.n_heads or 1, self.dropout_rate)
        model.init_weights()
        return model


@dataclass(frozen=True, kw_only=True)
class LanguageValues(LanguageModelKeys):
    """Keys of such a model."""

    def language_config(self, vocab_size: int) -> ValuesConfig:
        return ValuesConfig(**vars(super().language_config(vocab_size)))


@dataclass(frozen=True, kw_only=True)
class SequenceValues(SequenceModelKeys):
    """Keys of such a model of sequences."""

    def language_config(self, vocab_size: int) -> ValuesConfig:
        return ValuesConfig(**vars(super().language_config(vocab_size)))


def rival(keys: Any, name: str, dff: int) -> Any:
    """A Transformer's keys with heads of a rival."""
    of_sequences, given = isinstance(keys, SequenceModelKeys), {**vars(keys), "name": name, "dff": dff}
    if name == VALUES:
        return (SequenceValues if of_sequences else LanguageValues)(**given)
    return (SequenceRival if of_sequences else LanguageRival)(rival=name, **given)
