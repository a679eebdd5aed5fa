"""Configurations of language models as data, and those of the paper by name."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal

import torch

from ._base.words import suggestion
from ._layers.options import check_types, parameters_of
from ._models.retrievers import symbol_sizes, with_sizes
from .configs import AttentionConfig, DecoderLanguageConfig, RelationalConfig, SymbolConfig
from .language_models import DualAttnTransformerLM, TransformerLM

__all__ = ["LANGUAGE_PRESETS", "LanguageModelConfig", "language_preset"]

_CLASSES = {"dat": DualAttnTransformerLM, "transformer": TransformerLM}


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig(DecoderLanguageConfig):
    """All that builds a language model: the arguments of its class, under their names and with their defaults.

    Attributes:
        model: ``"dat"``, a :class:`~dual_attention.language_models.DualAttnTransformerLM`, or ``"transformer"``, a
            :class:`~dual_attention.language_models.TransformerLM`. The other attributes are explained there.

    Raises:
        TypeError: if a value is of another type than its attribute.
        ValueError: if an argument that the model needs is missing, or one that belongs to the other model is given.

    >>> config = LanguageModelConfig(model="transformer", vocab_size=50, d_model=32, n_layers=1, n_heads=2)
    >>> type(config.build()).__name__
    'TransformerLM'
    """

    model: Literal["dat", "transformer"]
    """Dual Attention Transformer or Transformer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_types(self)
        own = self.arguments()
        for name, default in _defaults().items():
            value = getattr(self, name)
            if name not in (*own, "model") and value != default:
                raise ValueError(f"{name}: is no argument of model={self.model!r}, got {value!r}")
        needed = ("n_heads_sa", "n_heads_ra", "n_heads")
        missing = [name for name in needed if name in own and own[name] is None]
        if missing:
            raise ValueError(f"{', '.join(missing)}: needed with model={self.model!r}, got None")
        if self.model == "dat":  # spelt out, for whoever reads a file of it
            sizes = symbol_sizes(self.d_model, self.n_heads_sa, self.n_heads_ra, self.max_block_size)
            symbols = with_sizes(self.symbol_retrieval, self.symbol_retrieval_kwargs, sizes)
            object.__setattr__(self, "symbol_retrieval_kwargs", symbols)

    def arguments(self) -> dict[str, Any]:
        """The arguments of the model's class, all of them."""
        return self.arguments_for(_CLASSES[self.model])

    def build(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> DualAttnTransformerLM | TransformerLM:
        """The model with freshly drawn weights."""
        return _CLASSES[self.model](**self.arguments(), device=device, dtype=dtype)

    def to_dict(self) -> dict[str, Any]:
        """A dict for JSON, of the model's name and all its arguments.

        ``TypeError`` for one that JSON cannot hold, such as an activation that is a function.
        """
        return as_json({"model": self.model, **self.arguments()})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LanguageModelConfig:
        """The configuration that :meth:`to_dict` wrote; what is left out has its default.

        ``ValueError`` for unknown keys, or if one without default is missing; others as the constructor.
        """
        known = _defaults()
        unknown = [name for name in values if name not in known]
        if unknown:
            raise ValueError(f"unknown keys: {', '.join(map(repr, unknown))}; expected some of {', '.join(known)}")
        missing = [name for name, default in known.items() if default is MISSING and name not in values]
        if missing:
            raise ValueError(f"missing keys: {', '.join(missing)}")
        return cls(**values)


def as_json(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as they are read again from JSON; ``TypeError`` for the first that cannot be written."""
    written = {}
    for name, value in arguments.items():
        try:
            written[name] = json.loads(json.dumps(value))
        except TypeError as error:
            raise TypeError(f"{name}: cannot be written as JSON ({error}), got {value!r}") from error
    return written


def _defaults() -> dict[str, Any]:
    """The default of each field, or MISSING, in the order of the published constructors."""
    defaults = {about.name: about.default for about in fields(LanguageModelConfig)}
    names = ["model", *(name for kind in _CLASSES.values() for name in parameters_of(kind))]
    return {name: defaults[name] for name in names if name in defaults}


# FineWeb-Edu, section 4.4 and Table 5 of the paper: pre-norm, GELU, rotary positions, the 50,257 tokens of GPT-2 padded
# to a multiple of 128. The symbol libraries are frozen. Feed-forward blocks of the DAT have biases although bias=False.
_PAPER: dict[str, Any] = {"vocab_size": 50304, "n_layers": 24, "pos_enc_type": "RoPE", "bias": False}
_TINY: dict[str, Any] = {**_PAPER, "vocab_size": 257, "n_layers": 2, "max_block_size": 256}  # bytes, and an end


def _transformer(d_model: int, *, head_dim: int = 64, common: Mapping[str, Any] = _PAPER) -> LanguageModelConfig:
    n_heads = d_model // head_dim
    return LanguageModelConfig(model="transformer", d_model=d_model, n_heads=n_heads, dff=4 * d_model, **common)


def _dat(
    d_model: int,
    n_relations: int,
    *,
    n_kv_heads: int | None,
    n_symbols: int,
    symbol_heads: int,
    head_dim: int = 64,
    common: Mapping[str, Any] = _PAPER,
) -> LanguageModelConfig:
    """Half of the heads relational; relations are as wide, together, as the relational heads."""
    half = d_model // head_dim // 2
    width = half * head_dim // n_relations
    return LanguageModelConfig(
        model="dat",
        d_model=d_model,
        n_heads_sa=half,
        n_heads_ra=half,
        symbol_retrieval_kwargs=SymbolConfig(n_heads=symbol_heads, n_symbols=n_symbols, trainable_symbols=False),
        dff=4 * d_model,
        sa_kwargs=AttentionConfig(n_kv_heads=n_kv_heads),
        ra_kwargs=RelationalConfig(n_kv_heads=n_kv_heads, n_relations=n_relations, rel_proj_dim=width),
        **common,
    )


LANGUAGE_PRESETS: Mapping[str, LanguageModelConfig] = types.MappingProxyType(
    {
        "T-tiny": _transformer(64, head_dim=16, common=_TINY),
        "T-353M": _transformer(1024),
        "T-757M": _transformer(1536),
        "T-1.31B": _transformer(2048),
        "DAT-tiny": _dat(64, 8, n_kv_heads=1, n_symbols=32, symbol_heads=4, head_dim=16, common=_TINY),
        "DAT-343M-nr8": _dat(1024, 8, n_kv_heads=4, n_symbols=1024, symbol_heads=8),
        "DAT-343M-nr32": _dat(1024, 32, n_kv_heads=4, n_symbols=1024, symbol_heads=8),
        "DAT-343M-nr64": _dat(1024, 64, n_kv_heads=4, n_symbols=1024, symbol_heads=8),
        "DAT-368M": _dat(1024, 32, n_kv_heads=None, n_symbols=1024, symbol_heads=8),
        "DAT-734M": _dat(1536, 64, n_kv_heads=6, n_symbols=1024, symbol_heads=8),
        "DAT-1.27B-nr64": _dat(2048, 64, n_kv_heads=8, n_symbols=2048, symbol_heads=8),
        "DAT-1.27B-nr128": _dat(2048, 128, n_kv_heads=8, n_symbols=2048, symbol_heads=16),
        "DAT-1.37B": _dat(2048, 64, n_kv_heads=None, n_symbols=2048, symbol_heads=8),
    }
)
"""The paper's language models by name: T for Transformer, millions or billions of trained parameters, and nr for the
number of relations where several were trained (Table 5 has nr64 of 343M and nr128 of 1.27B); and a tiny one of each, on
bytes, for tests and demonstrations."""


def language_preset(name: str) -> LanguageModelConfig:
    """The configuration of that name; ``ValueError`` if there is none, with the names.

    >>> config = language_preset("DAT-343M-nr64")
    >>> config.model, config.d_model, config.n_layers, config.ra_kwargs["n_relations"]
    ('dat', 1024, 24, 64)
    """
    if name not in LANGUAGE_PRESETS:
        near = suggestion(name, LANGUAGE_PRESETS)
        raise ValueError(f"name: expected one of {', '.join(LANGUAGE_PRESETS)}, got {name!r}{near}")
    return LANGUAGE_PRESETS[name]
