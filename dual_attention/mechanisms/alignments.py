"""Alignments as modules over :mod:`dual_attention.functional.alignments`, which know whether they are training."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import functional
from .._layers.calls import TypedModule
from .._layers.inputs import check_boolean, check_choice, check_positive
from ..functional import Alignment
from ..functional.activations import Activation, activation_function, activation_name
from ..functional.alignments.common import finish, prepare, require_rate
from ..functional.alignments.hard import Estimator
from ..functional.checks import is_number
from ..functional.reference import without_hidden
from ._parameters import zeros
from ._score import check_made


class Align(TypedModule, ABC):
    """Map from scores to weights, zero where masked. Subclasses implement ``forward(scores, mask, *, bias, dim)``.

    One of your own may be simpler, ``forward(scores, mask) -> weights``, see :meth:`align`.

    Args:
        temperature: positive; divides the scores.

    Attributes:
        whole: whether weights of a query depend on scores of others, so that all queries are aligned at once.
        heads: number of heads with parameters of their own; None for parameters that all share.

    >>> isinstance(Softmax(), Align), Softmax()(torch.zeros(1, 2)).weights
    (True, tensor([[0.5000, 0.5000]]))
    """

    whole: bool = False
    heads: int | None = None
    _takes_bias = True  # default for those pickled before this attribute existed

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        require_rate("temperature", temperature)
        self.temperature = temperature
        self._takes_bias = "bias" in inspect.signature(self.forward).parameters

    @abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Align ``scores`` over the axis ``dim`` of the keys; ``mask`` and ``bias`` broadcast to them."""

    def align(
        self, scores: Tensor, mask: Tensor | None = None, *, bias: Tensor | None = None, dim: int = -1
    ) -> Alignment:
        """As ``forward``, which here may also give weights alone, or be ``forward(scores, mask) -> weights``.

        The latter has the keys on the last axis, biases in its scores, and a boolean mask as large as these, with a key
        to see in each row. Hidden keys then get no weight, nor do rows that see nothing.
        """
        if self._takes_bias:
            found = self(scores, mask, bias=bias, dim=dim)
            return found if isinstance(found, Alignment) else Alignment(found)
        shown = without_hidden(mask, bias)
        shown = torch.ones_like(scores, dtype=torch.bool) if shown is None else shown.expand(scores.shape)
        scores, shown = (scores if bias is None else scores + bias).movedim(dim, -1), shown.movedim(dim, -1)
        found = self(scores, shown | ~shown.any(-1, keepdim=True))
        weights = found.weights if isinstance(found, Alignment) else found
        check_made("align", self, weights, "the shape of the scores", tuple(scores.shape))
        return Alignment(weights.masked_fill(~shown, 0.0).movedim(-1, dim))

    def extra_repr(self) -> str:
        return "" if self.temperature == 1.0 else f"temperature={self.temperature}"


class _Functional(Align):
    """One by a function of :mod:`dual_attention.functional`, which takes ``_options`` besides the temperature."""

    _function: ClassVar[Callable[..., Any]]

    def _options(self, dim: int) -> dict[str, Any]:
        return {}

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, *, bias: Tensor | None = None, dim: int = -1
    ) -> Alignment:
        own = {"temperature": self.temperature, **self._options(dim)}
        found = self._function(scores, mask, bias=bias, dim=dim, **own)
        return found if isinstance(found, Alignment) else Alignment(found)


class Softmax(_Functional):
    """Soft (global) alignment, see :func:`.masked_softmax`.

    >>> Softmax(temperature=0.5)(torch.zeros(1, 2), torch.tensor([[True, False]])).weights
    tensor([[1., 0.]])
    """

    _function = staticmethod(functional.masked_softmax)


class Uniform(Align):
    """The same weight for every visible key, an ablation of alignment, see :func:`.uniform_alignment`.

    >>> Uniform()(torch.randn(1, 4), torch.tensor([[True, True, False, False]])).weights
    tensor([[0.5000, 0.5000, 0.0000, 0.0000]])
    """

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, *, bias: Tensor | None = None, dim: int = -1
    ) -> Alignment:
        if bias is not None:
            scores = scores.masked_fill(bias == -torch.inf, -torch.inf)
        return Alignment(functional.uniform_alignment(scores, mask, dim=dim))


class Sparsemax(_Functional):
    """Projection on the simplex, see :func:`.sparsemax`.

    >>> Sparsemax()(torch.tensor([[2.0, 1.5, -1.0]])).weights
    tensor([[0.7500, 0.2500, 0.0000]])
    """

    _function = staticmethod(functional.sparsemax)


