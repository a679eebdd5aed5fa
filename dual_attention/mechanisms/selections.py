"""Selections: the keys that a query may attend at all, chosen before the alignment.

Shapes: query ``(..., L, d_q)``, key ``(..., S, d_k)``, padding mask ``(..., S)`` (True = a real key).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import functional
from .._layers.calls import TypedModule
from .._layers.inputs import check_boolean, check_choice, check_not_negative, check_one_device, check_positive
from ..functional.activations import Activation
from ..functional.checks import MaybeNone, check_finite
from ..functional.masks import expand_padding
from ._parameters import matrix


class Selection(NamedTuple):
    """Output of a selection; all but the mask may be None.

    Attributes:
        mask: the selected keys, boolean, broadcastable to ``(..., L, S)``.
        gain: factor of the weights after the alignment, of that shape.
        bias: added to the scores before the alignment, of that shape.
        position: predicted positions, real numbers, ``(..., L)``.
        log_prob: log-probability of the draw, ``(...)``.
        fraction: selected share of the real keys, times that of the real queries if those are drawn too, ``(...)``.

    >>> selection = MonotonicWindow(half_width=1)(torch.randn(1, 2, 8), torch.randn(1, 4, 8))
    >>> selection.mask
    tensor([[[ True,  True, False, False],
             [ True,  True,  True, False]]])
    """

    mask: Tensor
    gain: Tensor | None = None
    bias: Tensor | None = None
    position: Tensor | MaybeNone = None
    log_prob: Tensor | MaybeNone = None
    fraction: Tensor | MaybeNone = None


class Select(TypedModule, ABC):
    """A choice of keys. Subclasses implement ``forward(query, key, padding_mask)``.

    >>> isinstance(MonotonicWindow(half_width=1), Select)
    True
    """

    @abstractmethod
    def forward(self, query: Tensor, key: Tensor, padding_mask: Tensor | None = None) -> Selection:
        """Selected keys of each query."""


def _places(key: Tensor, padding_mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Positions of the keys among the real ones ``(..., S)``, and the number of real ones ``(...)``."""
    if padding_mask is None:
        padding_mask = torch.ones(key.shape[:-1], dtype=torch.bool, device=key.device)
    return functional.positions_from_padding(padding_mask), padding_mask.sum(-1)


class MonotonicWindow(Select):
    """Window of local-m: query t attends near key t (Luong et al. 2015, arXiv 1508.04025, section 3.2).

    Math: |s - c_t| <= D,  c_t = min(t + offset, n - 1), n the number of real keys

    Args:
        half_width: D >= 0.
        offset: of the centre from the query.

    >>> attention = GeneralAttention(Dot(), select=MonotonicWindow(half_width=1))
    >>> attention(torch.randn(1, 2, 8), torch.randn(1, 5, 8), need_weights=True).weights > 0
    tensor([[[ True,  True, False, False, False],
             [ True,  True,  True, False, False]]])
    """

    def __init__(self, half_width: int, *, offset: int = 0) -> None:
        super().__init__()
        check_finite(offset=offset)
        check_not_negative(half_width=half_width, offset=abs(offset))
        self.half_width = half_width
        self.offset = offset

    def forward(self, query: Tensor, key: Tensor, padding_mask: Tensor | None = None) -> Selection:
        positions, lengths = _places(key, padding_mask)
        centre = functional.monotonic_centre(query.shape[-2], lengths, offset=self.offset)
        return Selection(functional.local_window(centre, positions, self.half_width))

    def extra_repr(self) -> str:
        return f"half_width={self.half_width}" + (f", offset={self.offset}" if self.offset else "")


