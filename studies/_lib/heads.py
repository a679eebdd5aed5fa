"""Heads of the toolbox of attention where a model's blocks have their self-attention.

Shapes: B batch, T tokens, H heads, d width of the model.
"""

from typing import Any, NoReturn

from torch import Tensor, nn

from dual_attention.mechanisms import GeneralAttention


class HeadsOfTokens(nn.Module):
    """Heads of the toolbox where a block has its self-attention, which it calls as it calls that.

    Args:
        name: of the heads, in errors.
        heads: called with receivers and senders.
        dropout: rate on their weights.
    """

    def __init__(self, name: str, heads: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.name, self.heads = name, heads
        for part in heads.modules():
            if isinstance(part, GeneralAttention):
                part.dropout = dropout

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *, attn_mask: Any, need_weights: bool, **others: Any
    ) -> tuple[Tensor, Tensor | None]:
        """``(B, T, d)`` of tokens, which are receivers, senders and values, and the weights ``(B, H, T, T)`` or None.

        Weights of pairs of senders are summed over the second one.
        """
        found = self.heads(query, key, attn_mask=attn_mask, need_weights=need_weights)
        weights = found.weights
        return found.context, weights if weights is None or weights.dim() == 4 else weights.sum(-1)

    def new_cache(self, max_length: int | None = None) -> NoReturn:
        """Refuse: heads of the toolbox keep nothing of earlier tokens."""
        raise ValueError(f"cache: {self.name} heads keep none; decode with use_cache=False")
