"""Symbol retrievers by name, as the models take them in their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from torch import nn

from .symbol_retrieval import (
    PositionalSymbolRetriever,
    PositionRelativeSymbolRetriever,
    PositionRelativeSymbolRetriever2D,
    RelationalSymbolicAttention,
    SymbolicAttention,
)

# Those of sequences, and those of images.
SequenceSymbolRetrieval = Literal["symbolic_attention", "rel_sym_attn", "positional_symbols", "position_relative"]
SymbolRetrieval = Literal[
    "symbolic_attention", "rel_sym_attn", "positional_symbols", "position_relative", "position_relative_2d"
]

_CLASSES = {
    "symbolic_attention": SymbolicAttention,
    "rel_sym_attn": RelationalSymbolicAttention,
    "positional_symbols": PositionalSymbolRetriever,
    "position_relative": PositionRelativeSymbolRetriever,
    "position_relative_2d": PositionRelativeSymbolRetriever2D,
}


def create_symbol_retriever(
    symbol_retrieval: str, kwargs: Mapping[str, Any], choices: Any = SequenceSymbolRetrieval
) -> nn.Module:
    """The symbol retriever of that name, built with ``kwargs``; ``choices`` is the Literal of the names allowed."""
    if symbol_retrieval not in get_args(choices):
        raise ValueError(f"symbol_retrieval: expected one of {', '.join(get_args(choices))}, got {symbol_retrieval!r}")
    return _CLASSES[symbol_retrieval](**kwargs)


def check_symbols_fit(
    symbol_retrieval: str, n_heads_ra: int, ra_kwargs: Mapping[str, Any] | None, name: str = "ra_kwargs"
) -> None:
    """Check that relational heads, if there are any, expect the kind of symbols that will be retrieved.

    Raises:
        ValueError: if the one is relative to positions and the other is not.
    """
    relative = symbol_retrieval.startswith("position_relative")
    if n_heads_ra and relative != (ra_kwargs or {}).get("use_relative_positional_symbols", False):
        raise ValueError(
            f"{name}: symbol_retrieval={symbol_retrieval!r} needs use_relative_positional_symbols={relative}"
        )


def retriever_config(config: Mapping[str, bool] | None) -> dict[str, bool]:
    """``symbol_retriever_config`` with its defaults, as a new dict.

    Raises:
        ValueError: for a key that is unknown.
    """
    defaults = {"shared_symbol_retriever": True, "weight_tie_symbol_library": False}
    unknown = sorted(set(config or {}) - set(defaults))
    if unknown:
        raise ValueError(
            f"symbol_retriever_config: expected the keys {', '.join(defaults)}, got {', '.join(map(repr, unknown))}"
        )
    return defaults | dict(config or {})


def create_retrievers(
    symbol_retrieval: SequenceSymbolRetrieval,
    kwargs: Mapping[str, Any],
    config: Mapping[str, bool],
    n_layers: int,
    d_model: int,
) -> list[nn.Module]:
    """A symbol retriever for each layer of a causal model, or the same for all.

    Raises:
        ValueError: if it would see later tokens, or its symbols have another width than the model.
    """
    shared = config["shared_symbol_retriever"]
    retrievers = [create_symbol_retriever(symbol_retrieval, kwargs) for _ in range(1 if shared else n_layers)]
    first = retrievers[0]
    if isinstance(first, RelationalSymbolicAttention) and not first.causal_nbhd:
        raise ValueError(
            "symbol_retrieval_kwargs: a causal model needs causal_nbhd=True, or symbols would tell of later tokens"
        )
    name = "d_model" if hasattr(first, "d_model") else "symbol_dim"
    if getattr(first, name) != d_model:
        raise ValueError(
            f"symbol_retrieval_kwargs: expected {name}={d_model}, the width of the model, got {getattr(first, name)}"
        )
    return retrievers * n_layers if shared else retrievers


def tie_symbol_libraries(retrievers: Sequence[nn.Module]) -> None:
    """Let all retrievers, of one class, have the symbols of the first."""

    def owner_of_library(retriever: nn.Module) -> tuple[nn.Module, str]:
        if isinstance(retriever, PositionRelativeSymbolRetriever):
            return retriever, "rel_pos_enc"
        if isinstance(retriever, RelationalSymbolicAttention):
            return retriever.symbolic_attention, "symbol_library"
        return retriever, "symbol_library"

    first, name = owner_of_library(retrievers[0])
    for retriever in retrievers[1:]:
        if hasattr(first, name):  # sinusoids are the same without it
            setattr(owner_of_library(retriever)[0], name, getattr(first, name))
