"""Parts of your own in the library's models: heads, scores, alignments, relations and symbols, see docs/your-part.md.

Shapes: B batch, N length, H heads, R relations, d width of the model, d_h width of a head.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ._layers.cache import Cache, TokenCache
from ._layers.call import Given, Past, checked_pattern, continue_from
from ._layers.calls import TypedModule
from ._layers.symbols import Symbols
from ._layers.taps import observer_of
from ._models.retrievers import RETRIEVERS
from .dual_attention import DualAttention
from .functional import MaskPattern
from .functional.symbols import with_vectors
from .mechanisms import Align, Dot, GeneralAttention, MultiHead, Relation, RelationalMessage, Score
from .mechanisms._score import check_made
from .relational_attention import RelationalAttention
from .transformer_blocks import DecoderBlock, EncoderBlock

__all__ = ["OwnHeads", "OwnRelations", "OwnSymbols", "make_part", "own_parts", "with_parts"]

SYMBOLS = (*RETRIEVERS.values(),)
TRIED = 3
"""Length of the sequences on which a part is tried when a model is given it."""

Model = TypeVar("Model", bound=nn.Module)
Maker = Callable[..., nn.Module]
"""A class or function that makes a part."""


class _Standing(TypedModule):
    """A part of the user's own where a model has one of its own kind: its cache keeps the inputs of earlier tokens."""

    uncounted = True
    """Whether :mod:`._models.flops` cannot count what it computes."""

    def __init__(self, part: nn.Module, **kept: int) -> None:
        super().__init__()
        self.part = part
        self._kept = {name: (width,) for name, width in kept.items()}

    def new_cache(self, max_length: int | None = None) -> TokenCache:
        """An empty cache for causal decoding; ``max_length``: most tokens to come, reserved at once."""
        return TokenCache(self._kept, max_length=max_length)

    def _continued(self, x: Tensor, given: Given, cache: Cache | None, heads: int) -> tuple[Past, MaskPattern]:
        """Place of new receivers, and the pairs that they and all senders make."""
        if given.attn_bias is not None or given.freqs_cos is not None:
            what = "rotary positions" if given.attn_bias is None else "a bias"
            raise ValueError(f"{type(self.part).__name__}: a part of your own knows no {what}; expected none")
        past = self._past(cache, given)
        return past, checked_pattern(given, x, heads=heads, earlier=past.senders, new=x.shape[1])

    def _past(self, cache: Cache | None, given: Given | None = None) -> Past:
        if cache is not None and cache.steps is not None:
            name = type(self.part).__name__
            raise ValueError(f"cache: {name}, a part of your own, knows none of a fixed size; expected one that grows")
        return continue_from(cache, self._kept, given=given)