class Entmax(_Functional):
    """alpha-entmax, see :func:`.entmax`.

    Args:
        alpha: at least 1; if it is learned, its first value, strictly between 1 and 2.
        learned: learn alpha within (1, 2), as in Correia et al. 2019 (arXiv 1909.00015).
        heads: with ``learned``, number of heads with an alpha of their own; scores are then ``(B, heads, L, S)``.
        temperature: positive; divides the scores.

    >>> Entmax(alpha=1.5)(torch.tensor([[2.0, 1.0, -1.0]])).weights
    tensor([[0.8307, 0.1693, 0.0000]])
    """

    _function = staticmethod(functional.entmax)

    def __init__(
        self, alpha: float = 1.5, *, learned: bool = False, heads: int | None = None, temperature: float = 1.0
    ) -> None:
        check_boolean(learned=learned)
        super().__init__(temperature)
        if not is_number(alpha):
            raise TypeError(f"alpha: expected a number, got {alpha!r}")
        if not alpha >= 1 or (learned and not 1 < alpha < 2):
            wanted = "strictly between 1 and 2, to be learned" if learned else "at least 1"
            raise ValueError(f"alpha: expected {wanted}, got {alpha}")
        check_positive(heads=1 if heads is None else heads)
        self.alpha, self.heads = alpha, heads if learned else None
        self.raw_alpha = None
        if learned:
            raw = torch.logit(torch.tensor(float(alpha) - 1.0))
            self.raw_alpha = nn.Parameter(raw.clone() if heads is None else raw.repeat(heads, 1, 1))

    def _options(self, dim: int) -> dict[str, Any]:
        if self.raw_alpha is None:
            return {"alpha": self.alpha}
        raw = self.raw_alpha.to(torch.promote_types(self.raw_alpha.dtype, torch.float32))
        # Above 1, to which rounding may take it.
        alpha = (1 + torch.sigmoid(raw)).clamp_min(1 + torch.finfo(raw.dtype).eps)
        return {"alpha": alpha.unsqueeze(-1) if alpha.dim() and dim == -2 else alpha}  # features have one more axis

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}, learned={self.raw_alpha is not None}"


