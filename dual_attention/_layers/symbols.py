"""Symbols in the layers of relational attention: projected, for each sender or each pair, with earlier ones.

Shapes: B batch, G key/value heads, N receivers, M senders, d width of the model, K rows of a library of symbols.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..functional import RelativeSymbols
from ..functional.checks import check_like, check_same_device
from ..functional.symbols import check_index, with_vectors
from .cache import Cache
from .call import NO_PAST, Given, HeadsCall, Past, continue_from
from .heads import Heads, split_heads
from .inputs import check_boolean, check_no_values, check_sequence

Symbols = Tensor | RelativeSymbols


def kept_symbols(relative: bool, n_kv_heads: int, head_dim: int) -> dict[str, tuple[int, ...]]:
    """Name and shape of the projected symbol that a cache keeps of each sender; none if symbols are relative."""
    return {} if relative else {"symbols": (n_kv_heads, head_dim)}


def project_symbols(
    wv: nn.Linear, symbols: Symbols, n_kv_heads: int, sizes: tuple[int, int, int], relative: bool, past: Past = NO_PAST
) -> Symbols:
    """Apply ``W_s`` to symbols and split the heads; only ``relative`` says whether symbols are shared or relative.

    Shared ones become ``(B or 1, G, M, d_h)``. Of relative ones the library is projected, to ``(K, G, d_h)``, once for
    all pairs. With earlier senders in a cache, shared symbols are those of the M new senders, and relative ones name
    the earlier senders as well. ``sizes`` are B, N and M.
    """
    batch, n, m = sizes
    if not isinstance(symbols, (Tensor, RelativeSymbols)):
        raise TypeError(f"symbols: expected a tensor or RelativeSymbols, got {type(symbols).__name__}")
    if relative:
        if isinstance(symbols, Tensor):
            symbols = RelativeSymbols.from_dense(symbols)
        expected = (n, past.senders + m, wv.in_features)
        if symbols.sizes != expected:
            raise ValueError(f"symbols: expected relative ones (N, M, d) = {expected}, got {symbols.sizes}")
        check_index(symbols.library, symbols)
        symbols = symbols.last_senders(past.held + m)
        library = symbols.library
        check_like("symbols", library, wv)
        return symbols.with_library(past.once(library, lambda: wv(library).unflatten(-1, (n_kv_heads, -1))))
    if isinstance(symbols, RelativeSymbols):
        raise TypeError("symbols: got position-relative symbols; this layer needs use_relative_positional_symbols=True")
    check_sequence("symbols", symbols, wv.in_features, batch=(1, batch), layer=wv)
    if symbols.shape[1] != m:
        raise ValueError(f"symbols: expected one for each of {m} senders, got {symbols.shape[1]}")
    if symbols.stride(0) == 0 and not (symbols.requires_grad and torch.is_grad_enabled()):  # perhaps by each example
        symbols = symbols[:1]  # the same for all
    return split_heads(wv(symbols), n_kv_heads)


class SymbolHeads(Heads):
    """Heads whose senders have symbols: what the three layers of relational attention share."""

    def __init__(self, relative: bool, *others: Any) -> None:
        check_boolean(use_relative_positional_symbols=relative)
        super().__init__(*others)
        self.use_relative_positional_symbols = relative

    def _begin(self, x: Tensor, y: Tensor | None, given: Given, cache: Cache | None) -> tuple[Tensor, HeadsCall]:
        """The senders of a call, by default its receivers, and what it carries from step to step; all checked."""
        wv = self._modules["wv"]  # which is faster than an attribute
        check_sequence("x", x, self.d_model, layer=wv)
        *_, bias, cos, sin = given
        if cos is not None and sin is None:
            check_no_values("freqs_cos", "a table of RoPE", cos, x)
        if y is not None:
            check_sequence("y", y, self.d_model, batch=(x.shape[0],), layer=wv)
        y = x if y is None else y
        if not (bias is None and cos is None and sin is None):
            check_same_device(x=x, attn_bias=bias, freqs_cos=cos, freqs_sin=sin)
        past = NO_PAST
        if cache is not None:
            past = continue_from(cache, self._kept(), window=self.window, given=given)
        return y, self._call(x, y.shape[1], given, past, crosses=y is not x)

    def _project_symbols(self, symbols: Symbols, call: HeadsCall) -> Symbols:
        """Symbols of the new senders or of pairs, observed and projected, see :func:`project_symbols`."""
        if call.observe is not None:
            symbols = with_vectors(symbols, partial(call.observe, "symbols"))
        relative, sizes = self.use_relative_positional_symbols, (call.batch, call.n, call.new)
        wv: Any = self._modules["wv"]  # which is faster than an attribute
        return project_symbols(wv, symbols, self.n_kv_heads, sizes, relative, call.past)
