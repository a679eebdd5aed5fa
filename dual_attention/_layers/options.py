"""Further arguments of layers and blocks as the published constructors take them: TypedDicts, checked when given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal, TypeAlias, TypedDict

from .._base.words import suggestion
from ..functional.activations import Activation

NormType = Literal["layernorm", "rmsnorm", "none"]
RelationScore = Literal["dot", "squared_distance"]
RelationalHeadType = Literal["relational_attention", "rca", "disrca"]

Options: TypeAlias = Mapping[str, Any]
"""Beside a TypedDict: a dict of which a type checker knows no more, ``dict(n_relations=4)`` or one from elsewhere."""


class _HeadOptions(TypedDict, total=False):
    dropout: float
    key_dim: int | None
    n_kv_heads: int | None
    add_bias_kv: bool
    add_bias_q: bool
    add_bias_out: bool
    total_n_heads: int | None
    attn_scale: float | None
    out_dropout: float | None
    out_dim: int | None
    shaw_max_rel_pos: int | None
    window: int | None


class AttentionOptions(_HeadOptions, total=False):
    """Further arguments of :class:`~dual_attention.attention.Attention`: ``sa_kwargs``, ``attn_kwargs``.

    >>> options: AttentionOptions = {"n_kv_heads": 1, "window": 4}
    >>> DualAttention(d_model=64, n_heads_sa=2, n_heads_ra=2, sa_kwargs=options).self_attention.window
    4
    """

    shaw_values: bool
    output_gate: str | Activation | None


class RelationalOptions(_HeadOptions, total=False):
    """Further arguments of relational heads, ``ra_kwargs``.

    All are those of :class:`~dual_attention.relational_attention.RelationalAttention`, except for ``activation``, which
    is that of :class:`~dual_attention.relational_cross_attention.RelationalCrossAttention`. The two forms of relational
    cross-attention have fewer.

    >>> options: RelationalOptions = {"n_relations": 8, "symmetric_rels": True}
    >>> DualAttention(d_model=64, n_heads_sa=2, n_heads_ra=2, ra_kwargs=options).relational_attention.n_relations
    8
    """

    n_relations: int | None
    activation: str | Activation
    rel_activation: str | Activation
    rel_init_size: float | None
    rel_proj_dim: int | None
    rel_score: RelationScore
    symmetric_rels: bool
    use_relative_positional_symbols: bool
    wr_init: Literal["published", "large"]


class SymbolOptions(TypedDict, total=False):
    """Arguments of the classes of :mod:`dual_attention.symbol_retrieval`, ``symbol_retrieval_kwargs``.

    >>> options: SymbolOptions = {"n_symbols": 8, "n_heads": 2, "d_model": 32}
    >>> SymbolicAttention(**options).n_symbols
    8
    """

    d_model: int
    n_heads: int
    n_symbols: int
    dropout: float
    scale: float | None
    trainable_symbols: bool
    symbol_dim: int
    max_length: int
    sinusoidal: bool
    max_rel_pos: int | tuple[int, int] | None
    theta: float
    n_prefix_tokens: int
    rel_n_heads: int
    symbolic_attn_n_heads: int
    nbhd_delta: int
    causal_nbhd: bool
    include_self: bool
    normalize_rels: bool
    rel_scale: float | None
    symbolic_attn_scale: float | None


class RetrieverOptions(TypedDict, total=False):
    """Symbols that layers share, and what they are retrieved from, ``symbol_retriever_config``."""

    shared_symbol_retriever: bool
    weight_tie_symbol_library: bool
    normalized_input: bool


class BlockOptions(TypedDict, total=False):
    """Further arguments of a language model's blocks, ``block_kwargs``; those of dual attention take no attn_kwargs."""

    attn_kwargs: AttentionOptions | Options | None
    post_norm_dropout: bool


class _ResidualOptions(TypedDict, total=False):
    dff: int | None
    dropout_rate: float
    activation: str
    norm_first: bool
    norm_type: NormType
    bias: bool
    causal: bool


