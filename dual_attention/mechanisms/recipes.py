"""Named mechanisms as compositions: the field's table of contents, one line each.

All return :class:`GeneralAttention`, :class:`MultiHead` or :class:`MultiHop`, and are called in the same way. To change
a part, write the composition. Families that one composition cannot express are classes
in ``mechanisms.architectures``.
"""

from __future__ import annotations

import torch
from torch import nn

from .._layers.heads import head_dim
from .._layers.inputs import check_boolean, check_positive
from ..functional.activations import Activation
from .alignments import Align, Elementwise, Hard, MultiToken, Sigmoid, Softmax, StickBreaking
from .architectures.hops import MultiHop, residual
from .general import GeneralAttention
from .messages import FeatureMessage, ValueResidual
from .multi_head import MultiHead
from .projections import TensorProductProjection
from .queries import ConstantQuery
from .relations import Relation, RelationalMessage
from .scores import Additive, BoundedAdditive, Cosine, Dot, General, KeyOnly, Location, Product, Score, SlotPair
from .selections import MonotonicWindow, PredictiveWindow, ReinforcedSubset, SubsetSampler

__all__ = [
    "additive_attention",
    "attentive_pooling",
    "content_addressing",
    "dense_synthesizer",
    "gated_self_attention",
    "hadamard_attention",
    "hard_attention",
    "luong_dot",
    "luong_general",
    "luong_local_m",
    "luong_local_p",
    "luong_location",
    "memory_network",
    "multi_token_attention",
    "product_hops",
    "random_synthesizer",
    "reinforced_self_attention",
    "relational_cross_heads",
    "relational_heads",
    "scaled_dot_product_attention",
    "self_attention",
    "sigmoid_self_attention",
    "slot_pair_attention",
    "source2token",
    "stick_breaking_attention",
    "structured_self_attention",
    "tensor_product_attention",
    "token2token",
    "value_residual_attention",
]


# One query, one alignment


def additive_attention(d_q: int, d_k: int, d_w: int | None = None) -> GeneralAttention:
    """Bahdanau et al. 2014 (arXiv 1409.0473): softmax of an additive score.

    >>> additive_attention(d_q=6, d_k=8)(torch.randn(2, 3, 6), torch.randn(2, 5, 8)).context.shape
    torch.Size([2, 3, 8])
    """
    return GeneralAttention(Additive(d_q, d_k, d_w))


def scaled_dot_product_attention() -> GeneralAttention:
    """Vaswani et al. 2017 (arXiv 1706.03762): softmax of <q, k> / sqrt(d).

    >>> scaled_dot_product_attention()(torch.randn(2, 3, 8), torch.randn(2, 5, 8)).context.shape
    torch.Size([2, 3, 8])
    """
    return GeneralAttention(Dot())


def luong_dot() -> GeneralAttention:
    """Luong et al. 2015 (arXiv 1508.04025), dot: softmax of <q, k>.

    >>> luong_dot()(torch.randn(2, 3, 8), torch.randn(2, 5, 8)).context.shape
    torch.Size([2, 3, 8])
    """
    return GeneralAttention(Dot(scale=1.0))


def luong_general(d_q: int, d_k: int) -> GeneralAttention:
    """Luong et al. 2015, general: softmax of a bilinear form.

    >>> luong_general(d_q=6, d_k=8)(torch.randn(2, 3, 6), torch.randn(2, 5, 8)).context.shape
    torch.Size([2, 3, 8])
    """
    return GeneralAttention(General(d_q, d_k))


def luong_location(d_q: int, max_length: int) -> GeneralAttention:
    """Luong et al. 2015, eq. 8: softmax of scores of positions.

    >>> luong_location(d_q=6, max_length=10)(torch.randn(2, 3, 6), torch.randn(2, 5, 8)).context.shape
    torch.Size([2, 3, 8])
    """
    return GeneralAttention(Location(d_q, max_length))


