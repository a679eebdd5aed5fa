"""Interventions: what is put in the place of a mediator.

Each is a small immutable object. It does nothing by itself; see :func:`.applying.intervene`. All have a strength s:
what is put is ``x + s (new - x)``, so that strength 0 changes nothing and 1 changes everything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ..._layers.inputs import check_choice
from ...functional.checks import check_finite
from ..padding import real_pairs, real_receivers, real_senders
from .targets import AXES, Target

Replacement = Literal["zero", "mean", "resample"]


@dataclass(frozen=True)
class Situation:
    """Circumstances in which a mediator is changed.

    Attributes:
        mediator: of the target.
        examples: B. The tensor has as many, or one that all share.
        visible: pairs that may be attended, ``(B or 1, H or 1, N, M)``; None unless the intervention asks for them,
            and for rows of a library, which are of no place.
        crosses: whether receivers and senders are different objects, in the source if there is one.
        source: the same mediator in other inputs, if these were given; like the tensor, except for the number of
            examples.
        source_visible: visible pairs there, if they were kept.
    """

    mediator: str
    examples: int
    visible: Tensor | None = None
    crosses: bool = False
    source: Tensor | None = None
    source_visible: Tensor | None = None


@dataclass(frozen=True)
class Intervention(ABC):
    """Base of all interventions.

    Args:
        target: what is changed.
        strength: s.

    >>> isinstance(Scale(Target("head")), Intervention), Scale(Target("head"), 0.5).as_json()
    (True, {'kind': 'scale', 'target': {'mediator': 'head'}, 'factor': 0.5})
    """

    kind: ClassVar[str]
    needs_source: ClassVar[bool] = False
    """Whether it does nothing without maps of other inputs."""

    target: Target
    strength: float = field(default=1.0, kw_only=True)

    @property
    def uses_source(self) -> bool:
        """Whether it reads maps of other inputs, if there are any."""
        return self.needs_source

    @property
    def needs_visible(self) -> bool:
        """Whether it matters which pairs may be attended."""
        return False

    def __post_init__(self) -> None:
        if not isinstance(self.target, Target):
            raise TypeError(f"target: expected a Target, got {type(self.target).__name__}")
        check_finite(strength=self.strength)

    @abstractmethod
    def replacement(self, x: Tensor, about: Situation) -> Tensor:
        """The tensor that takes the place of ``x`` at strength 1, broadcastable to it."""

    def as_json(self) -> dict[str, Any]:
        """The intervention as JSON has it; fields that have their default are left out."""
        found: dict[str, Any] = {"kind": self.kind, "target": self.target.as_json()}
        for about in fields(self):
            value = getattr(self, about.name)
            if about.name != "target" and value != about.default:
                found[about.name] = _plain(value)
        return found


@dataclass(frozen=True)
class Ablate(Intervention):
    """Take a mediator's information away.

    Args:
        target: what is ablated.
        how: ``"zero"``; ``"mean"``: over examples and real places, or pairs, of the source if one is given (all of them
            if it did not keep ``visible``), otherwise of the call; for relative symbols over all rows of their library,
            read by visible pairs or not; and for a selection over the senders that each receiver may attend (uniform
            attention); or ``"resample"``: that of another example, of the source if one is given, otherwise of the
            batch.
        seed: chooses the other example, without any generator: example b gets example ``b + seed`` of the source, or
            ``b + 1 + seed`` of the batch, cyclically, but not itself.
        direction: only the component of this direction is ablated, which need not be a unit vector: of all R relations,
            or the features of a head or symbol. A random one is a control for relations.
        strength: s.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> with torch.no_grad(), intervene(lm, Ablate(Target("relation", layers=0), "mean")):
    ...     lm(torch.randint(50, (2, 9))).logits.shape
    torch.Size([2, 9, 50])
    """

    kind: ClassVar[str] = "ablate"

    how: Replacement = "zero"
    seed: int = 0
    direction: Sequence[float] | None = None

    @property
    def uses_source(self) -> bool:
        return self.how == "resample" or (self.how == "mean" and self.target.mediator != "selection")

    @property
    def needs_visible(self) -> bool:
        return self.how == "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("how", self.how, Replacement)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"seed: expected a number of 0 or more, got {self.seed!r}")
        if self.direction is not None:
            object.__setattr__(self, "direction", _vector("direction", self.direction))
            if self.target.mediator == "selection" or self.target.relations is not None:
                raise ValueError("direction: expected None for a selection, and for some relations only")

    def replacement(self, x: Tensor, about: Situation) -> Tensor:
        if self.how == "zero":
            new = torch.zeros_like(x)
        elif self.how == "mean":
            new = _mean(x, about)
        else:
            new = self._resampled(x, about)
        if self.direction is None:
            return new
        along = _unit(self.direction, x)
        return x + ((new - x) @ along)[..., None] * along

    def _resampled(self, x: Tensor, about: Situation) -> Tensor:
        batch = x.shape[0]
        if about.source is not None:
            others = (torch.arange(batch, device=x.device) + self.seed) % about.source.shape[0]
            return about.source.index_select(0, others)
        if about.examples == 1:
            raise ValueError("how: 'resample' takes another example, and the batch has one; give a source")
        return x if batch == 1 else x.roll(-(1 + self.seed % (batch - 1)), 0)  # shared symbols are the same elsewhere


@dataclass(frozen=True)
class Scale(Intervention):
    """Multiply a mediator.

    Args:
        target: what is scaled.
        factor: 1 changes nothing.
        strength: s.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> with torch.no_grad(), intervene(lm, Scale(Target("selection", layers=0), 0.5)):
    ...     lm(torch.randint(50, (2, 9))).logits.shape
    torch.Size([2, 9, 50])
    """

    kind: ClassVar[str] = "scale"

    factor: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_finite(factor=self.factor)

    def replacement(self, x: Tensor, about: Situation) -> Tensor:
        return self.factor * x


@dataclass(frozen=True)
class Patch(Intervention):
    """Put a mediator from other inputs, the source, which has as many examples or one.

    Args:
        target: what is patched; its pairs, receivers or senders say where.
        strength: s.

    >>> from dual_attention.model_analysis.capture import capture
    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> clean, other = torch.randint(50, (2, 9)), torch.randint(50, (2, 9))
    >>> with torch.no_grad(), capture(lm, layers=0) as source:
    ...     _ = lm(clean)
    >>> with torch.no_grad(), intervene(lm, Patch(Target("symbol", layers=0)), source=source):
    ...     lm(other).logits.shape
    torch.Size([2, 9, 50])
    """

    kind: ClassVar[str] = "patch"
    needs_source: ClassVar[bool] = True

    def replacement(self, x: Tensor, about: Situation) -> Tensor:
        assert about.source is not None
        if about.source.shape[0] not in (1, x.shape[0]):
            raise ValueError(f"source: expected {x.shape[0]} examples or one, got {about.source.shape[0]}")
        return about.source


@dataclass(frozen=True)
class Steer(Intervention):
    """Add to relations, or to the features of heads or symbols.

    Args:
        target: what is steered; not a selection, whose weights sum to one.
        amount: added to each relation; or the length of the vector that is added.
        direction: of the added vector (head width, or R); required unless relations are steered.
        strength: s.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> with torch.no_grad(), intervene(lm, Steer(Target("relation", relations=0, pairs=[(5, 2)]), 2.0)):
    ...     lm(torch.randint(50, (2, 9))).logits.shape
    torch.Size([2, 9, 50])
    """

    kind: ClassVar[str] = "steer"

    amount: float = 0.0
    direction: Sequence[float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_finite(amount=self.amount)
        if self.target.mediator == "selection":
            raise ValueError("target: expected no selection, whose weights sum to one; Scale or Patch change it")
        if self.direction is not None:
            object.__setattr__(self, "direction", _vector("direction", self.direction))
        elif self.target.mediator != "relation":
            raise ValueError(f"direction: expected a vector to steer a {self.target.mediator} by, got None")

    def replacement(self, x: Tensor, about: Situation) -> Tensor:
        if self.direction is None:
            return x + self.amount
        return x + self.amount * _unit(self.direction, x)


KINDS: dict[str, Any] = {kind.kind: kind for kind in (Ablate, Scale, Patch, Steer)}
"""The interventions by the name that files have for them."""


def _plain(value: Any) -> Any:
    """A field as JSON has it, numbers of numpy included."""
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, str | int) else float(value)


def _vector(name: str, given: Any) -> tuple[float, ...]:
    vector = tuple(given.tolist() if isinstance(given, Tensor) else given)
    for number in vector:
        check_finite(**{name: number})
    if not any(vector):
        raise ValueError(f"{name}: expected a vector other than zero, got {vector}")
    return tuple(float(number) for number in vector)


def _unit(direction: Sequence[float], x: Tensor) -> Tensor:
    """The vector of length 1, like those of ``x``, along a direction of any length."""
    if len(direction) != x.shape[-1]:
        raise ValueError(f"direction: expected {x.shape[-1]} numbers, got {len(direction)}")
    along = torch.tensor(direction, dtype=torch.float64)
    along = along / along.abs().max()  # the squares of others may be too small or too large
    return (along / along.norm()).to(x)


def _mean(x: Tensor, about: Situation) -> Tensor:
    """Mean over examples and real places or pairs; of a selection over the senders of each receiver."""
    if about.mediator == "selection" and about.visible is not None:
        allowed = about.visible.to(x.dtype)
        return allowed * x.sum(-1, keepdim=True) / allowed.sum(-1, keepdim=True).clamp_min(1)
    values, visible = (x, about.visible) if about.source is None else (about.source, about.source_visible)
    axes = AXES[about.mediator]
    over = [axes.index(axis) for axis in ("example", "receiver", "sender") if axis in axes]
    if visible is None:
        return values.mean(over, keepdim=True)
    real, wide = _real(about, values, visible).expand(values.shape), torch.promote_types(x.dtype, torch.float32)
    total = (values * real).sum(over, keepdim=True, dtype=wide)  # more pairs than float16 can count
    return (total / real.sum(over, keepdim=True).clamp_min(1)).to(x.dtype)


def _real(about: Situation, values: Tensor, visible: Tensor) -> Tensor:
    """Entries of a mediator's tensor that belong to real places, or to visible pairs; broadcastable to it."""
    if about.mediator == "relation":
        return real_pairs(visible, about.crosses)[..., None]
    real = real_receivers(visible, about.crosses) if about.mediator == "head" else real_senders(visible)
    if real.shape[0] != values.shape[0] == 1:  # symbols that all examples share
        real = real.any(0, keepdim=True)
    return real[:, None, :, None]
