"""Attention whose weights are the difference of two softmaxes (Ye et al. 2024, arXiv 2410.05258).

Shapes: B batch, L queries, S keys, H heads, d width of a query, 2 d width of a head.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..._layers.calls import TypedModule
from ..._layers.heads import merge_heads
from ..._layers.inputs import check_positive
from ..alignments import Align
from ..general import GeneralAttention, GeneralAttentionOutput
from ..messages import FeatureMessage
from ..multi_head import MultiHead
from ..scores import Dot


class DifferentialAttention(TypedModule):
    """Heads that subtract what two queries see alike: noise that both attend cancels.

    Math: A^h = align(q_1^h k_1^h) - lambda align(q_2^h k_2^h),  c^h = (1 - lambda_init) RMSNorm(A^h v^h),
    out = concat_h(c^h) W_o, with one lambda = exp(<l_q1, l_k1>) - exp(<l_q2, l_k2>) + lambda_init for all heads, and
    lambda_init = 0.8 - 0.6 exp(-0.3 (layer - 1))  (eqs. 1 to 3)

    A head has two queries and keys of width ``d_model / (2 H)`` and one value of twice that, so it has as many
    parameters as self-attention with 2 H heads, and 4 d + 2 d for lambda and the norm. A query with nothing to attend
    receives zero.

    Args:
        d_model: width of the inputs and of the output, a multiple of 2 H.
        n_heads: H; self-attention of the same size has 2 H.
        layer: number of the layer in its model, from 1; lambda starts near 0.2 in the first, near 0.8 in deep ones.
        align: by default :class:`Softmax`.
        dropout: rate on the weights while training.

    >>> DifferentialAttention(d_model=32, n_heads=2)(torch.randn(2, 9, 32)).context.shape
    torch.Size([2, 9, 32])
    """

    def __init__(
        self, d_model: int, n_heads: int, *, layer: int = 1, align: Align | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model, n_heads=n_heads, layer=layer)
        if d_model % (2 * n_heads):
            raise ValueError(f"d_model: expected a multiple of 2 n_heads = {2 * n_heads}, got {d_model}")
        width = d_model // n_heads
        values = FeatureMessage(d_model, 2 * n_heads, width, n_kv_heads=n_heads)
        attention = GeneralAttention(Dot(), align, message=values, dropout=dropout)
        self.n_heads = n_heads
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * (layer - 1))
        self.heads = MultiHead(attention, d_model, 2 * n_heads, head_dim=width, out_proj=False)
        self.lambda_q = nn.Parameter(0.1 * torch.randn(2, width // 2))
        self.lambda_k = nn.Parameter(0.1 * torch.randn(2, width // 2))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.wo = nn.Linear(d_model, d_model, bias=False)

    def factor(self) -> Tensor:
        """lambda, a number of float32 or better."""
        dtype = torch.promote_types(self.lambda_q.dtype, torch.float32)
        first, second = (self.lambda_q.to(dtype) * self.lambda_k.to(dtype)).sum(-1).exp()
        return first - second + self.lambda_init

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        *,
        attn_mask: Tensor | None = None,
        padding_mask: Tensor | None = None,
        is_causal: bool = False,
        attn_bias: Tensor | None = None,
        need_weights: bool = False,
    ) -> GeneralAttentionOutput:
        """Attend from each query to the keys.

        Args, returns and errors as :meth:`.MultiHead.forward`, without values; masks and biases of single heads are
        ``(B, 2 H, L, S)``, the two of a head side by side. The weights ``(B, H, L, S)`` may be negative; what is known
        of drawn keys is ``(B, 2 H, L)``.
        """
        masks = {"attn_mask": attn_mask, "padding_mask": padding_mask, "attn_bias": attn_bias}
        output = self.heads(query, key, **masks, is_causal=is_causal, need_weights=need_weights)
        pairs = output.context.unflatten(-1, (self.n_heads, 2, -1)).transpose(1, 2)  # (B, H, L, 2, 2 d)
        context = self.norm(self._difference(pairs, dim=3)) * (1 - self.lambda_init)
        weights = output.weights
        if weights is not None:
            weights = self._difference(weights.unflatten(1, (self.n_heads, 2)), dim=2)
        return GeneralAttentionOutput(self.wo(merge_heads(context)), weights, output.log_prob, output.entropy)

    def _difference(self, pairs: Tensor, dim: int) -> Tensor:
        first, second = pairs.unbind(dim)
        return first - self.factor() * second

    def extra_repr(self) -> str:
        return f"n_heads={self.n_heads}, lambda_init={self.lambda_init:.3f}"
