"""Relational architectures over objects whose looks and positions come apart, as :class:`.SlotEncoder` gives them.

Shapes: B batch, K objects, d width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .._layers.calls import TypedModule
from .._layers.inputs import check_depth, check_positive, check_sequence
from .._layers.options import arguments_of
from ..configs import NormType
from ..functional import reference
from ..functional.activations import Activation, activation_function
from ..transformer_blocks import EncoderBlock
from ._objects import check_objects
from .abstractor import AbstractorBlock
from .context_norm import ContextNorm


def _normalised(
    norm: ContextNorm, x: Tensor, positions: Tensor, mask: Tensor | None, layer: nn.Module
) -> tuple[Tensor, Tensor]:
    """Features and positions, each normalised over the objects of an example; ``layer`` is the first to take them."""
    check_objects(x, mask, norm.d_model, layer=layer)
    check_sequence("positions", positions, norm.d_model, batch=(len(x),), layer=layer)
    if positions.shape != x.shape:
        raise ValueError(f"positions: expected one for each of {x.shape[1]} objects, got {positions.shape[1]}")
    return norm(x, padding_mask=mask), norm(positions, padding_mask=mask)


class SlotAbstractor(TypedModule):
    """Abstractor whose symbols are the positions of the objects (Mondal, Cohen & Webb 2024, arXiv 2403.03458).

    Math: A^(0) = CN(m);  A^(l) = layer l of (CN(z), A^(l-1)), see :class:`~dual_attention.baselines.AbstractorBlock`

    z are features, m positions and CN one :class:`~dual_attention.baselines.ContextNorm` for both. As in the authors'
    code the queries of a layer start equal to its keys, so that at first it compares by likeness. Their layers end with
    self-attention among symbols and one more feed-forward step; here a layer begins with it.

    Args:
        d_model, n_layers: d, and the number of layers.
        others: of the layers, as :class:`~dual_attention.baselines.AbstractorBlock`.

    >>> model = SlotAbstractor(d_model=32, n_layers=1, n_heads=2)
    >>> model(torch.randn(2, 4, 32), positions=torch.randn(2, 4, 32)).shape
    torch.Size([2, 4, 32])
    """

    def __init__(
        self,
        d_model: int,
        n_layers: int,
        n_heads: int,
        dff: int | None = None,
        dropout_rate: float = 0.0,
        activation: str = "gelu",
        norm_first: bool = True,
        norm_type: NormType = "layernorm",
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model)
        check_depth(n_layers=n_layers)
        block = arguments_of(AbstractorBlock, locals())
        self.d_model = d_model
        self.context_norm = ContextNorm(d_model)
        self.blocks: Any = nn.ModuleList(AbstractorBlock(**block) for _ in range(n_layers))
        for layer in self.blocks:
            layer.rel_attn.wk.load_state_dict(layer.rel_attn.wq.state_dict())

    def forward(self, x: Tensor, positions: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """Features and positions ``(B, K, d)`` each ``-> (B, K, d)``; a mask ``(B, K)`` is True where an object is."""
        x, symbols = _normalised(self.context_norm, x, positions, padding_mask, self.blocks[0].rel_attn.wq)
        for block in self.blocks:
            symbols = block(x, symbols, padding_mask=padding_mask)
        return symbols


class OCRA(TypedModule):
    """Object-centric relational abstraction: a Transformer over pairs of objects (Webb et al. 2023, arXiv 2306.02500).

    Math, for all pairs k <= k' of objects:
        R_kk' = softmax_k'(<CN(z_k) W_z + b_z, CN(z_k') W_z + b_z>)
        r_kk' = R_kk' w_r + b_r + p_k + p_k',  p_k = CN(m_k) W_m + b_m
        output = the class token of Transformer(class token, r_11, r_12, ...)

    Of features z only relations pass, each told by the positions m of its two objects. CN is one
    :class:`~dual_attention.baselines.ContextNorm` for both. The softmax is that of the authors' code.

    Args:
        d_model, n_layers: d, and the number of layers.
        rel_activation: activation of the relations: softmax over the second object, or an elementwise one.
        others: of the layers, as :class:`~dual_attention.transformer_blocks.EncoderBlock`.

    >>> OCRA(d_model=32, n_layers=1, n_heads=2)(torch.randn(2, 4, 32), positions=torch.randn(2, 4, 32)).shape
    torch.Size([2, 32])
    """

    def __init__(
        self,
        d_model: int,
        n_layers: int,
        n_heads: int,
        dff: int | None = None,
        dropout_rate: float = 0.0,
        activation: str = "gelu",
        norm_first: bool = True,
        norm_type: NormType = "layernorm",
        bias: bool = True,
        *,
        rel_activation: str | Activation = "softmax",
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model)
        check_depth(n_layers=n_layers)
        activation_function(rel_activation, "rel_activation")
        block = arguments_of(EncoderBlock, locals())
        self.d_model, self.rel_activation = d_model, rel_activation
        self.context_norm = ContextNorm(d_model)
        self.wz, self.wm = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.wr = nn.Linear(1, d_model)
        self.cls_token = nn.Parameter(torch.randn(1, 1, d_model))
        self.blocks: Any = nn.ModuleList(EncoderBlock(**block) for _ in range(n_layers))

    def forward(self, x: Tensor, positions: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """Features and positions ``(B, K, d)`` each ``-> (B, d)``; a mask ``(B, K)`` is True where an object is."""
        x, positions = _normalised(self.context_norm, x, positions, padding_mask, self.wz)
        z, p = self.wz(x)[:, :, None], self.wm(positions)
        seen = None if padding_mask is None else padding_mask[:, None, None]
        related = reference.relations(z, z, scale=1.0, activation=self.rel_activation, mask=seen)
        first, second = torch.triu_indices(x.shape[1], x.shape[1], device=x.device)
        pairs = self.wr(related[:, first, second]) + p[:, first] + p[:, second]
        tokens = torch.cat((self.cls_token.expand(len(x), -1, -1), pairs), dim=1)
        if padding_mask is not None:
            real = padding_mask[:, first] & padding_mask[:, second]
            padding_mask = torch.cat((real.new_ones(len(x), 1), real), dim=1)
        for block in self.blocks:
            tokens = block(tokens, padding_mask=padding_mask)
        return tokens[:, 0]