class EncoderBlockOptions(_ResidualOptions, BlockOptions, total=False):
    """Arguments of :class:`~dual_attention.transformer_blocks.EncoderBlock` without ``d_model``.

    >>> options: EncoderBlockOptions = {"n_heads": 4, "dff": 128, "norm_first": False}
    >>> EncoderBlock(d_model=64, **options)(torch.randn(2, 9, 64)).shape
    torch.Size([2, 9, 64])
    """

    n_heads: int


class DecoderBlockOptions(_ResidualOptions, total=False):
    """Arguments of :class:`~dual_attention.transformer_blocks.DecoderBlock` without ``d_model``.

    >>> options: DecoderBlockOptions = {"n_heads": 4, "n_heads_cross": 2}
    >>> DecoderBlock(d_model=64, **options)(torch.randn(2, 9, 64), torch.randn(2, 5, 64)).shape
    torch.Size([2, 9, 64])
    """

    n_heads: int
    n_heads_cross: int
    attn_kwargs: AttentionOptions | Options | None
    cross_kwargs: AttentionOptions | Options | None
    ff_dropout: bool


class _DualOptions(_ResidualOptions, total=False):
    n_heads_sa: int
    n_heads_ra: int
    sa_kwargs: AttentionOptions | Options | None
    ra_kwargs: RelationalOptions | Options | None
    ra_type: RelationalHeadType
    share_attn_params: bool


class DualAttnEncoderBlockOptions(_DualOptions, total=False):
    """Arguments of :class:`~dual_attention.dual_attn_blocks.DualAttnEncoderBlock` without ``d_model``.

    >>> options: DualAttnEncoderBlockOptions = {"n_heads_sa": 2, "n_heads_ra": 2, "dff": 128}
    >>> DualAttnEncoderBlock(d_model=64, **options)(torch.randn(2, 9, 64), torch.randn(2, 9, 64)).shape
    torch.Size([2, 9, 64])
    """

    post_norm_dropout: bool


class DualAttnDecoderBlockOptions(_DualOptions, total=False):
    """Arguments of :class:`~dual_attention.dual_attn_blocks.DualAttnDecoderBlock` without ``d_model``.

    >>> options: DualAttnDecoderBlockOptions = {"n_heads_sa": 2, "n_heads_ra": 2, "n_heads_cross": 4}
    >>> x, context, symbols = torch.randn(2, 9, 64), torch.randn(2, 5, 64), torch.randn(2, 9, 64)
    >>> DualAttnDecoderBlock(d_model=64, **options)(x, context, symbols).shape
    torch.Size([2, 9, 64])
    """

    n_heads_cross: int
    cross_kwargs: AttentionOptions | Options | None
    ff_dropout: bool


@lru_cache
def parameters_of(build: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Parameters of a class's constructor by name, in its order."""
    return inspect.signature(build).parameters


def arguments_of(build: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a class among those of the constructor around it, given as its ``locals()``."""
    return {name: given[name] for name in parameters_of(build) if name in given}


def options_dict(name: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy of further arguments, empty for None; ``TypeError`` naming the argument, if they are no mapping."""
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"{name}: expected a mapping or None, got {options!r}")
    return dict(options or {})


def checked_options(
    name: str, options: Mapping[str, Any] | None, build: Callable[..., Any], *, taken: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Copy the further arguments of a class, after checking that it has parameters of their names.

    ``name`` is the argument that holds them; parameters ``taken`` are set elsewhere.
    """
    given = options_dict(name, options)
    known = [parameter for parameter in parameters_of(build) if parameter not in taken]
    for key in given:
        if key not in known:
            meant = suggestion(str(key), known) or f", which are {', '.join(known)}"
            raise ValueError(f"{name}: expected arguments of {build.__name__}, got {key!r}{meant}")
    return given


def check_complete(name: str, options: Mapping[str, Any], build: Callable[..., Any]) -> None:
    """Raise ``ValueError`` if arguments that a class needs are not among the options."""
    parameters = parameters_of(build).values()
    missing = [p.name for p in parameters if p.default is p.empty and p.name not in options]
    if missing:
        raise ValueError(f"{name}: expected also {', '.join(missing)}, which {build.__name__} needs")