def luong_local_m(d_q: int, d_k: int, half_width: int) -> GeneralAttention:
    """Luong et al. 2015, local-m: general attention in a window that moves on with the query.

    >>> layer = luong_local_m(d_q=6, d_k=8, half_width=1)
    >>> (layer(torch.randn(1, 2, 6), torch.randn(1, 5, 8), need_weights=True).weights > 0).sum(-1)
    tensor([[2, 3]])
    """
    return GeneralAttention(General(d_q, d_k), select=MonotonicWindow(half_width))


def luong_local_p(d_q: int, d_k: int, half_width: int) -> GeneralAttention:
    """Luong et al. 2015, local-p: general attention in a window at a predicted position, under a Gaussian.

    >>> layer = luong_local_p(d_q=6, d_k=8, half_width=2)
    >>> layer(torch.randn(2, 3, 6), torch.randn(2, 9, 8)).context.shape
    torch.Size([2, 3, 8])
    """
    return GeneralAttention(General(d_q, d_k), select=PredictiveWindow(d_q, half_width))


def hard_attention(d_q: int, d_k: int, d_w: int | None = None) -> GeneralAttention:
    """Xu et al. 2015 (arXiv 1502.03044), hard: one key drawn by an additive score, learned by REINFORCE.

    >>> hard_attention(d_q=6, d_k=8)(torch.randn(2, 3, 6), torch.randn(2, 5, 8), need_weights=True).log_prob.shape
    torch.Size([2, 3])
    """
    return GeneralAttention(Additive(d_q, d_k, d_w), Hard("reinforce"))


def content_addressing(beta: float = 1.0) -> GeneralAttention:
    """Graves et al. 2014 (arXiv 1410.5401), eqs. 5 and 6: softmax of the cosine times a learned strength.

    >>> content_addressing(beta=5.0)(torch.randn(2, 1, 8), torch.randn(2, 5, 8)).context.shape
    torch.Size([2, 1, 8])
    """
    return GeneralAttention(Cosine(beta, learned=True))


# No query from the caller


def attentive_pooling(d: int, d_w: int | None = None) -> GeneralAttention:
    """Yang et al. 2016 (HAN), one level: softmax of a score of the keys only. Call it with ``None, key``.

    >>> attentive_pooling(8)(None, torch.randn(2, 5, 8)).context.shape
    torch.Size([2, 1, 8])
    """
    return GeneralAttention(KeyOnly(d, d_w))


def structured_self_attention(d: int, d_a: int, r: int) -> GeneralAttention:
    """Lin et al. 2017 (arXiv 1703.03130): r scores of the keys only, for r contexts.

    Keep them apart with :func:`dual_attention.functional.structured_attention_penalty`. Call it with ``None, key``.

    >>> structured_self_attention(8, d_a=16, r=3)(None, torch.randn(2, 5, 8)).context.shape
    torch.Size([2, 3, 8])
    """
    return GeneralAttention(KeyOnly(d, d_a, n_queries=r, bias=False))


def source2token(d: int, activation: Activation | None = None) -> GeneralAttention:
    """Shen et al. 2017 (arXiv 1709.04696): a score of the keys only for each feature. Call it with ``None, key``.

    >>> source2token(8)(None, torch.randn(2, 5, 8)).context.shape
    torch.Size([2, 1, 8])
    """
    return GeneralAttention(KeyOnly(d, d_out=d, activation=torch.tanh if activation is None else activation))


def token2token(d: int, bound: float = 5.0) -> GeneralAttention:
    """Shen et al. 2017: self-attention with a bounded additive score for each feature.

    Pass ``attn_mask=directional_mask(...)`` for the direction.

    >>> token2token(8)(x := torch.randn(2, 5, 8), x).context.shape
    torch.Size([2, 5, 8])
    """
    return GeneralAttention(BoundedAdditive(d, d, bound=bound))


def reinforced_self_attention(d: int, bound: float = 5.0) -> GeneralAttention:
    """Shen et al. 2018 (arXiv 1801.10296), ReSA: token2token attention among drawn queries and drawn keys.

    Pass ``attn_mask=directional_mask(...)``; a query that was not drawn has a context of zero.

    >>> reinforced_self_attention(8)(x := torch.randn(2, 5, 8), x).context.shape
    torch.Size([2, 5, 8])
    """
    select = ReinforcedSubset(keys=SubsetSampler(d), queries=SubsetSampler(d))
    return GeneralAttention(BoundedAdditive(d, d, bound=bound), select=select)


