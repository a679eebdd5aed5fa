"""The common part of the three layers of relational attention: sizes, senders and symbols, caches, one forward pass.

Shapes: B batch, H heads, N receivers, M senders, d width of the model, R relations.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from torch import Tensor, nn

from ..functional import MaskPattern
from ..functional.checks import check_same_device
from ..functional.masks import Segments
from .cache import Cache
from .continuation import Masks, continue_from, transactional, visibility
from .heads import Heads, merge_heads, rotate, split_heads
from .inputs import check_sequence
from .symbols import Symbols, observe_symbols, project_symbols
from .taps import Observer, observer_of

Output = TypeVar("Output")


class RelationalHeads(Heads, Generic[Output]):
    """Heads that receive symbols. Arguments as :class:`~dual_attention.relational_attention.RelationalAttention`."""

    _output: Callable[..., Any]
    """Named tuple of the output ``(B, N, H * d_h)`` and the maps."""

    wq_attn: nn.Linear
    wk_attn: nn.Linear
    use_relative_positional_symbols: bool

    def selecting(self) -> tuple[nn.Linear, nn.Linear]:
        """The projections of the attention's queries and keys."""
        return self.wq_attn, self.wk_attn

    @abstractmethod
    def _kept_keys(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of what is kept of each sender beside its symbol."""

    def _relation_keys(self, y: Tensor) -> dict[str, Tensor]:
        """Keys of senders ``(B, M, d)`` beside those of the attention."""
        return {}

    @abstractmethod
    def _attend(
        self,
        x: Tensor,
        own: dict[str, Tensor],
        q: Tensor,
        keys: tuple[Tensor, ...],
        symbols: Symbols,
        offset: int,
        observe: Observer | None,
        **how: Any,
    ) -> tuple[Any, ...]:
        """Messages that heads receive ``(B, H, N, d_h)``, and their maps.

        Args:
            own: what :meth:`_relation_keys` makes of the receivers, if they are the senders, too; else nothing.
            keys: those of :meth:`_kept_keys`, of the earlier senders that are held and the new ones.
            symbols: projected, of the same senders.
            offset: place of the first receiver among them.
            observe: observer of all steps; None if nobody watches.
            how: mask, bias, dropout and need_weights of the operation.
        """

    def _kept(self) -> dict[str, tuple[int, ...]]:
        kept = self._kept_keys()
        if not self.use_relative_positional_symbols:
            kept["symbols"] = (self.n_kv_heads, self.head_dim)
        return kept

    @transactional
    def forward(
        self,
        x: Tensor,
        symbols: Symbols,
        freqs_cos: Tensor | None = None,
        freqs_sin: Tensor | None = None,
        attn_mask: Tensor | MaskPattern | None = None,
        is_causal: bool = False,
        *,
        y: Tensor | None = None,
        padding_mask: Tensor | None = None,
        segments: Segments | None = None,
        attn_bias: Tensor | None = None,
        need_weights: bool = False,
        cache: Cache | None = None,
        projections: tuple[nn.Module, nn.Module] | None = None,
    ) -> Output:
        """Attend from receivers ``x`` to senders ``y``.

        With a cache from :meth:`new_cache`, ``x`` (and ``y``, if given) are new tokens, N = M, after t earlier ones, as
        for :meth:`Attention.forward <dual_attention.attention.Attention.forward>`; symbols are those of the new tokens,
        or relative ones ``(N, t + M, d)``.

        Args:
            x: receivers, ``(B, N, d)``.
            symbols: names of the senders, ``(B or 1, M, d)``; with ``use_relative_positional_symbols``, of the pairs:
                :class:`RelativeSymbols` or a tensor ``(N, M, d)``.
            y: senders, ``(B, M, d)``; by default ``x``.
            freqs_cos, freqs_sin, attn_mask, is_causal, padding_mask, segments, attn_bias, cache: as there; RoPE is
                applied to the attention, not to relations.
            projections: of the attention's queries and keys, in place of its own. Shared ones may have an adapter, such
                as LoRA, only where the other heads hold them.
            need_weights: also return the maps, which are then built.

        Returns:
            ``(output, weights, relations)``: ``(B, N, H * head width)``, ``(B, H, N, M)`` and ``(B, N, M, R)``; the
            last two None unless ``need_weights``. Relations are not masked, but for the normaliser of softmax. With a
            window and a cache, M counts the senders that are still held. Of disentangled RCA both maps are
            ``(B, H, N, M)``; RCA has only weights.

        Raises:
            ValueError, TypeError: if shapes disagree, a mask is not boolean, symbols are of the wrong kind, or the
                cache is of another kind of layer or batch. The cache is then as it was.
        """
        check_sequence("x", x, self.d_model, layer=self.wv)
        if y is not None:
            check_sequence("y", y, self.d_model, batch=(x.shape[0],), layer=self.wv)
        y = x if y is None else y
        check_same_device(x=x, attn_bias=attn_bias, freqs_cos=freqs_cos, freqs_sin=freqs_sin)
        masks = Masks(attn_mask, padding_mask, is_causal, segments, attn_bias)
        past = continue_from(cache, self._kept(), window=self.window, masks=masks)
        (batch, n), m = x.shape[:2], y.shape[1]
        pattern, bias = visibility(masks, past, batch=batch, heads=self.n_heads, n=n, new=m, window=self.window)

        wq, wk = self.selecting() if projections is None else projections
        q = rotate(split_heads(wq(x), self.n_heads), freqs_cos, freqs_sin, past.position)
        new = {"k": rotate(split_heads(wk(y), self.n_kv_heads), freqs_cos, freqs_sin, past.senders)}
        new |= (compared := self._relation_keys(y))
        relative = self.use_relative_positional_symbols
        observe = observer_of(self, past.position, past.senders - past.held)
        if observe is not None:
            symbols = observe_symbols(observe, symbols)
        symbols = project_symbols(
            self.wv, symbols, self.n_kv_heads, batch=batch, n=n, m=m, relative=relative, past=past
        )
        if isinstance(symbols, Tensor):
            *keys, symbols = past.append(batch, n, **new, symbols=symbols)
        else:  # not kept: their library serves
            keys = past.append(batch, n, **new)

        rate = self.dropout if self.training else 0.0
        how = {"mask": pattern, "bias": bias, "dropout": rate, "need_weights": need_weights}
        own = compared if y is x else {}
        attended, *maps = self._attend(x, own, q, tuple(keys), symbols, past.offset, observe, **how)
        if observe is not None:
            attended = observe("head_output", attended)
        return self._output(self.resid_dropout(self.wo(merge_heads(attended))), *maps)
