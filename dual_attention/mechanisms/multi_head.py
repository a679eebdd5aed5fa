"""Several heads of any attention side by side (Vaswani et al. 2017, arXiv 1706.03762, section 3.2.2).

Shapes: B batch, L queries, S keys, H heads, d_k and d_h widths of one head's queries and values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from .._layers.calls import TypedModule
from .._layers.heads import merge_heads, split_heads
from .._layers.inputs import check_boolean, check_dropout, check_kind, check_one_device, check_positive, check_sequence
from .._layers.taps import Taps, observer_of
from ..functional import mask_pattern
from ..functional.activations import Activation, activation_function
from ..functional.masks import MaskPattern, check_bias
from ..functional.padding import zero_padding
from ..functional.reference import repeat_heads
from ..functional.symbols import with_vectors
from .fused import AttentionInputs
from .general import GeneralAttention, GeneralAttentionOutput
from .messages import FeatureMessage, Message, Messages, SharedValues, ValueMessage
from .relations import RelationalMessage, RelationalMessages


class MultiHead(TypedModule):
    """Heads of a :class:`GeneralAttention`, each with its own projections of queries and keys and its own messages.

    Math: c^h = attend(x W_q^h, y W_k^h, messages^h),  output = concat_h(c^h * gate(x W_g^h)) W_o

    Args:
        attention: of a head. Its score sees ``(B, H, L, d_k)``; parameters that heads do not share have an axis of
            heads (``heads=`` of the scores). A message other than the default has heads itself and sees the inputs.
        d_model: width of the queries' inputs.
        n_heads: H.
        d_key: width of the keys' inputs; by default ``d_model``.
        d_value: width of the values' inputs, for the default message; by default ``d_key``.
        key_dim: d_k; by default ``d_model / H``.
        head_dim: d_h, width of the messages; by default ``d_model / H``.
        n_kv_heads: heads of keys and values, each serving ``H / n_kv_heads`` (grouped queries); by default H.
        qk_norm: RMS norms of each head's queries and keys, with learned gains shared by heads.
        gate: activation of an output gate, computed from the query, on each feature of each head (sigmoid: Qiu et al.
            2025, arXiv 2505.06708). With ``"identity"`` it computes the same as Hadamard relations, so gated attention
            is a control for relations. None for no gate.
        bias: in the projections of keys and values.
        out_proj: mix heads by ``W_o``; otherwise only concatenate them.
        d_out: width of the output; by default ``H d_h``.
        out_dropout: rate on the output.

    >>> heads = MultiHead(GeneralAttention(Cosine(learned=True, heads=4)), d_model=32, n_heads=4)
    >>> heads(torch.randn(2, 9, 32), is_causal=True).context.shape
    torch.Size([2, 9, 32])
    """

    def __init__(
        self,
        attention: GeneralAttention,
        d_model: int,
        n_heads: int,
        *,
        d_key: int | None = None,
        d_value: int | None = None,
        key_dim: int | None = None,
        head_dim: int | None = None,
        n_kv_heads: int | None = None,
        qk_norm: bool = False,
        gate: str | Activation | None = None,
        bias: bool = False,
        out_proj: bool = True,
        d_out: int | None = None,
        out_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_boolean(qk_norm=qk_norm, bias=bias, out_proj=out_proj)
        check_kind("attention", attention, GeneralAttention)
        check_positive(d_model=d_model, n_heads=n_heads)
        if (key_dim is None or head_dim is None) and d_model % n_heads:
            raise ValueError(f"d_model: {d_model} is not divisible by the number of heads, {n_heads}")
        self.d_model = d_model
        self.n_heads = n_heads
        self.d_key = d_model if d_key is None else d_key
        self.key_dim = d_model // n_heads if key_dim is None else key_dim
        self.head_dim = d_model // n_heads if head_dim is None else head_dim
        check_positive(d_key=self.d_key, d_out=1 if d_out is None else d_out)
        self.n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        check_positive(key_dim=self.key_dim, head_dim=self.head_dim, n_kv_heads=self.n_kv_heads)
        if n_heads % self.n_kv_heads:
            raise ValueError(f"n_kv_heads: expected a positive divisor of n_heads={n_heads}, got {n_kv_heads}")
        _check_attention(attention, n_heads, self.head_dim if out_proj or gate is not None else None)
        takes_query = attention.score.n_queries is None
        if gate is not None and not takes_query:
            raise ValueError(f"gate: is computed from queries, which {type(attention.score).__name__} takes none of")
        if d_out is not None and not out_proj:
            raise ValueError(f"d_out: needs out_proj=True, got {d_out}")
        self.attention = attention
        self.wq = nn.Linear(d_model, n_heads * self.key_dim, bias=False) if takes_query else None
        self.wk = nn.Linear(self.d_key, self.n_kv_heads * self.key_dim, bias=bias)
        self.features = None
        if isinstance(attention.message, ValueMessage):
            d_value = self.d_key if d_value is None else d_value
            self.features = FeatureMessage(d_value, n_heads, self.head_dim, n_kv_heads=self.n_kv_heads, bias=bias)
        self.q_norm = nn.RMSNorm(self.key_dim) if qk_norm and takes_query else nn.Identity()
        self.k_norm = nn.RMSNorm(self.key_dim) if qk_norm else nn.Identity()
        self.gate = None if gate is None else activation_function(gate, "gate")
        width = n_heads * self.head_dim
        self.wg = nn.Linear(d_model, width, bias=False) if gate is not None else None
        self.wo = nn.Linear(width, width if d_out is None else d_out, bias=False) if out_proj else None
        self.out_dropout = nn.Dropout(check_dropout("out_dropout", out_dropout))
        self.taps = Taps(_observed(attention))
        self._taps_symbols = "symbols" in self.taps.names  # unless what calls these heads does, before it caches them

    @property
    def n_relations(self) -> int:
        """R, of heads that carry relations; otherwise 0."""
        return self.message.relation.n_relations if isinstance(self.message, RelationalMessage) else 0

    @property
    def use_relative_positional_symbols(self) -> bool:
        """Whether heads carry symbols that belong to pairs."""
        return isinstance(self.message, RelationalMessage) and self.message.relative

    @property
    def message(self) -> Message:
        """Message of the heads."""
        return self.attention.message if self.features is None else self.features

    def forward(
        self,
        query: Tensor | None = None,
        key: Tensor | None = None,
        value: Any = None,
        *,
        attn_mask: Tensor | None = None,
        padding_mask: Tensor | None = None,
        is_causal: bool = False,
        attn_bias: Tensor | None = None,
        need_weights: bool = False,
    ) -> GeneralAttentionOutput:
        """Attend from each query to the keys.

        Args:
            query: ``(B, L, d)``; None for a score that takes none.
            key: ``(B, S, d_key)``; None means the query: self-attention.
            value: for the message: values ``(B, S, d_value)`` (None means the key), or symbols.
            padding_mask: boolean ``(B, S)``; True = a real key.
            others: as :meth:`.GeneralAttention.forward`, with scores ``(B, H, L, S)``; errors too.

        Returns:
            :class:`GeneralAttentionOutput` with a context ``(B, L, d_out)`` and, if asked for, weights ``(B, H, L, S)``
            (with a score of features ``(B, H, L, S, d_h)``).
        """
        check_one_device(
            self, query=query, key=key, value=value, attn_mask=attn_mask, padding_mask=padding_mask, attn_bias=attn_bias
        )
        key = query if key is None else key
        if key is None:
            raise ValueError("key: expected keys, or a query that is the key as well; got neither")
        check_sequence("key", key, self.d_key, layer=self.wk)
        batch, m = key.shape[:2]
        k = repeat_heads(self.k_norm(split_heads(self.wk(key), self.n_kv_heads)), self.n_heads)
        q, n = None, self.attention.score.n_queries or 0
        if self.wq is not None:
            query = self.attention.score.require_query(query)
            check_sequence("query", query, self.d_model, batch=(batch,), layer=self.wq)
            q, n = self.q_norm(split_heads(self.wq(query), self.n_heads)), query.shape[1]
        sizes: dict[str, Any] = {"batch": batch, "heads": self.n_heads, "n": n, "m": m}
        mask = mask_pattern(attn_mask, padding_mask, is_causal, **sizes)
        bias = check_bias(attn_bias, **sizes)
        of_heads = None if padding_mask is None else padding_mask[:, None].expand(-1, self.n_heads, -1)
        # A cache of parts joins earlier senders to those that are the query, and takes causal calls only.
        observe = observer_of(self, mask.offset, crosses=q is None or (key is not query and not mask.ordered))
        if observe is not None and self._taps_symbols and value is not None:
            value = with_vectors(value, lambda x: observe("symbols", x))
        (k,), messages = zero_padding(mask, k), _without_padding(self.message(query, key, value), mask)
        inputs = AttentionInputs(q, k, messages, mask, bias)
        seen = None if self.attention.score.multidim else observe
        output = self.attention.attend(inputs, padding_mask=of_heads, need_weights=need_weights, observe=seen)
        context = merge_heads(output.context)
        if query is not None and self.wg is not None and self.gate is not None:
            context = context * self.gate(self.wg(query))
        if observe is not None:
            context = merge_heads(observe("head_output", split_heads(context, self.n_heads)))
        if self.wo is not None:
            context = self.wo(context)
        context = self.out_dropout(context)
        return GeneralAttentionOutput(context, output.weights, output.log_prob, output.entropy, output.selection)


def _observed(attention: GeneralAttention) -> tuple[str, ...]:
    """Names of the taps of heads; weights of features have none."""
    names = () if attention.score.multidim else ("visible", "weights")
    message = attention.message
    if names and isinstance(message, RelationalMessage):
        names += ("relations", "relational_message")
        names += () if message.wv is None else ("symbols", "symbol_values", "symbol_message")
    return (*names, "head_output")


def _without_padding(messages: Messages, pattern: MaskPattern) -> Messages:
    """Messages with zeros for padding, as keys have: weights of zero do not silence NaN."""
    if isinstance(messages, SharedValues):
        return replace(messages, values=zero_padding(pattern, messages.values)[0])
    if isinstance(messages, RelationalMessages):
        symbols = messages.symbols
        symbols = zero_padding(pattern, symbols)[0] if isinstance(symbols, Tensor) else symbols
        return replace(messages, w=zero_padding(pattern, messages.w, axis=1)[0], symbols=symbols)
    return messages


def _check_attention(attention: GeneralAttention, n_heads: int, head_dim: int | None) -> None:
    """Raise ``ValueError`` unless an attention is one of so many heads, and of that width if one is needed."""
    if attention.score.heads not in (None, n_heads):
        raise ValueError(f"attention: its score has {attention.score.heads} heads, expected n_heads={n_heads} or None")
    if attention.query is not None:
        raise ValueError("attention: heads project the caller's queries; expected one without a query of its own")
    if attention.align.heads not in (None, n_heads):
        raise ValueError(f"attention: its alignment has {attention.align.heads} heads, expected n_heads={n_heads}")
    message: Any = attention.message
    if not isinstance(message, ValueMessage) and message.heads != n_heads:
        raise ValueError(f"attention: its message has {message.heads} heads, expected n_heads={n_heads}")
    width = getattr(message, "head_dim", head_dim)
    if head_dim is not None and width != head_dim:
        raise ValueError(f"attention: its message has heads of width {width}, expected head_dim={head_dim}")
