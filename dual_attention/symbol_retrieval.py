"""Symbol assignment: which vector names a sender in relational attention.

With a cache from ``new_cache()``, ``x`` holds only new tokens, and their symbols are those of one pass over all.
Positions count the real tokens of each example; they are needed where examples are padded on the left, see
:func:`~dual_attention.functional.positions_from_padding`. Segments, ``(B or 1, L)`` as those of the layers, tell
sequences that are packed into one apart: each gets the symbols that it gets alone. All mechanisms of sequences take
these arguments, used or not.

Shapes: B batch, L length (of the new tokens, with a cache), t earlier tokens, d width of the model and of the symbols.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._layers.cache import Cache, TokenCache
from ._layers.call import Past, continue_from, transaction
from ._layers.calls import TypedModule
from ._layers.heads import head_dim, merge_heads, split_heads
from ._layers.inputs import (
    check_boolean,
    check_dropout,
    check_not_negative,
    check_places,
    check_positive,
    check_sequence,
    check_tokens,
)
from ._layers.packed import project_at_once
from ._layers.taps import Taps, observer_of
from .functional import OffsetSymbols, RelativeSymbols, positions_from_segments
from .functional.checks import check_finite, is_readable, require_rate, saves_launches
from .functional.reference import inner_products, scores_for_softmax
from .functional.relational.whole import attention_weights
from .functional.symbol_assignment import assign_symbols
from .positional_encoding import (
    RelativePositionalEncoding,
    check_positions,
    rows_at,
    sinusoidal_table,
    sinusoids,
    table_of,
)

__all__ = [
    "PositionRelativeSymbolRetriever",
    "PositionRelativeSymbolRetriever2D",
    "PositionalSymbolRetriever",
    "RelationalSymbolicAttention",
    "SymbolicAttention",
]


class _CountsTokens(TypedModule):
    """A mechanism whose symbols depend on nothing of earlier tokens but, at most, their number."""

    def new_cache(self, max_length: int | None = None) -> TokenCache:
        """An empty cache; it counts tokens, so that positions continue."""
        return TokenCache({}, max_length=max_length)

    def _count(self, cache: Cache | None, x: Tensor) -> int:
        """Count the new tokens ``x`` ``(B, L, ...)``; returns how many came before."""
        if cache is None:
            return 0
        past = continue_from(cache, {})
        past.append(*x.shape[:2])
        return past.senders


def _within_sequences(
    positions: Tensor | None, segments: Tensor | None, x: Tensor, cache: Cache | None
) -> Tensor | None:
    """Positions as they are given, else those within the sequences that are packed into ``x``, if there are any."""
    if segments is None:
        return positions
    if cache is not None:
        raise ValueError("segments: packed sequences cannot be continued from a cache; give one or the other")
    check_places("segments", segments, *x.shape[:2])
    return positions_from_segments(segments) if positions is None else positions


def spreads_over_examples(x: Tensor) -> bool:
    """Whether symbolic attention gives each example a library of its own, ``(B, H, K, width)`` without copies.

    Kernels that compute gradients have a program for every block of templates in each example. With one example that
    holds all objects, they are fewer than the multiprocessors of a GPU.
    """
    return x.is_cuda and len(x) > 1 and torch.is_grad_enabled()


class SymbolicAttention(_CountsTokens):
    """Symbols by features: each object attends to learned templates and receives a mixture of learned symbols.

    Math: s_i = concat_h(sum_k softmax_k(scale <(W x_i + b)^h, template_k^h>) symbol_k^h)

    Args:
        d_model: width of objects, templates and symbols.
        n_heads: heads, each over ``d_model / n_heads`` features.
        n_symbols: rows of the library.
        dropout: rate on the attention weights, while training.
        scale: factor of the scores; by default ``1 / sqrt(d_model / n_heads)``.
        trainable_symbols: whether the symbols learn; the templates always do.

    >>> SymbolicAttention(d_model=64, n_heads=4, n_symbols=16)(torch.randn(2, 9, 64)).shape
    torch.Size([2, 9, 64])
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_symbols: int,
        dropout: float = 0.0,
        scale: float | None = None,
        trainable_symbols: bool = True,
    ) -> None:
        super().__init__()
        width = head_dim(d_model, n_heads, None, None)
        check_positive(n_symbols=n_symbols)
        self.d_model = d_model
        self.n_heads = n_heads
        self.n_symbols = n_symbols
        self.dropout = check_dropout("dropout", dropout)
        check_boolean(trainable_symbols=trainable_symbols)
        self.scale = 1 / math.sqrt(width) if scale is None else scale
        check_finite(scale=self.scale)
        self.q_proj = nn.Linear(d_model, d_model)
        self.template_features = nn.Parameter(torch.empty(n_symbols, d_model))
        self.symbol_library = nn.Parameter(torch.empty(n_symbols, d_model), requires_grad=trainable_symbols)
        self.taps = Taps(("assignment",))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw templates and symbols from a standard normal distribution."""
        nn.init.normal_(self.template_features)
        nn.init.normal_(self.symbol_library)

    def forward(
        self, x: Tensor, *, cache: Cache | None = None, positions: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """``(B, L, d) -> (B, L, d)``; positions and segments do not matter."""
        check_sequence("x", x, self.d_model, layer=self.q_proj)
        rate = self.dropout if self.training else 0.0
        # alpha^h_ik = softmax_k(scale <(W x_i + b)^h, template_k^h>)
        q, observe, libraries = self._queries(x), observer_of(self), 1
        if observe is None and spreads_over_examples(x):
            q, libraries = q.unflatten(2, x.shape[:2]).squeeze(0).transpose(0, 1), len(x)
        templates = split_heads(self.template_features.expand(libraries, -1, -1), self.n_heads)
        library = split_heads(self.symbol_library.expand(libraries, -1, -1), self.n_heads)
        # s_i = concat_h(sum_k alpha^h_ik symbol_k^h)
        if observe is not None:
            assignment = observe("assignment", self._assignment(q, templates, x))
            symbols = F.dropout(assignment.transpose(0, 1).flatten(1, 2)[None], rate) @ library
        else:
            symbols = assign_symbols(q, templates, library, scale=self.scale, dropout=rate)
        if cache is not None:
            with transaction(cache):
                self._count(cache, x)
        return merge_heads(symbols).view_as(x)

    def weights(self, x: Tensor) -> Tensor:
        """Weights of the symbols that each object receives: ``(B, n_heads, L, n_symbols)``, rows summing to one."""
        check_sequence("x", x, self.d_model, layer=self.q_proj)
        return self._assignment(self._queries(x), split_heads(self.template_features[None], self.n_heads), x)

    def extra_repr(self) -> str:
        return f"{self.d_model}, n_heads={self.n_heads}, n_symbols={self.n_symbols}"

    def _queries(self, x: Tensor) -> Tensor:
        """``(1, n_heads, B * L, width)``: examples share one library, which is not copied for each of them."""
        return split_heads(self.q_proj(x).flatten(0, 1)[None], self.n_heads)

    def _assignment(self, q: Tensor, templates: Tensor, x: Tensor) -> Tensor:
        weights = attention_weights(q, templates, scale=self.scale)
        return weights.unflatten(2, x.shape[:2]).squeeze(0).transpose(0, 1)


class PositionalSymbolRetriever(_CountsTokens):
    """Symbols by position.

    Args:
        symbol_dim: width of the symbols.
        max_length: largest length.
        sinusoidal: fixed sinusoidal symbols instead of learned ones; they are not in the state dict.

    >>> PositionalSymbolRetriever(symbol_dim=64, max_length=100)(torch.randn(2, 9, 64)).shape
    torch.Size([2, 9, 64])
    """

    def __init__(self, symbol_dim: int, max_length: int, sinusoidal: bool = False) -> None:
        super().__init__()
        check_boolean(sinusoidal=sinusoidal)
        check_positive(symbol_dim=symbol_dim, max_length=max_length)
        self.symbol_dim = symbol_dim
        self.max_length = max_length
        self.sinusoidal = sinusoidal
        if sinusoidal:
            table = sinusoidal_table(max_length, symbol_dim).to(torch.get_default_dtype())
            self.register_buffer("sinusoids", table, persistent=False)
        else:
            self.symbol_library = nn.Embedding(max_length, symbol_dim)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PositionalSymbolRetriever:
        before = self.table()
        super()._apply(fn, recurse)
        if self.table() is not before:  # .to_empty() leaves out the values, and no state dict fills sinusoids
            self.fill_tables()
        return self

    def fill_tables(self) -> None:
        """Compute the sinusoids, if symbols are sinusoidal."""
        if self.sinusoidal:
            self.get_buffer("sinusoids").copy_(sinusoidal_table(self.max_length, self.symbol_dim))

    def table(self) -> Tensor:
        """The symbols of all positions, ``(max_length, symbol_dim)``."""
        return self.get_buffer("sinusoids") if self.sinusoidal else self.symbol_library.weight

    def forward(
        self, x: Tensor, *, cache: Cache | None = None, positions: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """``(B, L, ...) -> (B, L, symbol_dim)``, one symbol for each position.

        Args:
            cache: from ``new_cache``.
            positions: integers ``(B or 1, L)``; by default L in a row after the tokens seen, in every example.
            segments: integers ``(B or 1, L)``: by default positions begin again in each of these sequences.

        Raises:
            ValueError: if a position is ``max_length`` or more, positions or segments have the wrong shape, or there
                are segments and a cache.
        """
        with transaction(cache):
            check_tokens("x", x)
            positions = _within_sequences(positions, segments, x, cache)
            seen = self._count(cache, x)
            table = self.get_buffer("sinusoids") if self.sinusoidal else table_of(self.symbol_library, x)
            symbols = rows_at(table, x, positions, limit="max_length", offset=seen)
            return symbols.expand(*x.shape[:2], self.symbol_dim)


class PositionRelativeSymbolRetriever(_CountsTokens):
    """Symbols by relative position: to receiver ``i``, sender ``j`` is named by ``j - i``.

    Sinusoidal symbols have no parameters, and need no largest offset:

    Math: s_ij[2c] = sin((j - i) theta^(-2c/d)),  s_ij[2c+1] = cos((j - i) theta^(-2c/d))

    Args:
        symbol_dim: width of the symbols.
        max_rel_pos: P; offsets are clipped to [-P, P]. Sinusoidal symbols are not clipped by default. In a model with a
            window, ``P = window - 1`` changes nothing and bounds the memory of long texts.
        sinusoidal: fixed sinusoidal symbols instead of learned ones; nothing of them is in the state dict.
        theta: base of their frequencies.

    Raises:
        ValueError: if learned symbols are not given ``max_rel_pos``, or ``theta`` is not positive.

    >>> symbols = PositionRelativeSymbolRetriever(symbol_dim=64, max_rel_pos=8)(torch.randn(2, 9, 64))
    >>> symbols.shape, symbols.library.shape
    (torch.Size([9, 9, 64]), torch.Size([17, 64]))
    """

    def __init__(
        self, symbol_dim: int, max_rel_pos: int | None = None, *, sinusoidal: bool = False, theta: float = 10000.0
    ) -> None:
        super().__init__()
        check_boolean(sinusoidal=sinusoidal)
        check_positive(symbol_dim=symbol_dim)
        require_rate("theta", theta)
        if max_rel_pos is not None:
            check_not_negative(max_rel_pos=max_rel_pos)
        elif not sinusoidal:
            raise ValueError("max_rel_pos: expected an integer, since only sinusoidal symbols have no largest offset")
        self.symbol_dim = symbol_dim
        self.max_rel_pos = max_rel_pos
        self.sinusoidal = sinusoidal
        self.theta = theta
        if max_rel_pos is not None and not sinusoidal:
            self.rel_pos_enc = RelativePositionalEncoding(symbol_dim, max_rel_pos)

    def forward(
        self,
        x: Tensor,
        y: Tensor | None = None,
        *,
        cache: Cache | None = None,
        positions: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> OffsetSymbols:
        """Symbols for receivers ``x`` ``(B, N, ...)`` and senders ``y`` ``(B, M, ...)``, by default ``x``.

        Args:
            cache: from ``new_cache``; senders are then the tokens seen and ``x``, and ``y`` must not be given.
            positions, segments: do not matter, since left padding, and what is packed before a sequence, moves
                receiver and sender alike.

        Returns:
            :class:`OffsetSymbols` of shape ``(N, M, symbol_dim)``, or ``(N, t + N, symbol_dim)`` after t tokens in a
            cache. ``.dense()`` builds the tensor.
        """
        with transaction(cache):
            if cache is not None and y is not None:
                raise ValueError("y: with a cache the senders are the tokens seen and x; give one or the other")
            if y is not None:
                check_tokens("y", y)
            check_tokens("x", x)
            seen = self._count(cache, x)
            senders = seen + (x if y is None else y).shape[1]
            table = self._sinusoids(x, y, senders, cache) if self.sinusoidal else self.rel_pos_enc.table(x)
            fixed = None if cache is None else cache.steps
            return OffsetSymbols(table, x.shape[1], senders, offset=seen if fixed is None else fixed.place)

    def _sinusoids(self, x: Tensor, y: Tensor | None, senders: int, cache: Cache | None) -> Tensor:
        """The symbols of all offsets up to P, or to more than any of these tokens."""
        farthest = senders if y is None else max(senders, x.shape[1])
        if isinstance(cache, TokenCache):  # the same table for many tokens, so that layers project it once
            farthest = 1 << farthest.bit_length() if cache.max_length is None else cache.max_length
        if self.max_rel_pos is not None:
            farthest = self.max_rel_pos
        dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
        wide = torch.float32 if x.device.type == "mps" else torch.float64
        offsets = torch.arange(-farthest, farthest + 1, device=x.device, dtype=wide)

        def made() -> Tensor:
            return sinusoids(offsets, self.symbol_dim, self.theta).to(dtype)

        return cache.once(farthest, made) if isinstance(cache, TokenCache) else made()


class PositionRelativeSymbolRetriever2D(TypedModule):
    """Symbols by relative position in a grid, such as the patches of an image.

    To a receiver in row ``i``, column ``k``, a sender in row ``j``, column ``l`` is named by ``(j - i, l - k)``, each
    clipped. Tokens in front of the grid (a class token) have no place in it; three more symbols name such pairs: both
    in front, the sender in front, the receiver in front.

    Args:
        symbol_dim: width of the symbols.
        max_rel_pos: largest offsets (rows, columns), or one number for both.
        n_prefix_tokens: tokens in front of the grid.

    >>> retriever = PositionRelativeSymbolRetriever2D(symbol_dim=64, max_rel_pos=3)
    >>> retriever(torch.randn(2, 13, 64), grid_size=(3, 4)).shape
    torch.Size([13, 13, 64])
    """

    def __init__(self, symbol_dim: int, max_rel_pos: int | tuple[int, int], n_prefix_tokens: int = 1) -> None:
        super().__init__()
        pair = max_rel_pos if isinstance(max_rel_pos, list | tuple) else (max_rel_pos, max_rel_pos)
        if len(pair) != 2:
            raise ValueError(f"max_rel_pos: expected a number or two, got {max_rel_pos!r}")
        rows, columns = pair
        check_positive(symbol_dim=symbol_dim)
        check_not_negative(max_rel_pos=rows, n_prefix_tokens=n_prefix_tokens)
        check_not_negative(max_rel_pos=columns)
        self.symbol_dim = symbol_dim
        self.max_rel_pos = (rows, columns)
        self.n_prefix_tokens = n_prefix_tokens
        self.n_offsets = (2 * rows + 1) * (2 * columns + 1)
        self.symbol_library = nn.Parameter(torch.empty(self.n_offsets + (3 if n_prefix_tokens else 0), symbol_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the symbols anew (Glorot & Bengio 2010)."""
        nn.init.xavier_uniform_(self.symbol_library)

    def index(self, grid_size: tuple[int, int]) -> Tensor:
        """Row of the library for each pair of tokens: ``(T, T)`` with T = prefix tokens + rows * columns."""
        device = self.symbol_library.device
        height, width = grid_size
        reach_y, reach_x = self.max_rel_pos
        place = torch.arange(height * width, device=device)
        row, column = place // width, place % width
        dy = (row[None, :] - row[:, None]).clamp(-reach_y, reach_y) + reach_y
        dx = (column[None, :] - column[:, None]).clamp(-reach_x, reach_x) + reach_x
        prefix = self.n_prefix_tokens
        index = F.pad(dy * (2 * reach_x + 1) + dx, (prefix, 0, prefix, 0), value=self.n_offsets)
        index[prefix:, :prefix] = self.n_offsets + 1
        index[:prefix, prefix:] = self.n_offsets + 2
        return index

    def forward(self, x: Tensor, grid_size: tuple[int, int], *, cache: Cache | None = None) -> RelativeSymbols:
        """Symbols for the tokens ``x`` ``(B, T, ...)`` of a grid of ``grid_size`` = (rows, columns); no cache."""
        if cache is not None:
            raise ValueError("cache: a grid is not a sequence that new tokens continue; expected None")
        check_tokens("x", x)
        tokens = self.n_prefix_tokens + grid_size[0] * grid_size[1]
        if x.shape[1] != tokens:
            raise ValueError(f"x: expected {tokens} tokens for a grid of {grid_size}, got {x.shape[1]}")
        return RelativeSymbols(self.symbol_library, self.index(grid_size))