class OwnHeads(_Standing):
    """Heads of your own where a block has its self-attention, which it calls as it calls that.

    Args:
        part: heads, called as ``part(x, mask)`` with ``x (B, N, d)`` and a boolean mask ``(B or 1, H or 1, N, N)``,
            True = may be attended, in which each row has a token to see; they return the context ``(B, N, d)``, or the
            pair of it and the weights ``(B, H, N, N)``. Or heads of :mod:`.mechanisms`, or of your own with an argument
            ``attn_mask``. Or a :class:`~.mechanisms.Score` or an :class:`~.mechanisms.Align`, for a
            :class:`~.mechanisms.MultiHead` around it.
        d_model, n_heads: d and H.
        dropout: rate on the weights, of heads of :mod:`.mechanisms` that have none of their own.
        options: of the :class:`~.mechanisms.MultiHead` around a score or an alignment, and ``scale`` and ``out_bias``.

    >>> from dual_attention.mechanisms import Cosine
    >>> OwnHeads(Cosine(), d_model=64, n_heads=4)(x := torch.randn(2, 9, 64), x, x, is_causal=True)[0].shape
    torch.Size([2, 9, 64])
    """

    def __init__(self, part: nn.Module, d_model: int, n_heads: int, dropout: float = 0.0, **options: Any) -> None:
        if isinstance(part, Score | Align):
            score, align = (Dot(options.get("scale")), part) if isinstance(part, Align) else (part, None)
            part = _multi_head(GeneralAttention(score, align), d_model, n_heads, **options)
        super().__init__(part, inputs=d_model)
        self.d_model, self.n_heads, self.dropout, self.options = d_model, n_heads, dropout, options
        self._by_name = "attn_mask" in inspect.signature(part.forward).parameters
        attentions = [module for module in part.modules() if isinstance(module, GeneralAttention)]
        self._of_features = any(one.score.multidim for one in attentions)
        self._looks_back = any(one.align.whole or one.select is not None for one in attentions)
        for attention in attentions:
            attention.dropout = attention.dropout or dropout

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        freqs_cos: Tensor | None = None,
        freqs_sin: Tensor | None = None,
        attn_mask: Tensor | MaskPattern | None = None,
        is_causal: bool = False,
        need_weights: bool = False,
        *,
        padding_mask: Tensor | None = None,
        segments: Any = None,
        attn_bias: Tensor | None = None,
        cache: Cache | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Self-attention of ``query``, as :meth:`Attention.forward <dual_attention.attention.Attention.forward>`.

        Heads have weights only if their part returns them. Without rotary positions and biases.
        """
        if cache is not None and self._looks_back:
            name = type(self.part).__name__
            raise ValueError(f"cache: {name} reads earlier queries, which no cache keeps; expected use_cache=False")
        given = Given(attn_mask, padding_mask, is_causal, segments, attn_bias, freqs_cos)
        past, pattern = self._continued(query, given, cache, self.n_heads)
        (senders,) = past.append(*query.shape[:2], inputs=query)
        if self._by_name:
            found = self.part(query, senders, attn_mask=pattern, need_weights=need_weights)
            weights = found.weights
            if weights is not None and weights.dim() == 5:  # of features, or of pairs of senders
                weights = weights.mean(-1) if self._of_features else weights.sum(-1)
            return found.context, weights
        return self._called(senders, pattern, query.shape[1])

    def _called(self, x: Tensor, pattern: MaskPattern, n: int) -> tuple[Tensor, Tensor | None]:
        """The context of the last ``n`` tokens, and their weights, from a part with the signature ``(x, mask)``."""
        m = x.shape[1]
        mask = pattern.dense(x.device)
        mask = x.new_ones(1, 1, n, m, dtype=torch.bool) if mask is None else mask
        seen = mask.any(-1, keepdim=True)
        shown = (mask | ~seen).expand(*mask.shape[:2], n, m)
        if n < m:  # rows of earlier tokens, which are not asked for
            given = pattern.attn_mask if pattern.attn_mask is not None and pattern.attn_mask.shape[2] == 1 else None
            earlier = MaskPattern(m - n, m, given, pattern.padding, causal=True).dense(x.device)
            assert earlier is not None  # as none sees the last
            earlier = earlier | ~earlier.any(-1, keepdim=True)
            lead = torch.broadcast_shapes(earlier.shape[:2], shown.shape[:2])
            shown = torch.cat([earlier.expand(*lead, -1, -1), shown.expand(*lead, -1, -1)], 2)
        found = self.part(x, shown)
        context, weights = found if isinstance(found, tuple) else (found, None)
        check_made("heads", self.part, context, "the context (B, N, d)", tuple(x.shape))
        if weights is not None:
            check_made("heads", self.part, weights, "weights (B, H, N, N)", (x.shape[0], None, m, m))
            weights = weights[:, :, -n:] * mask
        return context[:, -n:] * seen.any(1), weights


class OwnRelations(_Standing):
    """Relational heads with a relation of your own where a layer has its relational attention.

    Args:
        score: of relation queries ``(B, R, N, p)`` and keys ``(B, R, M, p)``, see :class:`~.mechanisms.Relation`.
        layer: which they stand for: widths, relations and dropout are those.

    >>> from dual_attention.mechanisms import Euclidean
    >>> layer = OwnRelations(Euclidean(), RelationalAttention(d_model=64, n_heads=4, n_relations=8))
    >>> layer(torch.randn(2, 9, 64), torch.randn(2, 9, 64), is_causal=True)[0].shape
    torch.Size([2, 9, 64])
    """

    def __init__(self, score: Score, layer: RelationalAttention) -> None:
        d, heads, relative = layer.d_model, layer.n_heads, layer.use_relative_positional_symbols
        relation = Relation(
            d,
            layer.n_relations,
            score=score,
            proj_dim=layer.rel_proj_dim,
            symmetric=layer.symmetric_rels,
            activation=layer.rel_activation,
        )
        options = _options_of(layer)
        message = RelationalMessage(
            relation,
            layer.head_dim,
            heads=heads,
            d_symbol=d,
            n_kv_heads=layer.n_kv_heads,
            relative=relative,
            bias=options["bias"],
            wr_init=1 / math.sqrt(layer.n_relations) if layer.wr_init == "large" else None,
            rel_init_size=layer.rel_init_size,
        )
        attention = GeneralAttention(Dot(layer.attn_scale), message=message, dropout=layer.dropout)
        part = _multi_head(attention, d, heads, **options)
        part._taps_symbols = False
        super().__init__(part, inputs=d, **({} if relative else {"symbols": d}))
        self.relation = relation
        self.wv = message.wv

    def forward(
        self,
        x: Tensor,
        symbols: Symbols,
        freqs_cos: Tensor | None = None,
        freqs_sin: Tensor | None = None,
        attn_mask: Tensor | MaskPattern | None = None,
        is_causal: bool = False,
        need_weights: bool = False,
        *,
        attn_bias: Tensor | None = None,
        cache: Cache | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Relational attention, as :meth:`.RelationalAttention.forward`, without rotary positions and biases."""
        part: Any = self.part
        given = Given(attn_mask, None, is_causal, None, attn_bias, freqs_cos)
        past, pattern = self._continued(x, given, cache, part.n_heads)
        observe = observer_of(part, past.position)
        if observe is not None:
            symbols = with_vectors(symbols, partial(observe, "symbols"))
        new = {"inputs": x, **({"symbols": symbols.expand_as(x)} if isinstance(symbols, Tensor) else {})}
        senders, *kept = past.append(*x.shape[:2], **new)
        found = part(x, senders, kept[0] if kept else symbols, attn_mask=pattern, need_weights=need_weights)
        relations = self.relation(x, senders, pattern.dense(x.device)) if need_weights else None
        return found.context, found.weights, relations


