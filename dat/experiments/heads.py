"""Rivals of relational heads by name, from the toolbox of attention, in place of self-attention.

Shapes: B batch, T tokens, H heads, d width of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NoReturn

from torch import Tensor, nn

from dual_attention.mechanisms import (
    DifferentialAttention,
    GeneralAttention,
    LatentAttention,
    SimplicialAttention,
    TensorProductProjection,
    recipes,
)

from ..training.configs import check

RivalName = Literal[
    "differential", "simplicial", "latent", "stick_breaking", "multi_token", "tensor_product", "slot_pair"
]
"""Rivals of relational heads, each in place of self-attention."""

RIVALS: Mapping[RivalName, Callable[[int, int, int], nn.Module]] = {
    "differential": lambda d, heads, layer: DifferentialAttention(d, heads // 2, layer=layer),
    "simplicial": lambda d, heads, layer: SimplicialAttention(d, heads),
    "latent": lambda d, heads, layer: LatentAttention(d, heads, max(d // 4, 1)),
    "stick_breaking": lambda d, heads, layer: recipes.stick_breaking_attention(d, heads),
    "multi_token": lambda d, heads, layer: recipes.multi_token_attention(d, heads, group=2 - heads % 2),
    "tensor_product": lambda d, heads, layer: recipes.tensor_product_attention(
        d, heads, query_rank=min(6, heads), rank=min(2, (heads + 1) // 2)
    ),
    "slot_pair": lambda d, heads, layer: recipes.slot_pair_attention(d, heads),
}
"""Their heads, of the width of the model, the number of heads of the Transformer beside them, and the layer from 1.

Sizes are the papers', except where so few heads leave no room for them: latent vectors are a quarter as wide as the
model, and tensor products have no more than H queries' and H / 2 keys' and values' terms.
"""


def check_rival(key: str, heads: RivalName | None, n_heads: int) -> None:
    """Raise ``ValueError`` naming the key of the number of heads, if a rival has none of that number."""
    if heads == "differential":
        check(n_heads % 2 == 0, key, f"an even number of heads, of which {heads} attention subtracts pairs", n_heads)
    if heads == "slot_pair":
        check(n_heads > 1, key, f"two or more heads, which are the slots that {heads} attention compares", n_heads)


def multiplied_projections(model: nn.Module) -> Iterator[nn.Linear]:
    """Linear maps whose outputs are multiplied by each other: with small weights, next to nothing is left of both."""
    for module in model.modules():
        if isinstance(module, SimplicialAttention):
            yield from (module.wq, module.wk, module.wv)
        elif isinstance(module, TensorProductProjection):
            yield module


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