class RelationalSymbolicAttention(TypedModule):
    """Symbols by role: an object is described by its relations with its neighbours, and retrieves a symbol with that.

    Neighbours beyond the ends of the sequence are replaced by the object at the end.

    Args:
        d_model: width of objects and symbols.
        rel_n_heads: relations computed with each neighbour.
        symbolic_attn_n_heads, n_symbols, dropout, symbolic_attn_scale, trainable_symbols: of the
            :class:`SymbolicAttention` that retrieves the symbol.
        nbhd_delta: neighbours on one side.
        causal_nbhd: only earlier neighbours.
        include_self: count the object among its neighbours.
        normalize_rels: softmax over the neighbours of the relations times ``rel_scale``.
        rel_scale: by default ``1 / sqrt(d_model / rel_n_heads)``.

    >>> by_role = RelationalSymbolicAttention(64, rel_n_heads=4, symbolic_attn_n_heads=4, n_symbols=16, nbhd_delta=2)
    >>> by_role(torch.randn(2, 9, 64)).shape
    torch.Size([2, 9, 64])
    """

    def __init__(
        self,
        d_model: int,
        rel_n_heads: int,
        symbolic_attn_n_heads: int,
        n_symbols: int,
        nbhd_delta: int,
        causal_nbhd: bool = True,
        include_self: bool = False,
        normalize_rels: bool = True,
        dropout: float = 0.0,
        rel_scale: float | None = None,
        symbolic_attn_scale: float | None = None,
        *,
        trainable_symbols: bool = True,
    ) -> None:
        super().__init__()
        check_boolean(causal_nbhd=causal_nbhd, include_self=include_self, normalize_rels=normalize_rels)
        width = head_dim(d_model, rel_n_heads, None, None)
        check_positive(nbhd_delta=nbhd_delta)
        self.d_model = d_model
        self.rel_n_heads = rel_n_heads
        self.nbhd_delta = nbhd_delta
        self.causal_nbhd = causal_nbhd
        self.include_self = include_self
        self.normalize_rels = normalize_rels
        self.rel_scale = 1 / math.sqrt(width) if rel_scale is None else rel_scale
        check_finite(rel_scale=self.rel_scale)
        own = {"dropout": dropout, "scale": symbolic_attn_scale, "trainable_symbols": trainable_symbols}
        self.symbolic_attention = SymbolicAttention(d_model, symbolic_attn_n_heads, n_symbols, **own)
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.model_dim_proj = nn.Linear(rel_n_heads * len(self.offsets()), d_model)

    def offsets(self) -> list[int]:
        """Positions of the neighbours relative to the object."""
        if self.causal_nbhd:  # nearest first
            return [-step for step in range(0 if self.include_self else 1, self.nbhd_delta + 1)]
        return [step for step in range(-self.nbhd_delta, self.nbhd_delta + 1) if step != 0 or self.include_self]

    def _kept(self) -> dict[str, tuple[int, ...]]:
        if not self.causal_nbhd:
            raise ValueError("cache: needs causal_nbhd=True, since an object's symbol depends on later ones otherwise")
        return {"k": (self.rel_n_heads, self.d_model // self.rel_n_heads)}

    def new_cache(self, max_length: int | None = None) -> TokenCache:
        """An empty cache of the keys of the last ``nbhd_delta`` tokens; needs ``causal_nbhd``."""
        return TokenCache(self._kept(), window=self.nbhd_delta + 1, max_length=max_length)

    def forward(
        self, x: Tensor, *, cache: Cache | None = None, positions: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """``(B, L, d) -> (B, L, d)``.

        Args:
            cache: from ``new_cache``.
            positions: integers ``(B or 1, L)``: real tokens before each, so that neighbourhoods do not reach into left
                padding; padding between real tokens is seen. By default all tokens are real.
            segments: integers ``(B or 1, L)``: sequences, beyond whose ends no neighbourhood reaches.

        Raises:
            ValueError: for a cache or positions, without segments, with neighbourhoods that are not causal; for
                positions that are negative or exceed the number of earlier tokens; or for segments and a cache.
        """
        with transaction(cache):
            check_sequence("x", x, self.d_model, layer=self.q_proj)
            batch, length, _ = x.shape
            past = Past() if cache is None else continue_from(cache, self._kept(), window=self.nbhd_delta + 1)
            positions = _within_sequences(positions, segments, x, cache)
            in_a_row = saves_launches(x) and length == 1 and positions is None and past.held >= self.nbhd_delta
            neighbours = None if in_a_row else self._neighbours(x, past, positions, segments)
            both, packed = (self.q_proj, self.k_proj), None
            if saves_launches(x):
                packed = project_at_once(x, both, lambda make: past.once(0, make))
            q, k = (layer(x) for layer in both) if packed is None else packed.chunk(2, dim=-1)
            q = q.unflatten(-1, (self.rel_n_heads, 1, -1))
            (k,) = past.append(batch, length, k=split_heads(k, self.rel_n_heads))
            if neighbours is None:  # the farthest first
                nearest = past.held + (1 if self.include_self else 0)
                of_neighbours = k[:, None, :, past.held - self.nbhd_delta : nearest]
            else:
                examples = torch.arange(batch, device=x.device)[:, None, None]
                of_neighbours = k.transpose(1, 2)[examples, neighbours].transpose(2, 3)
            # of neighbours: (B, L, heads, neighbours, width)
            if self.normalize_rels:
                scores = scores_for_softmax(q, of_neighbours, self.rel_scale)
                relations = torch.softmax(scores, dim=-1)
            else:
                relations = inner_products(q, of_neighbours, 1.0)
            # The projection reads neighbours outermost, relations within.
            relations = relations.squeeze(3).transpose(2, 3).to(q.dtype, memory_format=torch.contiguous_format)
            described = None
            if neighbours is None:  # the weights are turned round once, rather than the neighbours of each token
                described = project_at_once(
                    relations.flatten(2),
                    [self.model_dim_proj],
                    lambda make: past.once(1, lambda: self._turned(make())),
                )
                relations = relations if described is not None else relations.flip(2)
            if described is None:
                described = self.model_dim_proj(relations.flatten(2))
            return self.symbolic_attention(described)

    def _turned(self, joined: Tensor) -> Tensor:
        """Weights and biases of ``model_dim_proj``, in a row, for neighbours of which the farthest is first."""
        weights, bias = joined.split([self.model_dim_proj.weight.numel(), self.d_model])
        return torch.cat([weights.view(self.d_model, -1, self.rel_n_heads).flip(1).flatten(), bias])

    def _neighbours(self, x: Tensor, past: Past, positions: Tensor | None, segments: Tensor | None) -> Tensor:
        """Places of the neighbours among the held and the new tokens: ``(B or 1, L, neighbours)``."""
        batch, length, _ = x.shape
        places = torch.arange(length, device=x.device)
        if self.causal_nbhd:  # nothing is copied to a device, which could not be recorded
            steps = -torch.arange(0 if self.include_self else 1, self.nbhd_delta + 1, device=x.device)
        else:
            steps = torch.tensor(self.offsets(), device=x.device)
        if positions is None:
            # What was dropped is never reached, so place 0 is the first token whenever it matters.
            return (past.held + places[:, None] + steps).clamp(0, past.held + length - 1)[None]
        if not self.causal_nbhd and segments is None:
            raise ValueError("positions: needs causal_nbhd=True, since they do not tell where an example ends")
        check_positions(positions, batch, length, past.senders + length - 1, f"{past.senders} tokens came before x")
        if is_readable(positions) and (positions > past.senders + places).any():
            raise ValueError("positions: expected no more than the tokens before each, padding included")
        steps = torch.maximum(steps, -positions.long()[..., None])
        if segments is not None:  # as many as follow in the sequence, counted from its end
            steps = torch.minimum(steps, positions_from_segments(segments.flip(-1)).flip(-1)[..., None])
        return past.offset() + places[:, None] + steps