class PredictiveWindow(Select):
    """Window of local-p, at a position that each query predicts (Luong et al. 2015, eqs. 9 and 10).

    Math: p_t = n sigmoid(<v, tanh(W q_t)>),  |s - floor(p_t)| <= D,  weights times exp(-(s - p_t)^2 / (2 sigma^2))

    The window has no gradient: the position learns only through the Gaussian.

    Args:
        d_q: width of the query.
        half_width: D >= 0.
        gaussian: favour the middle of the window. Without it no position can be learned: pass ``trainable=False``.
        sigma: of the Gaussian, positive; by default D / 2, as in the paper.
        renormalise: make the weights sum to one, with the Gaussian as a bias of the scores; not in the paper.
        trainable: False freezes the prediction.

    >>> attention = GeneralAttention(Dot(), select=PredictiveWindow(d_q=8, half_width=2))
    >>> attention(torch.randn(2, 3, 8), torch.randn(2, 9, 8), need_weights=True).selection.position.shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        d_q: int,
        half_width: int,
        *,
        gaussian: bool = True,
        sigma: float | None = None,
        renormalise: bool = False,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        check_boolean(gaussian=gaussian, renormalise=renormalise, trainable=trainable)
        check_positive(d_q=d_q)
        check_not_negative(half_width=half_width)
        if not gaussian and trainable:
            raise ValueError("gaussian: without it the prediction cannot learn; expected True, or trainable=False")
        sigma = half_width / 2 if sigma is None else sigma
        check_finite(sigma=sigma)
        if gaussian and not sigma > 0:
            raise ValueError(f"sigma: expected a positive number (half_width / 2 by default), got {sigma}")
        self.half_width = half_width
        self.gaussian = gaussian
        self.sigma = sigma
        self.renormalise = renormalise
        self.weight_p = matrix(None, d_q, d_q)
        self.weight = matrix(None, d_q)
        self.requires_grad_(trainable)

    def forward(self, query: Tensor, key: Tensor, padding_mask: Tensor | None = None) -> Selection:
        check_one_device(self, query=query, key=key, padding_mask=padding_mask)
        if query.shape[-1] != self.weight_p.shape[-1]:
            raise ValueError(f"query: expected width {self.weight_p.shape[-1]}, got shape {tuple(query.shape)}")
        positions, lengths = _places(key, padding_mask)
        logits = torch.tanh(query @ self.weight_p.transpose(-2, -1)) @ self.weight
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # positions are finer than half precision
        position, centre = functional.predicted_position(logits, lengths)
        window = functional.local_window(centre, positions, self.half_width)
        if not self.gaussian:
            return Selection(window, position=position)
        log_gain = functional.log_gaussian(position, positions, self.sigma)
        if self.renormalise:
            return Selection(window, bias=log_gain, position=position)
        return Selection(window, gain=log_gain.exp(), position=position)

    def extra_repr(self) -> str:
        gaussian = f"sigma={self.sigma}, renormalise={self.renormalise}" if self.gaussian else "gaussian=False"
        return f"half_width={self.half_width}, {gaussian}"


class SubsetSampler(TypedModule):
    """Sampler that draws positions of a sequence in parallel: RSS of Shen et al. 2018 (arXiv 1801.10296).

    Math: u_i = [x_i; mean(x); x_i * mean(x)],  z_i ~ Bernoulli(sigmoid(<w, act(W u_i + b)> + b'))

    Args:
        d: width of the sequence.
        d_w: hidden width; by default ``d``.
        activation: by default ELU.
        evaluation: ``"threshold"`` selects by a probability of at least one half; ``"sample"`` draws, as in training.
        generator: source of the draws.

    >>> chosen, log_prob = SubsetSampler(8)(torch.randn(2, 5, 8))
    >>> chosen.shape, chosen.dtype
    (torch.Size([2, 5]), torch.bool)
    """

    def __init__(
        self,
        d: int,
        d_w: int | None = None,
        *,
        activation: Activation = F.elu,
        evaluation: Literal["threshold", "sample"] = "threshold",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        d_w = d if d_w is None else d_w
        check_positive(d=d, d_w=d_w)
        check_choice("evaluation", evaluation, ("threshold", "sample"))
        self.activation = activation
        self.evaluation = evaluation
        self.generator = generator
        self.hidden = nn.Linear(3 * d, d_w)
        self.logit = nn.Linear(d_w, 1)
        for linear in (self.hidden, self.logit):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def logits(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Logits of being selected: ``(..., S, d) -> (..., S)``."""
        mean = functional.masked_mean(x, expand_padding(padding_mask, x)).unsqueeze(-2).expand_as(x)
        hidden = self.activation(self.hidden(torch.cat([x, mean, x * mean], dim=-1)))
        return self.logit(hidden).squeeze(-1)

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Subset, boolean ``(..., S)``, and its log-probability ``(...)``."""
        check_one_device(self, x=x, padding_mask=padding_mask)
        sample = self.training or self.evaluation == "sample"
        return functional.bernoulli_subset(
            self.logits(x, padding_mask), padding_mask, sample=sample, generator=self.generator
        )


class ReinforcedSubset(Select):
    """Keys drawn by a learned sampler, for any alignment (Shen et al. 2018, ReSA).

    Train it with :func:`.reinforce_loss` of ``log_prob``; the paper's reward subtracts a multiple of ``fraction``.

    Args:
        keys: sampler of keys.
        queries: sampler of queries as well, in self-attention; a query that is not drawn attends nothing.

    >>> attention = GeneralAttention(Dot(), select=ReinforcedSubset(SubsetSampler(8)))
    >>> attention(x := torch.randn(2, 5, 8), x, need_weights=True).selection.mask.shape
    torch.Size([2, 1, 5])
    """

    def __init__(self, keys: SubsetSampler, queries: SubsetSampler | None = None) -> None:
        super().__init__()
        self.keys = keys
        self.queries = queries

    def forward(self, query: Tensor, key: Tensor, padding_mask: Tensor | None = None) -> Selection:
        drawn, log_prob = self.keys(key, padding_mask)
        real = max(key.shape[-2], 1) if padding_mask is None else padding_mask.sum(-1).clamp_min(1)
        fraction = drawn.sum(-1) / real
        mask = drawn[..., None, :]
        if self.queries is not None:
            if query.shape[-2] != key.shape[-2]:
                raise ValueError(f"query: expected as many as keys, {key.shape[-2]}, got {query.shape[-2]}")
            drawn, more = self.queries(query, padding_mask)
            mask, log_prob, fraction = mask & drawn[..., :, None], log_prob + more, fraction * drawn.sum(-1) / real
        return Selection(mask, log_prob=log_prob, fraction=fraction)
