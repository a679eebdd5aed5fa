"""Five arms with rotary positions in three families, as large as each other."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from dat.experiments.language.model_keys import LanguageModelKeys
from dat.experiments.mathematics.model_keys import PRESETS as MATHEMATICS
from dat.experiments.mathematics.model_keys import MathematicsModelKeys
from dat.experiments.sequences.model import SequenceModelKeys
from dat.experiments.sequences.presets import PRESETS as SEQUENCES
from dual_attention.configs import AttentionConfig
from dual_attention.language_presets import LanguageModelConfig
from dual_attention.relational_attention import RelationalAttention
from studies.language.models import ARMS

SEED = 20_261_129
"""Seed of the senders in evaluation, where they are the same in every pass."""


class KeysOfAnother(nn.Linear):
    """Relation keys taken from a random sender no later than the actual one, so that no relation belongs to its pair.

    Math: r_ij := r_i,pi(j), pi(j) uniform over 0, ..., j; drawn anew for each example in training
    """

    def forward(self, x: Tensor) -> Tensor:
        keys = super().forward(x)
        batch, senders, _ = keys.shape
        generator, examples = None, batch
        if not self.training:
            generator, examples = torch.Generator(keys.device).manual_seed(SEED), 1
        share = torch.rand(examples, senders, device=keys.device, generator=generator)
        other = (share * torch.arange(1, senders + 1, device=keys.device)).long()
        return keys.gather(1, other[..., None].expand_as(keys))


def detached(model: Any) -> Any:
    """The model with :class:`KeysOfAnother` in every relational attention; its parameters are the same."""
    for layer in model.modules():
        if isinstance(layer, RelationalAttention):
            keys = KeysOfAnother(layer.wk_rel.in_features, layer.wk_rel.out_features, bias=False, device="meta")
            keys.weight = layer.wk_rel.weight
            layer.wk_rel = keys
    return model


class DetachedConfig(LanguageModelConfig):
    """All that builds a language model whose relations belong to another sender."""

    def build(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Any:
        return detached(super().build(device, dtype))


class DetachedLanguage(LanguageModelKeys):
    """A DAT of language whose relations belong to another sender."""

    def language_config(self, vocab_size: int) -> DetachedConfig:
        return DetachedConfig(**vars(super().language_config(vocab_size)))


class DetachedSequences(DetachedLanguage, SequenceModelKeys):
    """The same of sequences."""


class DetachedMathematics(MathematicsModelKeys):
    """The same of mathematics."""

    def build(self) -> Any:
        return detached(super().build())


@dataclass(frozen=True, kw_only=True)
class GatedMathematics(MathematicsModelKeys):
    """A Transformer of mathematics under a linear output gate."""

    @property
    def sa_kwargs(self) -> AttentionConfig:
        return AttentionConfig.of(vars(super().sa_kwargs), output_gate="identity")


def as_kind(kind: Any, model: Any, name: str) -> Any:
    """The keys of a model as another kind of configuration."""
    return kind(**{**vars(model), "name": name})


LANGUAGE = {name: ARMS[f"{name}-64"] for name in ("T", "T-gated", "RCA", "DAT")}
LANGUAGE["DAT-detached"] = as_kind(DetachedLanguage, LANGUAGE["DAT"], "DAT-detached-64")
"""The arms of the study of language at equal parameters, and the DAT whose relations belong to another sender."""

OF_SEQUENCES = {
    "T": SEQUENCES["T"],
    "T-gated": replace(SEQUENCES["T"], name="T-gated", output_gate="identity", dff=268),
    "RCA": SEQUENCES["RCA"],
    "DAT": SEQUENCES["DAT-symbolic"],
    "DAT-detached": as_kind(DetachedSequences, SEQUENCES["DAT-symbolic"], "DAT-detached"),
}

SMALL: dict[str, Any] = {"d_model": 64, "n_heads_cross": 4, "rope_theta": 10_000.0}
PLAIN = replace(MATHEMATICS["T-871K"], name="T-64", n_heads_sa=4, n_heads_sa_dec=4, dff=160, **SMALL)
RELATIONAL = replace(
    MATHEMATICS["DAT-832K"],
    name="DAT-64",
    n_heads_sa=2,
    n_heads_ra=2,
    n_heads_sa_dec=2,
    n_heads_ra_dec=2,
    rel_proj_dim=16,
    symbols="symbolic_attention",
    n_symbols=32,
    dff=128,
    **SMALL,
)
OF_MATHEMATICS = {
    "T": PLAIN,
    "T-gated": replace(as_kind(GatedMathematics, PLAIN, "T-gated-64"), dff=128),
    "RCA": replace(RELATIONAL, name="RCA-64", ra_type="rca", dff=160),
    "DAT": RELATIONAL,
    "DAT-detached": as_kind(DetachedMathematics, RELATIONAL, "DAT-detached-64"),
}
ARM_NAMES = {
    "T": "Transformer",
    "T-gated": "Transformer, linear gate",
    "RCA": "RCA",
    "DAT": "DAT",
    "DAT-detached": "DAT, relations of another sender",
}