class OwnSymbols(_Standing):
    """Symbols of your own where a model retrieves them.

    Args:
        part: called with tokens ``(B, N, d)``; returns a symbol for each, ``(B, N, d)``.
        d_model: d.

    >>> OwnSymbols(torch.nn.Linear(64, 64), d_model=64)(torch.randn(2, 9, 64)).shape
    torch.Size([2, 9, 64])
    """

    def __init__(self, part: nn.Module, d_model: int) -> None:
        super().__init__(part, inputs=d_model)

    def forward(self, x: Tensor, cache: Cache | None = None, positions: Tensor | None = None) -> Tensor:
        """Symbols of new tokens; a causal model expects that they depend on no later ones."""
        (tokens,) = self._past(cache).append(*x.shape[:2], inputs=x)
        symbols = self.part(tokens)
        check_made("symbols", self.part, symbols, "symbols (B, N, d)", tuple(tokens.shape))
        return symbols[:, -x.shape[1] :]


def own_parts(model: nn.Module) -> list[nn.Module]:
    """Parts of your own that a model was given.

    >>> from dual_attention.mechanisms import Cosine
    >>> len(own_parts(with_parts(TransformerLM(50, 32, n_layers=2, n_heads=2), heads=Cosine)))
    2
    """
    return [module for module in model.modules() if isinstance(module, _Standing)]


