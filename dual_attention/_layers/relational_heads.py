"""The common part of the three layers of relational attention: sizes, checks of senders and symbols, caches.

Shapes: B batch, H heads, N receivers, M senders, d width of the model.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

from torch import Tensor, nn

from ..functional import MaskPattern
from ..functional.checks import check_same_device
from .cache import Cache, TokenCache
from .continuation import Masks, Past, continue_from, visibility
from .heads import head_dim
from .inputs import check_dropout, check_positive, check_sequence
from .symbols import Symbols, project_symbols, with_earlier


class Received(NamedTuple):
    """The checked inputs of a layer.

    Attributes:
        y: senders, ``(B, M, d)``.
        past: earlier senders.
        pattern: the pairs that may be attended, of receivers with the earlier senders that are held and the new ones.
        bias: additive bias of the same pairs, or None.
    """

    y: Tensor
    past: Past
    pattern: MaskPattern
    bias: Tensor | None


class RelationalHeads(nn.Module):
    """Heads that receive symbols.

    Subclasses register their projections, that of symbols, ``wv``, among them. Arguments as
    :class:`~dual_attention.relational_attention.RelationalAttention`.
    """

    wv: nn.Linear

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dropout: float,
        n_kv_heads: int | None,
        total_n_heads: int | None,
        use_relative_positional_symbols: bool,
        window: int | None,
    ) -> None:
        super().__init__()
        self.head_dim = head_dim(d_model, n_heads, n_kv_heads, total_n_heads)
        self.d_model = d_model
        self.n_heads = n_heads
        self.n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        self.use_relative_positional_symbols = use_relative_positional_symbols
        self.dropout = check_dropout("dropout", dropout)
        check_positive(window=1 if window is None else window)
        self.window = window

    @abstractmethod
    def _kept_keys(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of what is kept of each sender beside its symbol."""

    def _kept(self) -> dict[str, tuple[int, ...]]:
        kept = self._kept_keys()
        if not self.use_relative_positional_symbols:
            kept["symbols"] = (self.n_kv_heads, self.head_dim)
        return kept

    def new_cache(self, max_length: int | None = None) -> TokenCache:
        """An empty cache of keys (of attention after RoPE) and of projected symbols unless they are relative.

        Args:
            max_length: most tokens to come; memory for them is reserved at once.
        """
        return TokenCache(self._kept(), window=self.window, max_length=max_length)

    def _receive(
        self,
        x: Tensor,
        y: Tensor | None,
        masks: Masks,
        cache: Cache | None,
        tables: tuple[Tensor | None, Tensor | None],
    ) -> Received:
        """Check what ``forward`` is given beside symbols; without ``y`` the senders are the receivers."""
        check_sequence("x", x, self.d_model, layer=self.wv)
        y = x if y is None else y
        check_sequence("y", y, self.d_model, batch=(x.shape[0],), layer=self.wv)
        check_same_device(x=x, attn_bias=masks.attn_bias, freqs_cos=tables[0], freqs_sin=tables[1])
        past = continue_from(cache, self._kept(), window=self.window, masks=masks)
        sizes = {"batch": x.shape[0], "heads": self.n_heads, "n": x.shape[1], "new": y.shape[1]}
        return Received(y, past, *visibility(masks, past, **sizes, window=self.window))

    def _with_symbols(self, received: Received, symbols: Symbols, **keys: Tensor) -> tuple[tuple[Tensor, ...], Symbols]:
        """Keys and projected symbols, those of earlier senders that are held included; the cache then has the new."""
        y, past, pattern, _ = received
        batch, m = y.shape[:2]
        relative = self.use_relative_positional_symbols
        sv = project_symbols(
            self.wv, symbols, self.n_kv_heads, batch=batch, n=pattern.n, m=m, relative=relative, past=past
        )
        return with_earlier(past, batch, pattern.n, sv, **keys)
