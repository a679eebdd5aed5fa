"""Rivals of relational heads by name, from the toolbox of attention, and a block around any heads.

Shapes: B batch, T tokens, H heads, d width of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from torch import Tensor, nn

from dual_attention._layers.symbols import Symbols
from dual_attention._models.config import DepthConfig
from dual_attention.functional.masks import MaskPattern
from dual_attention.mechanisms import (
    DifferentialAttention,
    GeneralAttention,
    LatentAttention,
    SimplicialAttention,
    TensorProductProjection,
    recipes,
)
from dual_attention.transformer_blocks import EncoderSteps, FeedForwardBlock, create_norm

from ..training.configs import check

RivalName = Literal[
    "differential",
    "simplicial",
    "latent",
    "stick_breaking",
    "multi_token",
    "tensor_product",
    "slot_pair",
    "value_residual",
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
    "value_residual": lambda d, heads, layer: (
        recipes.self_attention if layer == 1 else recipes.value_residual_attention
    )(d, heads),
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


def rival_heads(heads: RivalName, d_model: int, n_heads: int, layer: int, dropout: float) -> nn.Module:
    """Heads of a rival; arguments as of :data:`RIVALS`, and the dropout rate on weights."""
    built = RIVALS[heads](d_model, n_heads, layer)
    for part in built.modules():
        if isinstance(part, GeneralAttention):
            part.dropout = dropout
    return built


def multiplied_projections(model: nn.Module) -> Iterator[nn.Linear]:
    """Linear maps whose outputs are multiplied by each other: with small weights, next to nothing is left of both."""
    for module in model.modules():
        if isinstance(module, SimplicialAttention):
            yield from (module.wq, module.wk, module.wv)
        elif isinstance(module, TensorProductProjection):
            yield module


class HeadsBlock(EncoderSteps):
    """Encoder block around any heads: these and feed-forward, each in a residual step.

    Args:
        heads: called with tokens, tokens, and symbols if ``takes_symbols``.
        causal: whether tokens see those before them only, of a mask that is given; otherwise masks are not looked at,
            as those of an image, which hide nothing.
        others: as :class:`~dual_attention.transformer_blocks.EncoderBlock`.
    """

    _attention = "heads"

    def __init__(
        self, heads: nn.Module, config: DepthConfig, *, takes_symbols: bool = False, causal: bool = False
    ) -> None:
        super().__init__(config.dropout_rate, config.norm_first, causal)
        self.post_norm_dropout, self.takes_symbols = True, takes_symbols
        self.norm1 = create_norm(config.d_model, config.norm_type)
        self.heads: Any = heads
        self.heads_dropout = nn.Dropout(config.dropout_rate)
        self.norm2 = create_norm(config.d_model, config.norm_type)
        self.ff_block = FeedForwardBlock(config.d_model, config.dff, config.activation, use_bias=config.bias)

    def forward(
        self,
        x: Tensor,
        symbols: Symbols | None = None,
        *,
        attn_mask: MaskPattern | None = None,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor | None]:
        """``(B, T, d) -> (B, T, d)``; with ``need_weights`` the pair of that and the weights ``(B, H, T, T)``.

        Weights of pairs of senders are summed over the second one.
        """
        z = self.pre_norm(x, self.norm1)
        own = (symbols,) if self.takes_symbols else ()
        masks = {"attn_mask": attn_mask} if self.causal else {}
        attended = self.heads(z, z, *own, **masks, need_weights=need_weights)
        x = self._finish(x, self.heads_dropout(attended.context))
        if not need_weights:
            return x
        weights = attended.weights
        return x, weights if weights is None or weights.dim() == 4 else weights.sum(-1)

    def values(self, x: Tensor) -> Tensor:
        """Values of the tokens that enter the block, ``(B, T, d)``, of heads of :class:`MultiHead`."""
        return self.heads.message.wv(self.pre_norm(x, self.norm1))
