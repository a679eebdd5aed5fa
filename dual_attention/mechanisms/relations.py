"""Relations as scores, and the message that carries them: relational attention as a form of general attention.

Shapes: B batch, N receivers (queries), M senders (keys), H heads, R relations (the paper's d_r), p width of one
relation's query and key, d_h width of a head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .._layers.calls import TypedModule
from .._layers.inputs import check_batches, check_boolean, check_kind, check_one_device, check_positive, check_sequence
from .._layers.packed import is_watched
from .._layers.relation_size import variation_of, wr_bound
from .._layers.symbols import Symbols, project_symbols
from ..functional import RelativeSymbols, combine
from ..functional.activations import Activation, activation_function
from ..functional.alignments.common import require_rate
from ..functional.reference import Observe, inner_products, scores_for_softmax, seen_by_a_head, softmax_over_senders
from ..functional.relational.inputs import messages
from ..functional.relational.whole import attend
from ._score import check_made
from .messages import Message, Messages, repeat_symbols, rows_of
from .scores import Dot, Score


class Relation(TypedModule):
    """R relations between receivers and senders: any score, with one head for each relation.

    Math: r_ij = (act(score_l(x_i W_q,l^rel, y_j W_k,l^rel)))_l

    With the dot product these are the relations of relational attention (arXiv 2405.16727, eq. 2). Other scores that
    are inner products in some form, see :meth:`.Score.factors`, are computed as these. With ``proj_dim=1`` each
    relation is a product of two numbers, and r_ij = (x_i W_q) * (y_j W_k), the Hadamard product: a vector says where
    two objects agree, not only how much.

    Args:
        d_model: width of receivers.
        n_relations: R.
        score: of relation queries ``(B, R, N, p)`` and keys ``(B, R, M, p)``; its parameters, if any, have
            ``heads=n_relations`` or are shared. A score with features (``d_out=n_relations``) compares the undivided
            projections ``(B, N, R p)`` instead. By default :class:`Dot`.
        proj_dim: p; by default ``d_model // n_relations``, or 1.
        d_sender: width of senders; by default ``d_model``.
        symmetric: one projection and norm for queries and keys, so that symmetric scores make symmetric relations.
        activation: elementwise, a function or its name; ``"softmax"`` normalises over the visible senders.
        qk_norm: RMS norms of relation queries and keys, with learned gains; needs p > 1.

    >>> Relation(d_model=32, n_relations=3)(torch.randn(2, 9, 32)).shape
    torch.Size([2, 9, 9, 3])
    """

    def __init__(
        self,
        d_model: int,
        n_relations: int,
        *,
        score: Score | None = None,
        proj_dim: int | None = None,
        d_sender: int | None = None,
        symmetric: bool = False,
        activation: str | Activation = "identity",
        qk_norm: bool = False,
    ) -> None:
        super().__init__()
        check_boolean(symmetric=symmetric, qk_norm=qk_norm)
        check_positive(d_model=d_model, n_relations=n_relations)
        self.score = Dot() if score is None else score
        check_kind("score", self.score, Score)
        if self.score.n_queries is not None or self.score.heads not in (None, n_relations):
            raise ValueError(
                f"score: expected one of pairs, without heads or with heads=n_relations={n_relations}, got {self.score}"
            )
        proj_dim = max(d_model // n_relations, 1) if proj_dim is None else proj_dim
        d_sender = d_model if d_sender is None else d_sender
        check_positive(proj_dim=proj_dim, d_sender=d_sender)
        if symmetric and d_sender != d_model:
            raise ValueError(f"symmetric: needs receivers and senders of one width, got {d_model} and {d_sender}")
        if qk_norm and proj_dim == 1:
            raise ValueError("qk_norm: a norm leaves nothing but the sign of a single number; expected proj_dim > 1")
        activation_function(activation)
        self._factorises = self.score.factorises and not self.score.multidim
        self.n_relations = n_relations
        self.proj_dim = proj_dim
        self.activation = activation
        self.wq = nn.Linear(d_model, n_relations * proj_dim, bias=False)
        self.wk = self.wq if symmetric else nn.Linear(d_sender, n_relations * proj_dim, bias=False)
        self.q_norm = nn.RMSNorm(proj_dim) if qk_norm else nn.Identity()
        self.k_norm = self.q_norm if symmetric else nn.RMSNorm(proj_dim) if qk_norm else nn.Identity()

    def project(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Relation queries ``(B, N, R, p)`` and keys ``(B, M, R, p)``."""
        check_sequence("query", x, self.wq.in_features, layer=self.wq)
        check_sequence("key", y, self.wk.in_features, layer=self.wk)
        check_batches(query=x, key=y)
        sizes = (self.n_relations, self.proj_dim)
        q, k = self.wq(x).unflatten(-1, sizes), self.wk(y).unflatten(-1, sizes)
        return self.q_norm(q), self.k_norm(k)

    def factors(self, u: Tensor, w: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """Relation queries ``(B, N, R, p')``, keys ``(B, M, R, p')`` and a number times which their inner products are
        the relations before activation; None where the score has no factors, see :meth:`.Score.factors`, or hooks."""
        shown = self._factorises and not is_watched(self.score)
        factors = self.score.factors(u.transpose(1, 2), w.transpose(1, 2)) if shown else None
        if factors is None:
            return None
        q, k, scale = factors
        return q.transpose(1, 2), k.transpose(1, 2), scale

    def relate(self, u: Tensor, w: Tensor, mask: Tensor | None = None) -> Tensor:
        """Relations of projected receivers and senders, ``(B, N, M, R)``.

        The mask is only for ``"softmax"``, boolean, broadcastable to ``(B, H, N, M)``; what all H heads hide is hidden.
        """
        if self.score.multidim:
            scores = self.score(u.flatten(2), w.flatten(2)).movedim(-1, 1)
        else:
            compare = self.score.for_softmax if self.activation == "softmax" else self.score
            scores = compare(u.transpose(1, 2), w.transpose(1, 2))
        shape = (u.shape[0], self.n_relations, u.shape[1], w.shape[1])
        check_made("score", self.score, scores, "(B, relations, N, M)", shape)
        return self.activate(scores, mask).to(u.dtype)

    def activate(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Relations ``(B, N, M, R)`` from scores ``(B, R, N, M)``; mask as :meth:`relate`."""
        if self.activation != "softmax":
            return activation_function(self.activation)(scores).permute(0, 2, 3, 1)
        if mask is not None and mask.dim() == 4:
            mask = seen_by_a_head(mask)
        return softmax_over_senders(scores, mask).permute(0, 2, 3, 1)

    def forward(self, x: Tensor, y: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Relations of receivers ``x (B, N, d)`` and senders ``y (B, M, d)``, by default ``x``: ``(B, N, M, R)``."""
        check_one_device(self, x=x, y=y, mask=mask)
        return self.relate(*self.project(x, x if y is None else y), mask)

    def initial_variation(self) -> float:
        """Variance of a relation over a receiver's senders, with the weights it has: see ``variation_of``.

        Raises:
            ValueError: if senders are of another width than receivers, or relations do not vary.
        """
        d_model, d_sender = self.wq.in_features, self.wk.in_features
        if d_model != d_sender:
            raise ValueError(f"rel_init_size: expected senders as wide as receivers, {d_model}, got {d_sender}")
        return variation_of(lambda x: self(x.to(self.wq.weight)), d_model)

    def extra_repr(self) -> str:
        return f"n_relations={self.n_relations}, proj_dim={self.proj_dim}, activation={self.activation!r}"


@dataclass(frozen=True)
class RelationalMessages(Messages):
    """Messages m^h_ij = W_r^h r_ij + W_s^h s_j, never built for all pairs.

    Attributes:
        relation: r.
        u, w: relation queries ``(B, N, R, p)`` and keys ``(B, M, R, p)``.
        scale: factor of the inner products of ``u`` and ``w``, if these are the relations; otherwise None.
        w_r: ``(H, d_h, R)``.
        symbols: projected ``(B or 1, G, M, d_h)``, relative with a library ``(K, G, d_h)``, or None.
        has_heads: whether weights and messages have an axis of heads; without one, H is 1.

    >>> message = RelationalMessage(Relation(32, 3), head_dim=8, heads=4)
    >>> messages = message(x := torch.randn(2, 9, 32), x)
    >>> messages.receive(torch.rand(2, 4, 9, 9), slice(None)).shape
    torch.Size([2, 4, 9, 8])
    """

    relation: Relation
    u: Tensor
    w: Tensor
    scale: float | None
    w_r: Tensor
    symbols: Symbols | None
    has_heads: bool

    def receive(
        self,
        weights: Tensor,
        rows: slice,
        *,
        multidim: bool = False,
        mask: Tensor | None = None,
        observe: Observe | None = None,
    ) -> Tensor:
        alpha = (weights if self.has_heads else weights.unsqueeze(1)).to(self.u.dtype)
        if mask is not None and not self.has_heads and mask.dim() == 3:
            mask = mask.unsqueeze(1)
        if multidim:
            received = combine(alpha, self.dense(rows, mask), multidim=True, pairwise=True)
        else:
            factorised = self.scale is not None and self.relation.activation == "identity"
            relate = partial(self.relations, rows, mask)
            attended_symbols, attended_relations, _ = attend(
                alpha,
                self.u[:, rows],
                self.w,
                rows_of(self.symbols, rows) if isinstance(self.symbols, RelativeSymbols) else self.symbols,
                rel_scale=1.0 if self.scale is None else self.scale,
                relate=None if factorised and not (observe is not None and observe.watches("relations")) else relate,
                observe=observe,
            )
            received = messages(attended_symbols, attended_relations, self.w_r, observe)
        return received if self.has_heads else received.squeeze(1)

    def relations(self, rows: slice = slice(None), mask: Tensor | None = None) -> Tensor:
        """Relations of some receivers with all senders, ``(B, rows, M, R)``."""
        u = self.u[:, rows]
        if self.scale is None:
            return self.relation.relate(u, self.w, mask)
        compare = scores_for_softmax if self.relation.activation == "softmax" else inner_products
        scores = compare(u.transpose(1, 2), self.w.transpose(1, 2), self.scale)
        return self.relation.activate(scores, mask).to(self.u.dtype)

    def dense(self, rows: slice = slice(None), mask: Tensor | None = None) -> Tensor:
        """Messages of all pairs with some receivers, ``(B, H, rows, M, d_h)``."""
        messages = torch.einsum("bnmr,hdr->bhnmd", self.relations(rows, mask), self.w_r)
        if self.symbols is None:
            return messages
        symbols = repeat_symbols(self.symbols, self.w_r.shape[0])
        if isinstance(symbols, RelativeSymbols):
            return messages + rows_of(symbols, rows).dense().permute(2, 0, 1, 3)
        return messages + symbols[:, :, None]


class RelationalMessage(Message):
    """The message of relational attention: the relation of two objects, and a symbol that identifies the sender.

    Math: m^h_ij = W_r^h r(x_i, y_j) + W_s^h s_j  (arXiv 2405.16727, Algorithm 1)

    Its values are the symbols: ``(B or 1, M, d_symbol)``, or relative ones.

    Args:
        relation: r, of receivers and senders.
        head_dim: d_h, width of a head.
        heads: H; None for a mechanism without heads.
        d_symbol: width of the symbols; None for messages without symbols: a relation, but not with whom.
        n_kv_heads: heads of the projected symbols, each serving ``heads / n_kv_heads``; by default H.
        relative: symbols belong to pairs (``RelativeSymbols``, or a tensor ``(N, M, d_symbol)``).
        bias: in the projection of symbols.
        wr_init: bound of the uniform initial ``W_r``; by default ``1 / sqrt(d_h R)``.
        rel_init_size: size of the relations in the messages at the start, in place of ``wr_init``; as of
            :class:`~dual_attention.relational_attention.RelationalAttention`, and measured on the relation itself.

    >>> message = RelationalMessage(Relation(32, 3), head_dim=8, heads=4, d_symbol=32)
    >>> heads = MultiHead(GeneralAttention(Dot(), message=message), d_model=32, n_heads=4)
    >>> x, symbols = torch.randn(2, 9, 32), torch.randn(2, 9, 32)
    >>> heads(x, value=symbols).context.shape
    torch.Size([2, 9, 32])
    """

    def __init__(
        self,
        relation: Relation,
        head_dim: int,
        *,
        heads: int | None = None,
        d_symbol: int | None = None,
        n_kv_heads: int | None = None,
        relative: bool = False,
        bias: bool = False,
        wr_init: float | None = None,
        rel_init_size: float | None = None,
    ) -> None:
        super().__init__()
        check_boolean(relative=relative, bias=bias)
        check_kind("relation", relation, Relation)
        h = 1 if heads is None else heads
        groups = h if n_kv_heads is None else n_kv_heads
        check_positive(head_dim=head_dim, heads=h, n_kv_heads=groups, d_symbol=1 if d_symbol is None else d_symbol)
        if h % groups:
            raise ValueError(f"n_kv_heads: expected a divisor of heads={h}, got {groups}")
        if relative and d_symbol is None:
            raise ValueError("relative: expected d_symbol, the width of the symbols, got None")
        self.heads = heads
        self.head_dim = head_dim
        self.relation = relation
        self.relative = relative
        self.n_kv_heads = groups
        self.wr = nn.Parameter(torch.empty(h, head_dim, relation.n_relations))
        bound = 1 / math.sqrt(head_dim * relation.n_relations) if wr_init is None else wr_init
        require_rate("wr_init", bound)
        if rel_init_size is not None:
            require_rate("rel_init_size", rel_init_size)
            if not self.wr.is_meta:
                bound = wr_bound(rel_init_size, relation.initial_variation(), relation.n_relations)
        nn.init.uniform_(self.wr, -bound, bound)
        self.wv = None if d_symbol is None else nn.Linear(d_symbol, groups * head_dim, bias=bias)

    def forward(self, query: Tensor | None, key: Tensor, value: Any = None) -> RelationalMessages:
        if query is None:
            raise ValueError("query: relations compare receivers with senders, got None")
        if (value is None) != (self.wv is None):
            wanted = "None, since these messages have no symbols" if self.wv is None else "symbols of the senders"
            raise ValueError(f"value: expected {wanted}, got {type(value).__name__}")
        u, w = self.relation.project(query, key)
        u, w, scale = self.relation.factors(u, w) or (u, w, None)
        symbols = None
        if self.wv is not None:
            sizes = key.shape[0], query.shape[1], key.shape[1]
            symbols = project_symbols(self.wv, value, self.n_kv_heads, sizes, self.relative)
        return RelationalMessages(self.relation, u, w, scale, self.wr, symbols, self.heads is not None)
