"""Symbol retrievers by name, as the models take them in their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from .._layers.cache import Cache
from .._layers.inputs import check_choice, check_not_negative, check_positive
from .._layers.options import check_complete, checked_options, options_dict, parameters_of
from .._layers.symbols import Symbols
from ..configs import RetrieverConfig, SequenceSymbolRetrieval
from ..symbol_retrieval import (
    PositionalSymbolRetriever,
    PositionRelativeSymbolRetriever,
    PositionRelativeSymbolRetriever2D,
    RelationalSymbolicAttention,
    SymbolicAttention,
)

RETRIEVERS = {
    "symbolic_attention": SymbolicAttention,
    "rel_sym_attn": RelationalSymbolicAttention,
    "positional_symbols": PositionalSymbolRetriever,
    "position_relative": PositionRelativeSymbolRetriever,
    "position_relative_2d": PositionRelativeSymbolRetriever2D,
}


def create_symbol_retriever(
    symbol_retrieval: str,
    kwargs: Mapping[str, Any] | None,
    choices: Any = SequenceSymbolRetrieval,
    *,
    name: str = "symbol_retrieval_kwargs",
    sizes: Mapping[str, Any] | None = None,
) -> nn.Module:
    """The symbol retriever of that name, one of ``choices``.

    Args:
        name: the argument that is ``kwargs``.
        sizes: those that the model around it gives to what it needs and ``kwargs`` leave out, see :func:`symbol_sizes`.
    """
    check_choice("symbol_retrieval", symbol_retrieval, choices)
    kind = RETRIEVERS[symbol_retrieval]
    options = with_sizes(symbol_retrieval, checked_options(name, kwargs, kind), sizes or {})
    check_complete(name, options, kind)
    return kind(**options)


def retriever_of(config: Any, length: int, choices: Any = SequenceSymbolRetrieval) -> nn.Module:
    """The symbol retriever that a model's configuration describes, as wide as the model; ``length``: most tokens."""
    sizes = symbol_sizes(config.d_model, config.n_heads_sa, config.n_heads_ra, length)
    retriever = create_symbol_retriever(config.symbol_retrieval, config.symbol_retrieval_kwargs, choices, sizes=sizes)
    check_symbol_width(retriever, config.d_model)
    return retriever


def symbol_sizes(d_model: int, n_heads_sa: Any, n_heads_ra: Any, length: int) -> dict[str, Any]:
    """Sizes of symbol retrievers by default: as many symbols as features, and as many heads as a layer has.

    These divide the width, unless the kinds of head are added; then there are as many heads as sensory ones.
    """
    check_positive(d_model=d_model)
    check_not_negative(n_heads_sa=n_heads_sa, n_heads_ra=n_heads_ra)
    widths = dict.fromkeys(("d_model", "symbol_dim", "n_symbols"), d_model)
    n_heads = max(n_heads_sa + n_heads_ra, 1)
    if d_model % n_heads:
        n_heads = max(n_heads_sa, 1)
    heads = dict.fromkeys(("n_heads", "rel_n_heads", "symbolic_attn_n_heads"), n_heads)
    return {**widths, **heads, "max_length": length, "max_rel_pos": 64}


def with_sizes(symbol_retrieval: str, kwargs: Mapping[str, Any] | None, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a symbol retriever, and those of the sizes that it needs and that are not among them."""
    given = options_dict("symbol_retrieval_kwargs", kwargs)
    needed = [p.name for p in parameters_of(RETRIEVERS[symbol_retrieval]).values() if p.default is p.empty]
    if symbol_retrieval == "position_relative" and not given.get("sinusoidal"):
        needed.append("max_rel_pos")
    return given | {name: sizes[name] for name in needed if name in sizes and name not in given}


def check_symbols_fit(
    symbol_retrieval: str, n_heads_ra: int, ra_kwargs: Mapping[str, Any] | None, name: str = "ra_kwargs"
) -> None:
    """Raise ``ValueError`` unless relational heads, if any, expect the kind of symbols that will be retrieved."""
    check_not_negative(n_heads_ra=n_heads_ra)
    relative = str(symbol_retrieval).startswith("position_relative")
    if n_heads_ra and relative != options_dict(name, ra_kwargs).get("use_relative_positional_symbols", False):
        raise ValueError(
            f"{name}: symbol_retrieval={symbol_retrieval!r} needs use_relative_positional_symbols={relative}"
        )


def retriever_options(options: Mapping[str, Any] | None) -> dict[str, bool]:
    """``symbol_retriever_config`` with its defaults, as a new dict; ``ValueError`` for an unknown key."""
    defaults: dict[str, bool] = vars(RetrieverConfig())
    given = options_dict("symbol_retriever_config", options)
    unknown = sorted(set(given) - set(defaults))
    if unknown:
        raise ValueError(
            f"symbol_retriever_config: expected {', '.join(defaults)}, got {', '.join(map(repr, unknown))}"
        )
    return defaults | given


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


def check_symbol_width(retriever: nn.Module, d_model: int, name: str = "symbol_retrieval_kwargs") -> None:
    """Raise ``ValueError`` unless a retriever's symbols are as wide as the model."""
    check_positive(d_model=d_model)
    argument = "d_model" if hasattr(retriever, "d_model") else "symbol_dim"
    width = getattr(retriever, argument)
    if width != d_model:
        raise ValueError(f"{name}: expected {argument}={d_model}, the width of the model, got {width}")


def retrieve_symbols(
    retriever: nn.Module, x: Tensor, positions: Tensor | None = None, cache: Cache | None = None
) -> Symbols:
    """Symbols for the tokens ``x`` ``(B, L, d)`` of sequences; the rest as :mod:`dual_attention.symbol_retrieval`.

    ``ValueError`` if, with positions, neighbourhoods would reach beyond the end of a sequence.
    """
    reaches_on = isinstance(retriever, RelationalSymbolicAttention) and not retriever.causal_nbhd
    if positions is not None and reaches_on:
        raise ValueError("padding masks and segments: need causal_nbhd=True, or symbols would depend on what follows")
    if isinstance(retriever, PositionalSymbolRetriever):
        rows = 1 if positions is None else positions.shape[0]  # the same in every example: projected once
        if cache is None:
            return retriever(x[:rows], positions=positions)
        return retriever(x, cache=cache, positions=positions)[:rows]
    return retriever(x, cache=cache, positions=positions)
