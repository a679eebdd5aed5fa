"""Keys and values from one narrow latent vector of each sender (DeepSeek-AI 2024, arXiv 2405.04434)."""

from __future__ import annotations

from torch import Tensor, nn

from ..._layers.calls import TypedModule
from ..._layers.heads import head_dim
from ..._layers.inputs import check_one_device, check_positive, check_sequence
from ..general import GeneralAttention, GeneralAttentionOutput
from ..multi_head import MultiHead
from ..scores import Dot, Score


class LatentAttention(TypedModule):
    """Multi-head latent attention: self-attention whose keys and values have low rank, and share it.

    Math: c_j = RMSNorm(x_j W_DKV), k^h_j = c_j W_UK^h, v^h_j = c_j W_UV^h; with ``d_query_latent`` also
    q^h_i = RMSNorm(x_i W_DQ) W_UQ^h  (eqs. 9 to 13, with the norms of section 3.1.2)

    A sender is known by c alone, which is all that a cache would keep. The paper's other key, of rotary positions and
    shared by heads, is left out: mechanisms of the toolbox know no positions.

    Args:
        d_model: width of the inputs and of the output.
        n_heads: H.
        d_latent: width of c; in the paper four times that of a head.
        d_query_latent: width of the queries' latent vector; None for queries of full rank.
        score: by default :class:`Dot`.
        dropout: rate on the weights while training.

    >>> LatentAttention(d_model=32, n_heads=4, d_latent=8)(torch.randn(2, 9, 32)).context.shape
    torch.Size([2, 9, 32])
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_latent: int,
        d_query_latent: int | None = None,
        *,
        score: Score | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        d_query = d_model if d_query_latent is None else d_query_latent
        check_positive(d_latent=d_latent, d_query_latent=d_query)
        width = head_dim(d_model, n_heads, None, None)
        attention = GeneralAttention(Dot() if score is None else score, dropout=dropout)
        self.d_model = d_model
        self.compress = nn.Linear(d_model, d_latent, bias=False)
        self.norm = nn.RMSNorm(d_latent, eps=1e-6)
        self.compress_query = self.query_norm = None
        if d_query_latent is not None:
            self.compress_query = nn.Linear(d_model, d_query, bias=False)
            self.query_norm = nn.RMSNorm(d_query, eps=1e-6)
        self.heads = MultiHead(
            attention, d_query, n_heads, d_key=d_latent, key_dim=width, head_dim=width, d_out=d_model
        )

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

        Args, returns and errors as :meth:`.MultiHead.forward`, without values.
        """
        key = query if key is None else key
        masks = {"attn_mask": attn_mask, "padding_mask": padding_mask, "attn_bias": attn_bias}
        check_one_device(self, query=query, key=key, **masks)
        check_sequence("key", key, self.d_model, layer=self.compress)
        check_sequence("query", query, self.d_model, batch=(len(key),), layer=self.compress)
        latent = self.norm(self.compress(key))
        if self.compress_query is not None and self.query_norm is not None:
            query = self.query_norm(self.compress_query(query))
        return self.heads(query, latent, **masks, is_causal=is_causal, need_weights=need_weights)
