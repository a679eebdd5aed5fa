"""Inputs of one call of relational attention, checked once, and its output; shapes as in :mod:`..reference`."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ..._base.words import repr_of_shapes
from .. import reference
from ..activations import Activation, activation_function
from ..checks import (
    MaybeNone,
    check_axes,
    check_dropout,
    check_finite,
    check_key_heads,
    check_same_device,
    check_same_dtype,
    check_shapes,
    is_autocast,
)
from ..derivatives import needs_plain
from ..masks import MaskPattern, pattern_and_bias
from ..padding import zero_padding
from ..symbols import RelativeSymbols, check_index, checked_table, symbol_table
from .whole import has_symbol_per_pair, messages


class RelationalAttentionOutput(NamedTuple):
    """Output of relational attention.

    Attributes:
        output: attended messages; ``(B, H, N, d_h)`` from the operation, ``(B, N, H * d_h)`` from the layer.
        weights: attention weights after dropout, ``(B, H, N, M)``, or None if not asked for.
        relations: ``(B, N, M, R)``, unmasked, or None if not asked for.

    >>> q, symbols = torch.randn(2, 4, 9, 16), torch.randn(2, 4, 9, 16)
    >>> u, w_r = torch.randn(2, 9, 8, 4), torch.randn(4, 16, 8)
    >>> relational_attention(q, q, u, u, symbols, w_r, scale=0.25, rel_scale=0.5)
    RelationalAttentionOutput(output=Tensor(2, 4, 9, 16))
    """

    output: Tensor
    weights: Tensor | MaybeNone = None
    relations: Tensor | MaybeNone = None

    __repr__ = repr_of_shapes


class RelationalInputs(NamedTuple):
    """Inputs of one call, checked: by :func:`check_inputs`, or by the layer whose projections they are.

    It has no properties, which ``torch.compile`` of PyTorch 2.7 and 2.8 does not follow in a tuple.

    Attributes:
        q, k, u, w, symbols, w_r, scale, rel_scale, rel_activation, dropout, need_weights: as in
            :func:`.relational_attention`; padded senders are as they were given until :meth:`zeroed`.
        pattern: which pairs may be attended.
        bias: of the type of ``q``.
        owned: whether nobody else holds k, w and symbols, and no maps are wanted.
        given_w: w as it was given, with what padded senders hold, if they are zeros in w.
    """

    q: Tensor
    k: Tensor
    u: Tensor
    w: Tensor
    symbols: Tensor | RelativeSymbols
    w_r: Tensor
    scale: float
    rel_scale: float
    rel_activation: str | Activation
    pattern: MaskPattern
    bias: Tensor | None
    dropout: float
    need_weights: bool
    owned: bool = False
    given_w: Tensor | None = None

    def n(self) -> int:
        """Receivers."""
        return self.q.shape[2]

    def m(self) -> int:
        """Senders."""
        return self.k.shape[2]

    def activated(self) -> bool:
        """Whether relations are more than inner products, which keeps sums over senders from moving inside them."""
        return self.rel_activation != "identity"

    def needs_plain(self) -> bool:
        """Whether derivatives are taken in ways that only plain operations know."""
        return needs_plain(self.q, self.k, self.u, self.w, symbol_table(self.symbols), self.bias)

    def mask(self) -> Tensor | None:
        """The whole mask, broadcastable to ``(B, H, N, M)``; None if nothing is hidden."""
        return self.pattern.dense(self.q.device)

    def agreeing(self) -> RelationalInputs:
        """The same, after types and sizes have been checked, which adapters in the place of projections may change.

        ``ValueError`` or ``TypeError`` for the first that differs.
        """
        q, k, u, w, symbols, w_r = self.q, self.k, self.u, self.w, self.symbols, self.w_r
        table = symbols.library if isinstance(symbols, RelativeSymbols) else symbols
        if not q.dtype == k.dtype == u.dtype == w.dtype == table.dtype:
            check_same_dtype(q=q, k=k, u=u, w=w, symbols=table)
        if w_r.dtype != q.dtype and not is_autocast(q):
            check_same_dtype(q=q, w_r=w_r)
        if not (q.shape[3] == k.shape[3] and u.shape[3] == w.shape[3] and table.shape[-1] == w_r.shape[1]):
            _check_shapes(q, k, u, w, symbols, w_r)
        return self

    def zeroed(self) -> RelationalInputs:
        """The same with zeros for padded senders."""
        if self.pattern.padding is None:
            return self
        (k,) = zero_padding(self.pattern, self.k, owned=self.owned)
        (w,) = zero_padding(self.pattern, self.w, axis=1, owned=self.owned)
        symbols = self.symbols
        if isinstance(symbols, Tensor):
            (symbols,) = zero_padding(self.pattern, symbols, owned=self.owned)
        return self._replace(k=k, w=w, symbols=symbols, given_w=self.w)

    def with_padded(self, relations: Tensor) -> Tensor:
        """Relations as they are returned, with padded senders as they were given, from those that are summed."""
        if self.given_w is None or self.pattern.padding is None:
            return relations
        given = reference.relations(
            self.u, self.given_w, scale=self.rel_scale, activation=self.rel_activation, mask=self.mask(), bias=self.bias
        )
        return relations.where(self.pattern.padding[:, None, :, None], given)

    def output(self, attended_symbols: Tensor, attended_relations: Tensor) -> RelationalAttentionOutput:
        """Output from the two parts of the messages, ``(B, H, N, d_h)`` and ``(B, H, N, R)``."""
        return RelationalAttentionOutput(messages(attended_symbols, attended_relations, self.w_r))


def check_inputs(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    symbols: Tensor | RelativeSymbols,
    w_r: Tensor,
    scale: float,
    rel_scale: float,
    rel_activation: str | Activation,
    mask: Tensor | MaskPattern | None,
    bias: Tensor | None,
    dropout: float,
    need_weights: bool,
) -> RelationalInputs:
    """Check the arguments of :func:`.relational_attention`."""
    check_axes(q=(q, 4), k=(k, 4), u=(u, 4), w=(w, 4), w_r=(w_r, 3))
    table = checked_table(symbols)
    check_same_device(q=q, k=k, u=u, w=w, symbols=table, w_r=w_r, bias=bias)
    check_index(q, symbols)
    check_same_dtype(q=q, k=k, u=u, w=w, symbols=table)
    if w_r.dtype != q.dtype and not is_autocast(q):
        check_same_dtype(q=q, w_r=w_r)
    _check_shapes(q, k, u, w, symbols, w_r)
    check_dropout("dropout", dropout)
    check_finite(scale=scale, rel_scale=rel_scale)
    pattern, bias = pattern_and_bias(mask, bias, q=q, m=k.shape[2])
    activation_function(rel_activation, "rel_activation")
    return RelationalInputs(
        q, k, u, w, symbols, w_r, scale, rel_scale, rel_activation, pattern, bias, dropout, need_weights
    )


def _check_shapes(q: Tensor, k: Tensor, u: Tensor, w: Tensor, symbols: Tensor | RelativeSymbols, w_r: Tensor) -> None:
    batch, heads, n, width = q.shape
    groups, m = k.shape[1], k.shape[2]
    n_relations, p = u.shape[2:]
    if not (n_relations and p):
        raise ValueError(f"u: expected at least one relation and one feature of it, got shape {tuple(u.shape)}")
    if isinstance(symbols, RelativeSymbols):
        if symbols.sizes[:2] != (n, m):
            raise ValueError(f"symbols: expected pairs (N, M) = {(n, m)}, got {symbols.sizes[:2]}")
        library = symbols.library
        of_symbols = {"symbols.library": (library, (library.shape[0], groups, w_r.shape[1]))}
    else:
        of_symbols = {"symbols": (symbols, (1 if symbols.shape[0] == 1 else batch, groups, m, w_r.shape[1]))}
    check_shapes(
        q,
        k=(k, (batch, groups, m, width)),
        u=(u, (batch, n, n_relations, p)),
        w=(w, (batch, m, n_relations, p)),
        w_r=(w_r, (heads, w_r.shape[1], n_relations)),
        **of_symbols,
    )
    check_key_heads(heads, groups)


def obstacle_to_operations(x: RelationalInputs) -> str | None:
    """Why an operation of this library that builds no maps cannot compute this; None if it can."""
    if x.needs_plain():
        return "has no derivatives by torch.func, and no forward ones: they need impl='dense'"
    if x.need_weights:
        return "builds neither weights nor relations whole: it needs need_weights=False"
    return None


def obstacle_to_blocks(x: RelationalInputs) -> str | None:
    """The same for one that sums the weights of pairs with the same relative symbol, in blocks."""
    against = obstacle_to_operations(x)
    if against is None and isinstance(x.symbols, RelativeSymbols) and has_symbol_per_pair(x.symbols, x.n(), x.m()):
        return (
            f"needs a library of relative symbols with at most 2 (N + M) = {2 * (x.n() + x.m())} rows, "
            f"got {x.symbols.library.shape[0]}"
        )
    return against
