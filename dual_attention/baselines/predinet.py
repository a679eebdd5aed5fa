"""PrediNet (Shanahan et al. 2020, arXiv 1905.10307).

Shapes: B batch, N objects given, n_objects places, d width, H heads, J relations, P numbers in a position, k key width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._layers.calls import TypedBlock
from .._layers.inputs import check_not_negative, check_positive
from .._layers.taps import Taps, observer_of
from ..functional import attention
from ._objects import check_objects


class PrediNetOutput(NamedTuple):
    """Output of :meth:`PrediNet.forward` with ``need_weights``.

    Attributes:
        output: ``(B, H * (J + 2 P))``.
        weights: ``(B, H, 2, N)``, of each head's first and second object.
    """

    output: Tensor
    weights: Tensor


class PrediNet(TypedBlock):
    """Heads that each attend to two objects and output the difference and the positions of these.

    Math, where a row of L holds the features and the position of one object:
        K = L W_K,  Q_1^h = flatten(L) W_Q1^h,  Q_2^h = flatten(L) W_Q2^h
        E_1^h = softmax(Q_1^h K^T) L,  E_2^h = softmax(Q_2^h K^T) L
        D^h = E_1^h W_S - E_2^h W_S
        R = concat_h(D^h, position of E_1^h, position of E_2^h)

    Heads share ``W_K`` and ``W_S``. There is no scale and no bias.

    Args:
        d_model: d, without the position.
        n_objects: number of places, which ``W_Q1`` and ``W_Q2`` read side by side.
        n_heads: H.
        n_relations: J, the width of ``W_S``.
        key_dim: k; by default ``d_model // n_heads``.
        position_dim: P, appended to the features; 0 for none.

    Attributes:
        out_features: ``n_heads * (n_relations + 2 * position_dim)``.

    >>> model = PrediNet(d_model=32, n_objects=4, n_heads=2, n_relations=8)
    >>> model(torch.randn(2, 4, 32)).shape, model.out_features
    (torch.Size([2, 20]), 20)
    """

    def __init__(
        self,
        d_model: int,
        n_objects: int,
        n_heads: int,
        n_relations: int,
        key_dim: int | None = None,
        *,
        position_dim: int = 1,
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model, n_objects=n_objects, n_heads=n_heads, n_relations=n_relations)
        key_dim = d_model // n_heads if key_dim is None else key_dim
        check_positive(key_dim=key_dim)
        check_not_negative(position_dim=position_dim)
        self.d_model = d_model
        self.n_objects = n_objects
        self.n_heads = n_heads
        self.n_relations = n_relations
        self.key_dim = key_dim
        self.position_dim = position_dim
        self.out_features = n_heads * (n_relations + 2 * position_dim)
        width = d_model + position_dim
        self.wk = nn.Linear(width, key_dim, bias=False)
        self.wq1 = nn.Linear(n_objects * width, n_heads * key_dim, bias=False)
        self.wq2 = nn.Linear(n_objects * width, n_heads * key_dim, bias=False)
        self.ws = nn.Linear(width, n_relations, bias=False)
        self.taps = Taps(("visible", "weights", "head_output"))  # each head's receivers are its two objects

    def forward(
        self,
        x: Tensor,
        *,
        positions: Tensor | None = None,
        padding_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> Tensor | PrediNetOutput:
        """``(B, N, d) -> (B, H * (J + 2 P))``.

        Args:
            x: N at most ``n_objects``; places without an object are as if they were masked.
            positions: floating point, ``(N, P)`` or ``(B, N, P)``; by default 0 to N - 1, if P is 1.
            padding_mask: boolean, ``(B, N)``; True = an object is there. Queries see zeros at other places, which are
                not attended.
            need_weights: return a :class:`PrediNetOutput`.
        """
        check_objects(x, padding_mask, self.d_model, self.n_objects, layer=self.wk)
        objects = self._with_positions(x, positions)
        if padding_mask is not None:
            objects = objects.masked_fill(~padding_mask[..., None], 0.0)
        missing = self.n_objects - x.shape[1]
        flat = F.pad(objects, (0, 0, 0, missing)).flatten(1)
        queries = torch.stack((self.wq1(flat), self.wq2(flat)), dim=1).unflatten(-1, (self.n_heads, -1))
        observe = observer_of(self, crosses=True)
        attended, weights = attention(
            queries.transpose(1, 2),
            self.wk(objects)[:, None],
            objects[:, None],
            scale=1.0,
            mask=None if padding_mask is None else padding_mask[:, None, None, :],
            need_weights=need_weights,
            observe=observe,
        )
        if observe is not None:
            attended = observe("head_output", attended)
        first, second = attended.unbind(dim=2)
        parts = [self.ws(first) - self.ws(second), first[..., self.d_model :], second[..., self.d_model :]]
        output = torch.cat(parts, dim=-1).flatten(1)
        return output if weights is None else PrediNetOutput(output, weights)

    def _with_positions(self, x: Tensor, positions: Tensor | None) -> Tensor:
        batch, n, _ = x.shape
        if positions is None:
            if self.position_dim > 1:
                raise ValueError(f"positions: expected {self.position_dim} numbers for each object, got none")
            positions = torch.arange(n, device=x.device, dtype=x.dtype)[:, None][:, : self.position_dim]
        if tuple(positions.shape) not in ((n, self.position_dim), (batch, n, self.position_dim)):
            raise ValueError(f"positions: expected {(n, self.position_dim)} or a batch, got {tuple(positions.shape)}")
        if not positions.is_floating_point():
            raise TypeError(f"positions: expected floating-point numbers, got dtype {positions.dtype}")
        return torch.cat((x, positions.to(x.dtype).expand(batch, -1, -1)), dim=-1)
