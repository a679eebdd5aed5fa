"""The emergent symbol binding network (Webb et al. 2021, arXiv 2012.14601).

Shapes: B batch, N objects, d width, k key width, h width of the controller.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .._layers.calls import TypedBlock
from .._layers.inputs import check_boolean, check_positive
from .._layers.taps import Taps, observer_of
from ..functional.reference import scores_for_softmax, softmax_over_senders, visible_pairs
from ._objects import check_objects
from .context_norm import ContextNorm


class ESBNOutput(NamedTuple):
    """Output of :meth:`ESBN.forward` with ``need_weights``.

    Attributes:
        output: ``(B, h)``.
        weights: of object t (row) on the key bound to the earlier object i, ``(B, N, N)``.
        keys: key that the controller bound to each object, ``(B, N, k)``.
    """

    output: Tensor
    weights: Tensor
    keys: Tensor


class ESBN(TypedBlock):
    """Recurrent controller that never sees the objects, only the keys that it bound to earlier ones like them.

    Math, where M_k and M_v hold what was written before step t, and k^r_0 = 0:
        h_t = LSTM(h_{t-1}, k^r_{t-1}),  k^w_t = relu(W_w h_t + b_w),  g_t = sigmoid(W_g h_t + b_g)
        w_ti = softmax_{i < t}(scale <z_t, M_v,i>),  c_ti = sigmoid(gamma scale <z_t, M_v,i> + beta)
        k^r_t = g_t sum_{i < t} w_ti (M_k,i, c_ti)
        append k^w_t to M_k and z_t to M_v

    Matching objects with earlier ones needs no controller, so it is computed for all of them at once; only the
    controller runs step by step. After the last object it takes one more step, to read the key retrieved there; the
    output is its state after that step. Initial weights are those of the authors' code, drawn for one gate at a time.

    Args:
        d_model: d.
        key_dim: k; 256 in the paper.
        hidden_dim: h; 512 in the paper.
        context_norm: normalise the objects over the sequence first, as in the paper, see
            :class:`~dual_attention.baselines.ContextNorm`.
        scale: factor of the inner products, 1 in the paper; None for ``1 / sqrt(d_model)``. Among many equal objects,
            such as empty places, the inner products of normalised objects, alike or not, are so large that softmax and
            sigmoid saturate and gradients vanish.

    Attributes:
        out_features: ``hidden_dim``.

    >>> ESBN(d_model=32, key_dim=16, hidden_dim=64)(torch.randn(2, 4, 32)).shape
    torch.Size([2, 64])
    """

    def __init__(
        self,
        d_model: int,
        key_dim: int = 256,
        hidden_dim: int = 512,
        *,
        context_norm: bool = True,
        scale: float | None = 1.0,
    ) -> None:
        super().__init__()
        check_boolean(context_norm=context_norm)
        check_positive(d_model=d_model, key_dim=key_dim, hidden_dim=hidden_dim)
        self.d_model = d_model
        self.key_dim = key_dim
        self.hidden_dim = hidden_dim
        self.out_features = hidden_dim
        self.scale = 1 / math.sqrt(d_model) if scale is None else scale
        self.context_norm = ContextNorm(d_model) if context_norm else None
        self.controller = nn.LSTMCell(key_dim + 1, hidden_dim)
        self.to_key = nn.Linear(hidden_dim, key_dim)
        self.to_gate = nn.Linear(hidden_dim, 1)
        self.confidence_gain = nn.Parameter(torch.ones(1))  # FSDP2 shards no number
        self.confidence_bias = nn.Parameter(torch.zeros(1))
        self.taps = Taps(("visible", "weights"))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set gates to Xavier normal (with the gain of tanh for the cell), keys to Kaiming normal, biases to zero."""
        tanh = nn.init.calculate_gain("tanh")
        for weight in (self.controller.weight_ih, self.controller.weight_hh):
            for part, gain in zip(weight.chunk(4), (1.0, 1.0, tanh, 1.0), strict=True):
                nn.init.xavier_normal_(part, gain)
        nn.init.kaiming_normal_(self.to_key.weight, nonlinearity="relu")
        nn.init.xavier_normal_(self.to_gate.weight)
        for bias in (self.controller.bias_ih, self.controller.bias_hh, self.to_key.bias, self.to_gate.bias):
            nn.init.zeros_(bias)

    def forward(
        self, x: Tensor, *, padding_mask: Tensor | None = None, need_weights: bool = False
    ) -> Tensor | ESBNOutput:
        """``(B, N, d) -> (B, h)``, one step of the controller for each object and one more.

        Args:
            padding_mask: boolean, ``(B, N)``; True = an object is there. At other places the controller keeps its
                state, and they are never retrieved.
            need_weights: return an :class:`ESBNOutput`.
        """
        check_objects(x, padding_mask, self.d_model, layer=self.to_key)
        z = x if self.context_norm is None else self.context_norm(x, padding_mask=padding_mask)
        weights, confidence = self._retrieval(z, padding_mask)
        batch, n, _ = x.shape
        state = (x.new_zeros(batch, self.hidden_dim), x.new_zeros(batch, self.hidden_dim))
        read = x.new_zeros(batch, self.key_dim + 1)
        keys = x.new_zeros(batch, 0, self.key_dim)
        for t in range(n):
            h, c = self.controller(read, state)
            retrieved = (weights[:, t, None, :t] @ keys)[:, 0]
            now = torch.sigmoid(self.to_gate(h)) * torch.cat((retrieved, confidence[:, t, None]), dim=-1)
            keys = torch.cat((keys, torch.relu(self.to_key(h))[:, None]), dim=1)
            if padding_mask is not None:
                there = padding_mask[:, t, None]
                h, c = torch.where(there, h, state[0]), torch.where(there, c, state[1])
                now = torch.where(there, now, read)
            state, read = (h, c), now
        output = self.controller(read, state)[0]
        return ESBNOutput(output, weights, keys) if need_weights else output

    def _retrieval(self, z: Tensor, padding_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Weights w ``(B, N, N)`` and mean confidence sum_i w_ti c_ti ``(B, N)``, which need no controller."""
        scores = scores_for_softmax(z, z, self.scale)
        earlier = torch.ones(scores.shape[1:], dtype=torch.bool, device=z.device).tril(-1)
        mask = earlier if padding_mask is None else earlier & padding_mask[:, None, :]
        observe = observer_of(self)
        if observe is None:
            weights = softmax_over_senders(scores, mask).to(z.dtype)
        else:  # of the one head that there is
            of_head = mask.expand_as(scores)[:, None]
            shown = visible_pairs(observe, of_head, None, scores.shape[1:], z.device)
            weights = observe("weights", softmax_over_senders(scores[:, None], shown).to(z.dtype))[:, 0]
        confidence = torch.sigmoid(self.confidence_gain * scores + self.confidence_bias)
        return weights, (weights * confidence).sum(dim=-1).to(z.dtype)
