"""The control of an intervention: the same change, turned into a random direction.

Whatever is taken from a model makes it worse at what it does. What an intervention says about its target shows beside
a change that is as large at every place, and as alike between places, but of nothing in particular.

Shapes: H heads, d width of what is changed: the features of a head or a symbol, or the R relations of a layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from .kinds import Intervention, Situation
from .targets import Target


def random_rotations(count: int, width: int, seed: int) -> Tensor:
    """Orthogonal matrices from the uniform distribution, ``(count, width, width)``, float64.

    Source: Mezzadri 2007, "How to generate random matrices from the classical compact groups" (math-ph/0609050).
    """
    generator = torch.Generator().manual_seed(seed)
    q, r = torch.linalg.qr(torch.randn(count, width, width, generator=generator, dtype=torch.float64))
    return q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None]


@dataclass(frozen=True)
class Rotated(Intervention):
    """Another intervention whose change of each vector is turned by a random rotation, one for each head.

    Math: x_i + Q (new_i - x_i), Q orthogonal

    Lengths of changes, and angles between those at different places, are the same. A vector of one number has no other
    direction than its own and the opposite one. Of relations, the vector is that of all R at a pair, so that a change
    of some of them becomes one of all.

    Args:
        change: an ablation of anything except a selection, a scaling or a steering.
        seed: of the rotations, which layers that the change has in common share.

    >>> Rotated(Ablate(Target("relation")), seed=1).target.mediator
    'relation'
    """

    kind: ClassVar[str] = "rotated"

    target: Target = field(init=False)
    strength: float = field(init=False)
    change: Intervention
    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.change, Intervention):
            raise TypeError(f"change: expected an intervention, got {type(self.change).__name__}")
        if self.change.needs_source or self.change.target.mediator == "selection":
            raise ValueError("change: expected an ablation, scaling or steering of heads, relations, symbols or values")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 1 << 63:
            raise ValueError(f"seed: expected a number from 0 to 2**63 - 1, got {self.seed!r}")
        target = self.change.target
        object.__setattr__(self, "target", replace(target, relations=None) if target.relations is not None else target)
        object.__setattr__(self, "strength", self.change.strength)

    @property
    def uses_source(self) -> bool:
        return self.change.uses_source

    @property
    def needs_visible(self) -> bool:
        return self.change.needs_visible

    def replacement(self, x: Tensor, about: Situation) -> Tensor:
        change = (self.change.replacement(x, about) - x).expand_as(x)
        relations = self.change.target.relations
        if relations is not None:
            chosen = torch.zeros(x.shape[-1], dtype=torch.bool)
            chosen[[relations] if isinstance(relations, int) else list(relations)] = True
            change = change.where(chosen.to(x.device), 0.0)
        count = 1 if about.mediator == "relation" else x.shape[1]
        turn = random_rotations(count, x.shape[-1], self.seed).to(x)
        return x + change @ turn.transpose(-2, -1)

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "change": self.change.as_json(), "seed": self.seed}