def with_parts(
    model: Model, *, heads: Maker | None = None, relation: Maker | None = None, symbols: Maker | None = None
) -> Model:
    """Put parts of your own into a model of the library, each made anew for every place, and trained with it.

    They are made with those of the arguments ``d_model``, ``n_heads``, ``layer`` (from 1), ``head_dim``, ``d_q``,
    ``d_k`` (widths of one head) and ``n_relations`` that they take by name, draw their own weights, and are tried on a
    short sequence.

    Args:
        model: changed in place, and returned.
        heads: in place of the self-attention of a Transformer, see :class:`OwnHeads`.
        relation: a :class:`~.mechanisms.Score`, in place of the relations of a Dual Attention Transformer.
        symbols: in place of its symbols, see :class:`OwnSymbols`.

    Raises:
        TypeError: if a part needs other arguments, is no module, or does not return tensors.
        ValueError: if the model has no such place, its attention has an option that a part would drop, or a part fails
            or gives another shape; the model is then as it was.

    >>> from dual_attention.mechanisms import Euclidean
    >>> lm = with_parts(TransformerLM(50, 32, 1, 2, max_block_size=16), heads=Euclidean)
    >>> lm.generate(torch.tensor([[1, 2, 3]]), 4).shape
    torch.Size([1, 7])
    """
    children: list[Any] = [(owner, *child) for owner in model.modules() for child in owner._modules.items()]
    made: list[tuple[Any, str, nn.Module]] = []
    if heads is not None:
        layers = _places_of_heads(model)
        _check_place("heads", layers, "a Transformer, without relational heads")
        for number, (owner, name) in enumerate(layers, 1):
            own = getattr(owner, name)
            given, options = {"d_model": own.d_model, "n_heads": own.n_heads}, _options_of(own)
            sizes = {**given, "layer": number, **of_a_head(options["key_dim"]), "head_dim": options["head_dim"]}
            part = make_part("heads", heads, sizes, _tensor_of(own).device)
            _check_options("heads", own, part=part)
            made.append((owner, name, _tried("heads", OwnHeads(part, **given, dropout=own.dropout, **options), own)))
    if relation is not None:
        places = [(owner, name, own) for owner, name, own in children if type(own) is RelationalAttention]
        _check_place("relation", places, "a Dual Attention Transformer with relational attention")
        for number, (owner, name, own) in enumerate(places, 1):
            _check_options("relation", own, owner)
            sizes = {"n_relations": own.n_relations, "layer": number, "d_q": own.rel_proj_dim, "d_k": own.rel_proj_dim}
            score = make_part("relation", relation, sizes, _tensor_of(own).device)
            if not isinstance(score, Score):
                raise TypeError(f"relation: expected a Score, got {type(score).__name__}")
            with own.wv.weight.device:
                made.append((owner, name, _tried("relation", OwnRelations(score, own), own)))
    if symbols is not None:
        places = [place for place in children if isinstance(place[2], SYMBOLS) and not isinstance(place[0], SYMBOLS)]
        _check_place("symbols", places, "a Dual Attention Transformer with symbols")
        shared: dict[nn.Module, nn.Module] = {}  # by layers
        for owner, name, own in places:
            if own not in shared:
                width = getattr(own, "d_model", None) or own.symbol_dim
                sizes = {"d_model": width, "layer": len(shared) + 1}
                part = make_part("symbols", symbols, sizes, _tensor_of(own).device)
                shared[own] = _tried("symbols", OwnSymbols(part, width), own)
            made.append((owner, name, shared[own]))
    for owner, name, standing in made:  # all of them have been tried
        setattr(owner, name, standing)
    return model


def _places_of_heads(model: nn.Module) -> list[tuple[Any, str]]:
    """Owners and names of the self-attention of a model without relational heads."""
    places: list[tuple[Any, str]] = []
    for module in model.modules():
        if isinstance(module, EncoderBlock | DecoderBlock):
            places.append((module, "self_attn"))
        elif isinstance(module, DualAttention) and module.relational_attention is None:
            places.append((module, "self_attention"))
    return places


def _check_place(name: str, places: Any, expected: str) -> None:
    if not places:
        raise ValueError(f"{name}: expected {expected}, got a model without a place for them")


def _options_of(own: Any) -> dict[str, Any]:
    """Options of a layer that heads of :mod:`.mechanisms` in its place keep, see :func:`_multi_head`."""
    if isinstance(own, OwnHeads):
        width = own.d_model // own.n_heads
        return {"key_dim": width, "head_dim": width, **own.options}
    widths = {"n_kv_heads": own.n_kv_heads, "key_dim": own.key_dim, "head_dim": own.head_dim}
    out = {"d_out": own.wo.out_features, "out_bias": own.wo.bias is not None, "out_dropout": own.resid_dropout.p}
    return {**widths, **out, "bias": own.wv.bias is not None, "scale": own.attn_scale}