def random_synthesizer(length: int) -> GeneralAttention:
    """Tay et al. 2020 (arXiv 2005.00743), random: scores of positions that are parameters, whatever the objects.

    Call it with ``None, x`` for sequences of that length.

    >>> random_synthesizer(length=5)(None, torch.randn(2, 5, 8)).context.shape
    torch.Size([2, 5, 8])
    """
    return GeneralAttention(Location(length, length), query=ConstantQuery(torch.eye(length)))


def dense_synthesizer(d: int, max_length: int) -> GeneralAttention:
    """Tay et al. 2020, dense: positions scored from one object, W_2 relu(W_1 x). Call it with ``None, x``.

    >>> dense_synthesizer(8, max_length=10)(None, torch.randn(2, 5, 8)).context.shape
    torch.Size([2, 5, 8])
    """
    return GeneralAttention(Location(d, max_length), query=nn.Sequential(nn.Linear(d, d), nn.ReLU()))


# Several hops


def memory_network(hops: int, align: Align | None = None) -> MultiHop:
    """Sukhbaatar et al. 2015 (arXiv 1503.08895): q + o, by dot products with two embeddings of one memory.

    The paper's linear start trains with ``align=Elementwise("identity")`` first, then with softmax:
    ``memory.attentions[0].align = Softmax()``.

    >>> keys, values = torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    >>> memory_network(hops=3)(torch.randn(2, 1, 8), keys, values).query.shape
    torch.Size([2, 1, 8])
    """
    return MultiHop(GeneralAttention(Dot(scale=1.0), align), hops, update=residual)


def product_hops(d_q: int, d_k: int, d_w: int, hops: int) -> MultiHop:
    """Tran & Niederée, SIGIR 2018: hops by products of activated projections, from a query that is a mean.

    >>> layer = product_hops(d_q=8, d_k=8, d_w=16, hops=2)
    >>> layer(torch.randn(2, 1, 8), torch.randn(2, 5, 8)).query.shape
    torch.Size([2, 1, 8])
    """
    return MultiHop(GeneralAttention(Product(d_q, d_k, d_w)), hops, update=residual)


# Several heads: from self-attention to relational attention, one part at a time


def self_attention(d_model: int, n_heads: int) -> MultiHead:
    """Vaswani et al. 2017: softmax of the scaled dot product; heads carry the senders' features.

    With the weights of a :class:`dual_attention.attention.Attention` it computes the same.

    >>> self_attention(d_model=32, n_heads=4)(torch.randn(2, 9, 32), is_causal=True).context.shape
    torch.Size([2, 9, 32])
    """
    return MultiHead(GeneralAttention(Dot()), d_model, n_heads)


def sigmoid_self_attention(d_model: int, n_heads: int) -> MultiHead:
    """Ramapuram et al. 2024 (arXiv 2409.04431): self-attention in which keys do not compete.

    >>> sigmoid_self_attention(d_model=32, n_heads=4)(torch.randn(2, 9, 32)).context.shape
    torch.Size([2, 9, 32])
    """
    return MultiHead(GeneralAttention(Dot(), Sigmoid()), d_model, n_heads)


def stick_breaking_attention(d_model: int, n_heads: int) -> MultiHead:
    """Tan et al. 2024 (arXiv 2410.17980): near keys take their share first, so that it needs no positions.

    Call it with ``is_causal=True``, or as in the paper, where no object sees itself, with
    ``attn_mask=directional_mask(length, "forward")``.

    >>> stick_breaking_attention(d_model=32, n_heads=4)(torch.randn(2, 9, 32), is_causal=True).context.shape
    torch.Size([2, 9, 32])
    """
    return MultiHead(GeneralAttention(Dot(), StickBreaking()), d_model, n_heads)


