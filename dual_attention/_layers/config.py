"""The fields of layers and blocks: name, type, default and help of each, told once.

Configurations of models inherit them; those of training, of transformers and the help of the command line take them
from there. A published constructor is an explicit door in front of them: it has the same names, and a field that is
not among its parameters is not its own (:func:`arguments_for`).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from .inputs import check_boolean
from .options import (
    AttentionOptions,
    NormType,
    Options,
    RelationalHeadType,
    RelationalOptions,
    SymbolOptions,
    parameters_of,
)

SequenceSymbolRetrieval = Literal["symbolic_attention", "rel_sym_attn", "positional_symbols", "position_relative"]
SymbolRetrieval = Literal[SequenceSymbolRetrieval, "position_relative_2d"]


@dataclass(frozen=True, kw_only=True)
class FieldsConfig:
    """Base of all configurations: it keeps copies of the dicts that it is given, and its flags are True or False."""

    def __post_init__(self) -> None:
        for about in fields(self):
            value = getattr(self, about.name)
            if about.type == "bool" or (about.type == "bool | None" and value is not None):
                check_boolean(**{about.name: value})
            elif isinstance(value, Mapping):  # the caller's may change, this may not
                object.__setattr__(self, about.name, dict(value))


@dataclass(frozen=True, kw_only=True)
class BlockConfig(FieldsConfig):
    """Blocks."""

    n_heads_sa: int | None = None
    """Sensory (self-attention) heads in each layer of a Dual Attention Transformer."""
    n_heads_ra: int | None = None
    """Relational heads in each layer of a Dual Attention Transformer."""
    ra_type: RelationalHeadType = "relational_attention"
    """Kind of relational heads: relational attention, relational cross-attention, or its disentangled form."""
    d_model: int
    """Width of the residual stream."""
    dff: int | None = None
    """Hidden width of the feed-forward blocks; null takes four times d_model, for SwiGLU two thirds of that."""
    dropout_rate: float = 0.0
    """Dropout rate, of embeddings too."""
    activation: str = "gelu"
    """Activation of the feed-forward blocks."""
    norm_first: bool = True
    """Normalise before each sub-layer (pre-norm) instead of after it."""
    norm_type: NormType = "layernorm"
    """Kind of normalisation."""
    bias: bool = True
    """Biases in the linear maps of the blocks."""


@dataclass(frozen=True, kw_only=True)
class HeadOptionsConfig(FieldsConfig):
    """Arguments of heads that configurations of a training run spell out instead."""

    n_heads: int | None = None
    """Attention heads in each layer of a Transformer."""
    sa_kwargs: AttentionOptions | Options | None = None
    """Further arguments of the sensory heads."""
    ra_kwargs: RelationalOptions | Options | None = None
    """Further arguments of the relational heads."""
    share_attn_params: bool = False
    """One set of attention queries and keys for both kinds of head."""


@dataclass(frozen=True, kw_only=True)
class SymbolsConfig(FieldsConfig):
    """Symbols of a Dual Attention Transformer."""

    symbol_retrieval: SymbolRetrieval = "symbolic_attention"
    """Symbol mechanism: a library read by attention, or by how a token compares with its neighbours, one symbol a
    position, or one a relative position."""
    symbol_retrieval_kwargs: SymbolOptions | Options | None = None
    """Arguments of the symbol mechanism."""
    update_symbols_each_layer: bool = True
    """Retrieve symbols anew for each layer instead of once for the first."""


Config = TypeVar("Config", bound=FieldsConfig)


def config_of(kind: type[Config], arguments: Mapping[str, Any]) -> Config:
    """The configuration with those of the arguments that are its fields; others are left out."""
    return kind(**{about.name: arguments[about.name] for about in fields(kind) if about.name in arguments})


def arguments_for(build: Callable[..., Any], config: FieldsConfig) -> dict[str, Any]:
    """The fields of a configuration that a class takes as arguments, in the order of its constructor."""
    names = {about.name for about in fields(config)}
    return {name: getattr(config, name) for name in parameters_of(build) if name in names}


def check_types(config: FieldsConfig) -> None:
    """Raise ``TypeError`` for the first field whose value is of another type than its annotation."""
    hints = get_type_hints(type(config))
    for about in fields(config):
        value = getattr(config, about.name)
        if not _fits(value, hints[about.name]):
            raise TypeError(f"{about.name}: expected {_described(hints[about.name])}, got {value!r}")


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, choice) for choice in get_args(hint))
    if origin is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if is_typeddict(hint) or origin is Mapping:  # the keys are checked where they are used
        return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    if hint is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _described(hint: Any) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_described(choice) for choice in get_args(hint)))
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    if is_typeddict(hint) or get_origin(hint) is Mapping:
        return "a mapping of strings"
    return "None" if hint is type(None) else hint.__name__