def _multi_head(
    attention: GeneralAttention, d_model: int, n_heads: int, *, scale: Any = None, out_bias: bool = False, **others: Any
) -> MultiHead:
    """Heads with the options of a layer, except for the ``scale`` of its scores, which is the attention's."""
    heads = MultiHead(attention, d_model, n_heads, **others)
    if out_bias and heads.wo is not None:
        heads.wo.bias = nn.Parameter(torch.zeros(heads.wo.out_features))
    return heads


def _check_options(name: str, own: Any, owner: Any = None, part: Any = None) -> None:
    """Refuse a place whose attention has options that a part would drop."""
    options = {"window": "window", "rel_pos_keys": "shaw_max_rel_pos", "wg": "output_gate"}
    dropped = [option for key, option in options.items() if getattr(own, key, None) is not None]
    dropped += ["share_attn_params"] * getattr(owner, "share_attn_params", False)
    of_queries = getattr(own, "wq_attn", getattr(own, "wq", None))
    if isinstance(part, Score | Align | None) and of_queries is not None and of_queries.bias is not None:
        dropped += ["add_bias_q"]
    kept = _options_of(own)
    if isinstance(part, Score) and kept.get("scale") not in (None, 1 / math.sqrt(kept["key_dim"])):
        dropped += ["attn_scale"]
    if dropped:
        raise ValueError(f"{name}: expected attention without {', '.join(dropped)}, which it would drop")


def of_a_head(width: int) -> dict[str, int]:
    """Sizes that a part of a head takes by name."""
    return dict.fromkeys(("head_dim", "d_q", "d_k"), width)


def make_part(name: str, make: Maker, sizes: Mapping[str, int], device: torch.device) -> nn.Module:
    """A part of your own, made on a device with those of the sizes that it takes by name; errors begin with ``name``.

    >>> make_part("heads", torch.nn.ReLU, {"d_model": 64}, torch.device("cpu"))
    ReLU()
    """
    parameters, title = inspect.signature(make).parameters, getattr(make, "__name__", "it")
    fixed = [p for p in parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    needed = [p.name for p in fixed if p.default is p.empty and p.name not in sizes]
    if needed:
        raise TypeError(
            f"{name}: expected {title} to need no arguments other than {', '.join(sizes)}, got {', '.join(needed)}"
        )
    with device:
        part = make(**{p.name: sizes[p.name] for p in fixed if p.name in sizes})
    if not isinstance(part, nn.Module):
        raise TypeError(f"{name}: expected {title} to be a module, got {type(part).__name__}")
    return part


def words_of_error(error: Exception) -> str:
    """The message of an error in a part, in one line."""
    message = " ".join(str(error).split())
    return message if type(error) in (TypeError, ValueError, AssertionError) else f"{type(error).__name__}: {message}"


def _tensor_of(own: nn.Module) -> Tensor:
    return next((p for p in own.parameters() if p.is_floating_point()), torch.zeros(()))


@torch.no_grad()
def _tried(name: str, standing: Any, own: nn.Module) -> Any:
    """A part where and as wide as that which it replaces, after a call as the model's, unless there are no values."""
    like = _tensor_of(own)
    standing.to(like.device, like.dtype)
    if like.is_meta or (isinstance(standing, OwnRelations) and "symbols" not in standing._kept):
        return standing.train(own.training)
    width = standing._kept["inputs"][0]
    x = torch.linspace(-1, 1, 2 * TRIED * width).view(2, TRIED, width).to(like)
    try:
        options: dict[str, Any] = {} if isinstance(standing, OwnSymbols) else {"is_causal": True}
        called: Any = standing.eval()
        called(*[x] * len(standing._kept), **options)
    except Exception as error:
        raise ValueError(f"{name}: tried on inputs {tuple(x.shape)}: {words_of_error(error)}") from error
    return standing.train(own.training)
