"""Small language models whose heads are all of one kind, and relations that are kept small."""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dat.experiments.language.model_keys import LanguageModelKeys
from dual_attention.language_presets import LanguageModelConfig
from dual_attention.relational_attention import RelationalAttention


class NormalisedLinear(nn.Linear):
    """A projection to the queries or keys of relations, each of mean square 1; no relation is larger than √p."""

    n_relations: int

    def forward(self, x: Tensor) -> Tensor:
        factors = super().forward(x).unflatten(-1, (self.n_relations, -1))
        return F.rms_norm(factors, factors.shape[-1:]).flatten(-2)


def normalised(model: Any) -> Any:
    """The model with :class:`NormalisedLinear` in every relational attention; its parameters are the same."""
    for layer in model.modules():
        if isinstance(layer, RelationalAttention):
            for name in ("wq_rel", "wk_rel"):
                plain = getattr(layer, name)
                other = NormalisedLinear(plain.in_features, plain.out_features, bias=False, device="meta")
                other.weight, other.n_relations = plain.weight, layer.n_relations
                setattr(layer, name, other)
    return model


class NormalisedConfig(LanguageModelConfig):
    """All that builds a language model with normalised relations."""

    def build(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Any:
        return normalised(super().build(device, dtype))


class Normalised(LanguageModelKeys):
    """A language model with normalised relations."""

    def language_config(self, vocab_size: int) -> NormalisedConfig:
        return NormalisedConfig(**vars(super().language_config(vocab_size)))


RA = LanguageModelKeys(name="RA", context=64, n_layers=4, n_heads_sa=0, n_heads_ra=4, n_kv_heads=None)
MODELS: dict[str, LanguageModelKeys] = {
    "RA": RA,
    "RCA": replace(RA, name="RCA", ra_type="rca"),
    "DAT": replace(RA, name="DAT", n_heads_sa=2, n_heads_ra=2),
    "T": replace(RA, name="T", n_heads_sa=4, n_heads_ra=0),
    "T-gated": replace(RA, name="T-gated", n_heads_sa=4, n_heads_ra=0, output_gate="identity"),
    "RA-tanh": replace(RA, name="RA-tanh", rel_activation="tanh"),
    "RA-normalised": Normalised(**{**vars(RA), "name": "RA-normalised"}),
    "RA-R1": replace(RA, name="RA-R1", n_relations=1),
    "RA-R32": replace(RA, name="RA-R32", n_relations=32),
    "RA-wide": replace(RA, name="RA-wide", d_model=128),
    "RCA-wide": replace(RA, name="RCA-wide", d_model=128, ra_type="rca"),
}
NAMES = {
    "RA": "relational heads",
    "RCA": "RCA",
    "DAT": "DAT, two heads of each kind",
    "T": "Transformer",
    "T-gated": "Transformer, linear gate",
    "RA-tanh": "relational heads, tanh of relations",
    "RA-normalised": "relational heads, normalised relations",
    "RA-R1": "relational heads, 1 relation",
    "RA-R32": "relational heads, 32 relations",
    "RA-wide": "relational heads, width 128",
    "RCA-wide": "RCA, width 128",
}
