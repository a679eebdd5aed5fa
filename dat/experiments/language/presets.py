"""The named language models: the paper's, those of BabyLM, and tiny ones."""

from typing import Any

from dual_attention.language_presets import LANGUAGE_PRESETS

from .model_keys import LanguageModelKeys, model_preset

# Brasoveanu et al. 2026 (arXiv 2609.20530): rows of 512 tokens, SwiGLU, relative symbols without parameters.
_BABYLM: dict[str, Any] = {
    "context": 512,
    "n_kv_heads": None,
    "activation": "swiglu",
    "dropout_rate": 0.1,
    "tie_weights": False,
    "symbols": "position_relative",
    "sinusoidal_symbols": True,
    "n_relations": None,
}
_TINY: dict[str, Any] = {
    **_BABYLM,
    "context": 128,
    "d_model": 64,
    "n_layers": 4,
    "dropout_rate": 0.0,
    "tie_weights": True,
}


def _babylm(name: str, heads: tuple[int, int], **keys: Any) -> LanguageModelKeys:
    sensory, relational = heads
    return LanguageModelKeys(name=name, n_heads_sa=sensory, n_heads_ra=relational, **keys)


_RCA = {"ra_type": "rca", "rca_activation": "identity"}
_MODELS = (
    _babylm("DAT-babylm-191M", (9, 3), **_BABYLM, **_RCA, vocab_size=16384, d_model=768, n_layers=18),
    _babylm("DAT-babylm-304M", (12, 4), **_BABYLM, vocab_size=16384, d_model=1024, n_layers=16),
    _babylm("DAT-babylm-tiny", (3, 1), **_TINY),
    _babylm("DAT-babylm-tiny-rca", (3, 1), **_TINY, **_RCA),
    _babylm("T-babylm-tiny", (4, 0), **_TINY),
)

PRESETS = {**{name: model_preset(name) for name in LANGUAGE_PRESETS}, **{model.name: model for model in _MODELS}}
"""Every named model."""
