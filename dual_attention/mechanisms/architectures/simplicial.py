"""Attention to pairs of senders: scores of three objects (Clift et al. 2019, arXiv 1909.00668).

Shapes: B batch, L queries, S keys, H heads, d width of a head, d_model = H d; P = S^2 pairs of keys.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._layers.calls import TypedModule
from ..._layers.heads import head_dim, merge_heads, split_heads
from ..._layers.inputs import check_choice, check_one_device, check_sequence
from ...functional import mask_pattern
from ...functional.alignments.common import require_rate
from ...functional.checks import without_autocast
from ..general import GeneralAttention, GeneralAttentionOutput
from ..scores import Dot, Score

Form = Literal["product", "volume"]


class TripleProduct(Score):
    """Unsigned scalar triple product of a query and the two keys of a pair (Clift et al. 2019, eqs. 7 and 8).

    Math: e = |(q k) k' - (q k') k + (k k') q|, which is |q| |k| |k'| times a function of their angles

    Keys are ``(..., P, 2 d)``, the two of a pair side by side. The gradient is zero where the product is.

    >>> TripleProduct()(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0, 3.0, 0.0]]))
    tensor([[6.]])
    """

    def forward(self, query: Tensor | None, key: Tensor) -> Tensor:
        query = self.require_query(query)
        if key.shape[-1] != 2 * query.shape[-1]:
            raise ValueError(f"key: expected two of width {query.shape[-1]} side by side, got shape {tuple(key.shape)}")
        k, other = (part.transpose(-2, -1) for part in key.chunk(2, dim=-1))
        with without_autocast(query):
            qk, qo, ko = query @ k, query @ other, (k * other).sum(-2, keepdim=True)
        squares = [x.square().sum(axis, keepdim=True) for x, axis in ((query, -1), (k, -2), (other, -2))]
        volume = qk.square() * squares[2] + qo.square() * squares[1] + ko.square() * squares[0] - 2 * qk * qo * ko
        return volume.clamp_min(torch.finfo(volume.dtype).eps ** 2).sqrt()


def _check_memory(n_keys: int, of_pair: int, max_gib: float) -> None:
    """Raise ``ValueError`` if pairs of so many bytes each take more than that."""
    gib = of_pair * n_keys**2 / 2**30
    if gib > max_gib:
        raise ValueError(
            f"key: pairs of {n_keys:,} keys take {gib:,.1f} GiB, {of_pair:,} bytes each, more than "
            f"max_gib={max_gib:g}; expected at most {int(n_keys * math.sqrt(max_gib / gib)):,} keys"
        )


class SimplicialAttention(TypedModule):
    """2-simplicial attention: heads attend to pairs of senders, by scores of triples.

    Math: c^h_i = sum_jk A^h_ijk v^h_jk, with A^h_i = softmax_jk(e_ijk) and out = concat_h(c^h) W_o;
    ``"product"``: e_ijk = sum_d q_id k_jd k'_kd / sqrt(d), v_jk = v_j * v'_k (Roy et al. 2025, arXiv 2507.02754);
    ``"volume"``: e_ijk the :class:`TripleProduct` of q_i, k_j and k'_k, v_jk = B(v_j, v_k) with a bilinear map B that
    heads share, and a layer norm of the heads before W_o (Clift et al. 2019, eqs. 10 and 11)

    It is :class:`GeneralAttention` over all pairs, of the same kernels. A pair is hidden if one of its senders is.
    Memory grows with S^2, and with L S^2 under a mask of order, for weights and for volumes. Half precision is computed
    in float32.

    Args:
        d_model: width of the inputs and of the output.
        n_heads: H.
        form: see above. Parameters are 6 d_model^2, or 5 d_model^2 + d^3 + d_model.
        dropout: rate on the weights while training.
        max_gib: memory that the pairs may take in a call; with gradients it is two to four times as much.

    >>> SimplicialAttention(d_model=32, n_heads=2)(torch.randn(2, 9, 32)).context.shape
    torch.Size([2, 9, 32])
    """

    def __init__(
        self, d_model: int, n_heads: int, *, form: Form = "product", dropout: float = 0.0, max_gib: float = 4.0
    ) -> None:
        super().__init__()
        check_choice("form", form, Form)
        require_rate("max_gib", max_gib)
        self.d_model, self.n_heads, self.max_gib = d_model, n_heads, max_gib
        width, volume = head_dim(d_model, n_heads, None, None), form == "volume"
        self.attention = GeneralAttention(TripleProduct() if volume else Dot(), dropout=dropout)
        self.wq = nn.Linear(d_model, d_model, bias=False)
        self.wk = nn.Linear(d_model, 2 * d_model, bias=False)
        self.wv = nn.Linear(d_model, d_model if volume else 2 * d_model, bias=False)
        self.bilinear = nn.Parameter(torch.randn(width, width, width) / width) if volume else None
        self.gain = nn.Parameter(torch.ones(d_model)) if volume else None
        self.wo = nn.Linear(d_model, d_model, bias=False)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        *,
        attn_mask: Tensor | None = None,
        padding_mask: Tensor | None = None,
        is_causal: bool = False,
        need_weights: bool = False,
    ) -> GeneralAttentionOutput:
        """Attend from each query to the pairs of keys.

        Args, returns and errors as :meth:`.MultiHead.forward`; weights are ``(B, H, L, S, S)``.

        Raises:
            ValueError: also if pairs would take more than ``max_gib``, with how much, and how many keys fit.
        """
        key = query if key is None else key
        check_one_device(self, query=query, key=key, attn_mask=attn_mask, padding_mask=padding_mask)
        check_sequence("key", key, self.d_model, layer=self.wk)
        check_sequence("query", query, self.d_model, batch=(len(key),), layer=self.wq)
        n, m = query.shape[1], key.shape[1]
        sizes: dict[str, Any] = {"batch": len(key), "heads": self.n_heads, "n": n, "m": m}
        mask = mask_pattern(attn_mask, padding_mask, is_causal, **sizes).dense(key.device)
        _check_memory(m, self._bytes_of_pair(n, len(key), mask, need_weights), self.max_gib)
        wide = torch.promote_types(query.dtype, torch.float32)
        q, (keys, values) = split_heads(self.wq(query), self.n_heads).to(wide), self._pairs(key, wide)
        if mask is not None:
            mask = mask.expand(*mask.shape[:-1], m)
            mask = (mask[..., :, None] & mask[..., None, :]).flatten(-2)
        with without_autocast(q):
            output = self.attention(q, keys, values, attn_mask=mask, need_weights=need_weights)
        context = merge_heads(output.context)
        if self.gain is not None:
            context = F.layer_norm(context, (self.d_model,), self.gain.to(wide))
        weights = None if output.weights is None else output.weights.unflatten(-1, (m, m))
        return GeneralAttentionOutput(self.wo(context.to(query.dtype)), weights)

    def _pairs(self, key: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Keys ``(B, H, P, d)``, or ``2 d`` for volumes, and values ``(B, H, P, d)`` of all pairs."""
        projected = (*self.wk(key).chunk(2, dim=-1), *self.wv(key).split(self.d_model, dim=-1))
        k, other, v, *w = (split_heads(part, self.n_heads).to(dtype) for part in projected)
        first, second = k.unsqueeze(-2), other.unsqueeze(-3)
        if self.bilinear is None:
            keys, values = first * second, v.unsqueeze(-2) * w[0].unsqueeze(-3)
        else:
            keys = torch.cat(torch.broadcast_tensors(first, second), dim=-1)
            with without_autocast(v):
                values = torch.einsum("def,bhje,bhkf->bhjkd", self.bilinear.to(dtype), v, v)
        return keys.flatten(-3, -2), values.flatten(-3, -2)

    def _bytes_of_pair(self, n: int, batch: int, mask: Tensor | None, need_weights: bool) -> int:
        """About what a call without gradients holds of a pair: keys, values, masks, and scores where they are built."""
        built = need_weights or self.gain is not None or (self.training and self.attention.dropout > 0)
        numbers = batch * ((2 if self.gain is None else 3) * self.d_model + 3 * self.n_heads * n * built)
        masks = 0 if mask is None else mask[..., 0].numel()  # booleans, and numbers to add
        return (numbers + masks) * max(4, self.wq.weight.element_size()) + 2 * masks