def multi_token_attention(
    d_model: int, n_heads: int, *, query_kernel: int = 6, key_kernel: int = 11, group: int = 1
) -> MultiHead:
    """Golovneva et al. 2025 (arXiv 2504.00927): scores of neighbours and weights of heads are mixed.

    The kernels are the paper's; it mixes heads in pairs, ``group=2``. See :class:`MultiToken`.

    >>> multi_token_attention(d_model=32, n_heads=4, query_kernel=2, key_kernel=3)(torch.randn(2, 9, 32)).context.shape
    torch.Size([2, 9, 32])
    """
    align = MultiToken(n_heads, query_kernel=query_kernel, key_kernel=key_kernel, group=group)
    return MultiHead(GeneralAttention(Dot(), align), d_model, n_heads)


def slot_pair_attention(
    d_model: int, n_slots: int, *, shift: int = 1, gate: str | Activation | None = None
) -> MultiHead:
    """Toshpulatov et al. 2027 (ICDE): each head compares one slot of the receiver with another slot of the sender.

    Receivers and senders are divided into slots by the same projection, so a head alone decides which two meet. The
    paper gates each head by one number from a small network of the receiver's slot; ``gate="sigmoid"`` gates each
    feature, see :class:`MultiHead`.

    Args:
        d_model: width of objects.
        n_slots: K, the number of heads.
        shift: see :class:`SlotPair`.
        gate: activation of an output gate.

    >>> slot_pair_attention(d_model=32, n_slots=4)(torch.randn(2, 9, 32)).context.shape
    torch.Size([2, 9, 32])
    """
    attention = MultiHead(GeneralAttention(SlotPair(n_slots, shift)), d_model, n_slots, gate=gate)
    attention.wq = attention.wk
    return attention


def tensor_product_attention(d_model: int, n_heads: int, *, query_rank: int = 6, rank: int = 2) -> MultiHead:
    """Zhang et al. 2025 (arXiv 2501.06425): queries, keys and values are sums of products of heads and features.

    Args:
        d_model: width of objects.
        n_heads: H.
        query_rank, rank: R of the queries, and of keys and values, as in the paper; see
            :class:`TensorProductProjection`.

    >>> tensor_product_attention(d_model=32, n_heads=4)(torch.randn(2, 9, 32)).context.shape
    torch.Size([2, 9, 32])
    """
    sizes = (d_model, n_heads, head_dim(d_model, n_heads, None, None))
    message = FeatureMessage(*sizes)
    message.wv = TensorProductProjection(*sizes, rank)
    attention = MultiHead(GeneralAttention(Dot(), message=message), d_model, n_heads)
    attention.wq = TensorProductProjection(*sizes, query_rank)
    attention.wk = TensorProductProjection(*sizes, rank)
    return attention


def value_residual_attention(d_model: int, n_heads: int) -> MultiHead:
    """Zhou et al. 2024 (arXiv 2410.17897): values are mixed with those of the first layer, see :class:`ValueResidual`.

    Call it with ``x, x, first_layer.message.wv(first_x)``.

    >>> value_residual_attention(d_model=32, n_heads=4)(torch.randn(2, 9, 32)).context.shape
    torch.Size([2, 9, 32])
    """
    message = ValueResidual(d_model, n_heads, head_dim(d_model, n_heads, None, None))
    return MultiHead(GeneralAttention(Dot(), message=message), d_model, n_heads)


def gated_self_attention(d_model: int, n_heads: int, gate: str | Activation = "sigmoid") -> MultiHead:
    """Qiu et al. 2025 (arXiv 2505.06708): the output of each head times a gate computed from the receiver.

    A control for relational attention, since it has products of receivers and senders too.

    >>> gated_self_attention(d_model=32, n_heads=4)(torch.randn(2, 9, 32)).context.shape
    torch.Size([2, 9, 32])
    """
    return MultiHead(GeneralAttention(Dot()), d_model, n_heads, gate=gate)


def relational_cross_heads(d_model: int, n_heads: int, activation: str | Activation = "softmax") -> MultiHead:
    """Altabaa et al. 2024 (arXiv 2304.00195): self-attention that carries symbols. Call it with ``x, x, symbols``.

    With the weights of a :class:`dual_attention.relational_attention.RelationalCrossAttention` it computes the same.

    >>> x, symbols = torch.randn(2, 9, 32), torch.randn(2, 9, 32)
    >>> relational_cross_heads(d_model=32, n_heads=4)(x, x, symbols).context.shape
    torch.Size([2, 9, 32])
    """
    align = Softmax() if activation == "softmax" else Elementwise(activation)
    return MultiHead(GeneralAttention(Dot(), align), d_model, n_heads)


