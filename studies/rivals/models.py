"""Rivals as models: heads by name in games, and residual values (Zhou et al. 2024, arXiv 2410.17897) everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from dat.experiments.heads import RIVALS, HeadsOfTokens
from dat.experiments.language.model_keys import LanguageModelKeys
from dat.experiments.relational_games.config import GamesModelConfig
from dat.experiments.sequences.model import SequenceModelKeys
from dual_attention.language_presets import LanguageModelConfig
from dual_attention.mechanisms import recipes

VALUES = "value_residual"


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

    heads: str
    """Their name."""

    def finished(self, model: Any) -> nn.Module:
        if self.heads == VALUES:
            shared_values(model.encoder_blocks, self.d_model, self.n_heads_sa, self.dropout_rate)
            return model
        for layer, block in enumerate(model.encoder_blocks, 1):
            heads = RIVALS[self.heads](self.d_model, self.n_heads_sa, layer)  # pyright: ignore[reportArgumentType]
            block.self_attn = HeadsOfTokens(self.heads, heads, self.dropout_rate)
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
    if name != VALUES:
        return type(keys)(**{**vars(keys), "name": name, "heads": name, "dff": dff})
    kind = SequenceValues if isinstance(keys, SequenceModelKeys) else LanguageValues
    return kind(**{**vars(keys), "name": name, "dff": dff})