class Hard(_Functional):
    """Attention to one key, see :func:`.hard_alignment`.

    Args:
        estimator: how the key is chosen while training, and how the choice is learned.
        evaluation: ``"argmax"`` is deterministic, ``"sample"`` draws, ``"expected"`` is the soft alignment.
        tau: relaxation temperature of the Gumbel estimators.
        temperature: positive; divides the scores.
        generator: source of the draws.

    >>> Hard().eval()(torch.tensor([[1.0, 9.0, 2.0]])).weights
    tensor([[0., 1., 0.]])
    """

    _function = staticmethod(functional.hard_alignment)

    def __init__(
        self,
        estimator: Estimator = "reinforce",
        *,
        evaluation: Literal["argmax", "sample", "expected"] = "argmax",
        tau: float = 1.0,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(temperature)
        check_choice("estimator", estimator, Estimator)
        check_choice("evaluation", evaluation, ("argmax", "sample", "expected"))
        require_rate("tau", tau)
        self.estimator: Estimator = estimator
        self.evaluation: Estimator = "reinforce" if evaluation == "sample" else evaluation
        self.tau = tau
        self.generator = generator

    def _options(self, dim: int) -> dict[str, Any]:
        estimator = self.estimator if self.training else self.evaluation
        return {"estimator": estimator, "tau": self.tau, "generator": self.generator}

    def extra_repr(self) -> str:
        return f"estimator={self.estimator!r}, evaluation={self.evaluation!r}"


class Sigmoid(_Functional):
    """Sigmoid attention, see :func:`.sigmoid_alignment`.

    Args:
        shift: added to the scores; by default -log of the number of visible keys.
        temperature: positive; divides the scores.

    >>> Sigmoid(shift=0.0)(torch.tensor([[0.0, 0.0]])).weights
    tensor([[0.5000, 0.5000]])
    """

    _function = staticmethod(functional.sigmoid_alignment)

    def __init__(self, *, shift: float | None = None, temperature: float = 1.0) -> None:
        super().__init__(temperature)
        self.shift = shift

    def _options(self, dim: int) -> dict[str, Any]:
        return {"shift": self.shift}

    def extra_repr(self) -> str:
        return f"shift={'-log n' if self.shift is None else self.shift}"


class StickBreaking(_Functional):
    """Shares of what later keys leave, see :func:`.stick_breaking`; the order of the keys matters.

    >>> StickBreaking()(torch.zeros(3, 3)).weights
    tensor([[0.1250, 0.2500, 0.5000],
            [0.1250, 0.2500, 0.5000],
            [0.1250, 0.2500, 0.5000]])
    """

    _function = staticmethod(functional.stick_breaking)


class MultiToken(Align):
    """Softmax of scores that a convolution mixes over neighbouring queries and keys, then of heads in groups.

    Math: a^h = softmax(sum_{i', j'} theta^h_{i'j'} e^h_{l-i', s-j'}),  A^h = sum_g w_gh a^g over the heads of a group,
    where hidden scores count as zero before the convolution, 0 <= i' < query_kernel, |j'| <= key_kernel / 2
    (Golovneva et al. 2025, arXiv 2504.00927, section 3)

    Only earlier queries mix in, so a causal query sees nothing later. It starts as softmax. Scores are of heads,
    ``(B, H, L, S)``, and built whole. Queries that are padding must follow the real ones, and packed sequences would
    mix at their borders. The paper's norm of the heads, that of :class:`.DifferentialAttention`, is left out.

    Args:
        heads: H.
        query_kernel: number of queries that a filter spans, the current one last.
        key_kernel: number of keys that a filter spans, odd.
        group: number of heads that are mixed, a divisor of H; 1 mixes none.
        temperature: positive; divides the scores.

    >>> MultiToken(heads=4, query_kernel=2, key_kernel=3, group=2)(torch.randn(2, 4, 9, 9)).weights.shape
    torch.Size([2, 4, 9, 9])
    """

    whole = True

    def __init__(
        self, heads: int, *, query_kernel: int = 6, key_kernel: int = 11, group: int = 1, temperature: float = 1.0
    ) -> None:
        super().__init__(temperature)
        check_positive(heads=heads, query_kernel=query_kernel, key_kernel=key_kernel, group=group)
        if key_kernel % 2 == 0:
            raise ValueError(f"key_kernel: expected an odd number, with a middle, got {key_kernel}")
        if heads % group:
            raise ValueError(f"group: expected a divisor of heads={heads}, got {group}")
        self.heads = heads
        self.kernel = zeros(heads, query_kernel, key_kernel)
        nn.init.ones_(self.kernel.data[:, -1, key_kernel // 2])
        self.mix = nn.Parameter(torch.eye(group).repeat(heads // group, 1, 1)) if group > 1 else None

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, *, bias: Tensor | None = None, dim: int = -1
    ) -> Alignment:
        heads, queries, keys = self.kernel.shape
        if dim != -1 or scores.dim() != 4 or scores.shape[1] != heads:
            raise ValueError(f"scores: expected one number for each pair (B, {heads}, L, S), got {tuple(scores.shape)}")
        mixed, allowed = prepare(scores, mask, bias=bias, temperature=self.temperature)
        if mixed.numel():
            padded = F.pad(mixed.masked_fill(~allowed, 0.0), (keys // 2, keys // 2, queries - 1, 0))
            mixed = F.conv2d(padded, self.kernel.to(padded.dtype).unsqueeze(1), groups=heads)
        weights = functional.masked_softmax(mixed, allowed)
        if self.mix is not None:
            of_groups = weights.unflatten(1, self.mix.shape[:2])
            weights = torch.einsum("bnglk,ngh->bnhlk", of_groups, self.mix.to(weights.dtype)).flatten(1, 2)
        return Alignment(finish(weights, allowed, scores.dtype))

    def extra_repr(self) -> str:
        heads, queries, keys = self.kernel.shape
        return f"heads={heads}, query_kernel={queries}, key_kernel={keys}"


class Elementwise(Align):
    """Scores under an elementwise activation, see :func:`.masked_activation`.

    Args:
        activation: an elementwise function, or its name in :data:`dual_attention.functional.ACTIVATIONS`.
        temperature: positive; divides the scores.

    >>> Elementwise("relu")(torch.tensor([[-1.0, 2.0]])).weights
    tensor([[0., 2.]])
    """

    def __init__(self, activation: str | Activation, *, temperature: float = 1.0) -> None:
        super().__init__(temperature)
        if activation == "softmax":
            raise ValueError("activation: softmax is no elementwise function; it is the alignment Softmax")
        self.activation = activation_function(activation)
        self.name = activation_name(activation)

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, *, bias: Tensor | None = None, dim: int = -1
    ) -> Alignment:
        weights = functional.masked_activation(scores, mask, self.activation, bias=bias, temperature=self.temperature)
        return Alignment(weights)

    def extra_repr(self) -> str:
        return self.name