def relational_heads(
    d_model: int,
    n_heads: int,
    n_relations: int | None = None,
    *,
    score: Score | None = None,
    align: Align | None = None,
    relation: Score | None = None,
    rel_proj_dim: int | None = None,
    rel_activation: str | Activation = "identity",
    symmetric_rels: bool = False,
    symbols: bool = True,
    relative_symbols: bool = False,
    qk_norm: bool = False,
    gate: str | Activation | None = None,
    dropout: float = 0.0,
) -> MultiHead:
    """Altabaa & Lafferty 2024 (arXiv 2405.16727): heads carry relations, tagged with symbols.

    Call it with ``x, x, symbols``, or with ``x`` without symbols. With the defaults and the weights of a
    :class:`dual_attention.relational_attention.RelationalAttention` it computes the same, on the same kernels. Any
    score and any alignment may select; any score may relate.

    Args:
        d_model: width of objects and symbols.
        n_heads: H.
        n_relations: R; by default H.
        score, align: selection of senders; by default :class:`Dot` and :class:`Softmax`. A score with parameters has
            ``heads=n_heads``.
        relation: score of the relations; by default :class:`Dot`. One with parameters has ``heads=n_relations``.
        rel_proj_dim, rel_activation, symmetric_rels: of the :class:`Relation`.
        symbols: tag relations with symbols.
        relative_symbols: symbols belong to pairs, see :class:`RelationalMessage`.
        qk_norm: RMS norms of the queries and keys that select, and of those that relate if they are wider than 1.
        gate: activation of an output gate.
        dropout: rate on the attention weights.

    >>> x, symbols = torch.randn(2, 9, 32), torch.randn(2, 9, 32)
    >>> relational_heads(d_model=32, n_heads=4, n_relations=8)(x, x, symbols).context.shape
    torch.Size([2, 9, 32])
    """
    check_boolean(symmetric_rels=symmetric_rels, symbols=symbols, relative_symbols=relative_symbols, qk_norm=qk_norm)
    check_positive(d_model=d_model, n_heads=n_heads)
    n_relations = n_heads if n_relations is None else n_relations
    relations = Relation(
        d_model,
        n_relations,
        score=relation,
        proj_dim=rel_proj_dim,
        activation=rel_activation,
        symmetric=symmetric_rels,
        qk_norm=qk_norm and (d_model // n_relations if rel_proj_dim is None else rel_proj_dim) > 1,
    )
    message = RelationalMessage(
        relations, d_model // n_heads, heads=n_heads, d_symbol=d_model if symbols else None, relative=relative_symbols
    )
    attention = GeneralAttention(Dot() if score is None else score, align, message=message, dropout=dropout)
    return MultiHead(attention, d_model, n_heads, qk_norm=qk_norm, gate=gate)


def hadamard_attention(d_model: int, n_heads: int, width: int | None = None, *, symbols: bool = False) -> MultiHead:
    """Relational attention whose relation is the vector u * w, one number for each of ``width`` features.

    Math: a^h_i = sum_j alpha^h_ij W_r^h (x_i W_q^rel * x_j W_k^rel)

    A vector says where two objects agree, so relations can be told apart without symbols. Without them it is
    self-attention under a linear gate, for which :func:`gated_self_attention` is the control.

    Args:
        d_model: width of objects.
        n_heads: H.
        width: of the relation; by default ``d_model``.
        symbols: tag relations with symbols.

    >>> hadamard_attention(d_model=32, n_heads=4)(torch.randn(2, 9, 32)).context.shape
    torch.Size([2, 9, 32])
    """
    check_boolean(symbols=symbols)
    width = d_model if width is None else width
    return relational_heads(d_model, n_heads, width, rel_proj_dim=1, symbols=symbols)
