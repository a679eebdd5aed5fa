"""Effects of changing relations at chosen pairs of words, and everywhere.

What is put there comes from a passage of another document at the same places, so distances are the same. Every passage
of a batch has pairs of its own, which is why these interventions are not those of a :class:`..interventions.Target`.

Shapes: B passages, N tokens that are read, H relational heads and R relations of a layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from dual_attention.generation import evaluating
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.interventions import Intervention, Target, intervene, predict_next_tokens
from dual_attention.model_analysis.interventions.kinds import Situation
from dual_attention.model_analysis.interventions.predictions import change_of
from dual_attention.model_analysis.sites import Site, choose_sites

from .passages import Passages

BATCH = 16
"""Passages of a forward pass."""

Change = Callable[[Tensor, Tensor], Tensor]
"""What is added to a mediator of some passages: a function of their numbers, and of it as the model computes it."""


@dataclass(frozen=True, eq=False)
class ChangeAtPairs(Intervention):
    """Add something to a mediator at pairs that every example has of its own.

    Args:
        target: relations or the selection of one layer.
        pairs: boolean ``(B, N, N)``.
        change: of the mediator as it is, ``(B, N, N, R)`` or ``(B, H, N, N)``, what is added.
    """

    kind: ClassVar[str] = "change at pairs"

    pairs: Tensor
    change: Callable[[Tensor], Tensor]

    def replacement(self, x: Tensor, about: Situation) -> Tensor:
        pairs = self.pairs[:, None] if about.mediator == "selection" else self.pairs[..., None]
        return torch.where(pairs, x + self.change(x), x)


@dataclass(frozen=True)
class Mediators:
    """Relations and selections of a model in all passages.

    Attributes:
        sites: relational heads of each layer that has relations.
        relations: of each such layer, ``(B, N, N, R)``.
        weights: of its heads, ``(B, H, N, N)``.
        partners: the passage that each is resampled from, int64 ``(B,)``.
        moments: E[d dᵀ] of what resampling changes in a visible pair, d, in each layer, ``(R, R)`` float64.
    """

    sites: Sequence[Site]
    relations: Sequence[Tensor]
    weights: Sequence[Tensor]
    partners: Tensor
    moments: Sequence[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        found = []
        for values in self.relations:
            visible = torch.ones(values.shape[1:3], dtype=torch.bool).tril()
            total = torch.zeros(values.shape[3], values.shape[3], dtype=torch.float64)
            for own, other in zip(values, values[self.partners], strict=True):
                apart = (other - own)[visible].double()
                total += apart.T @ apart / len(apart)
            found.append(total / len(values))
        object.__setattr__(self, "moments", found)

    def resampled(self, layer: int) -> Change:
        """All relations of a layer, from the partners."""
        return lambda rows, x: self.relations[layer][self.partners[rows]] - x

    def selection(self, layer: int) -> Change:
        """The attention weights of a layer's relational heads, from the partners."""
        return lambda rows, x: self.weights[layer][self.partners[rows]] - x

    def along(self, layer: int, direction: Tensor, scale: float = 1.0) -> Change:
        """The component of resampling in a direction ``(R,)`` of the relations, made longer or shorter."""
        unit = direction / direction.norm()
        whole = self.resampled(layer)
        return lambda rows, x: scale * (whole(rows, x) @ unit.to(x))[..., None] * unit.to(x)

    def size(self, layer: int, direction: Tensor) -> float:
        """Root mean square of what resampling changes along a direction."""
        unit = (direction / direction.norm()).double()
        return math.sqrt(float(unit @ self.moments[layer] @ unit))

    def noise(self, layer: int, *, seed: int = 0) -> Change:
        """Normal numbers with the second moments of what resampling changes, the same ones for a passage each time."""
        values, vectors = torch.linalg.eigh(self.moments[layer])
        factor = vectors * values.clamp_min(0).sqrt()

        def added(rows: Tensor, x: Tensor) -> Tensor:
            drawn = []
            for row in rows.tolist():
                generator = torch.Generator().manual_seed((seed * len(self.sites) + layer) * 1_000_003 + row)
                drawn.append(torch.randn(x.shape[1:], generator=generator))
            return torch.stack(drawn).to(x) @ factor.T.to(x)

        return added


def random_directions(n_relations: int, count: int, layer: int) -> list[Tensor]:
    """Directions of a layer's relations, ``(R,)`` each, drawn from a seed."""
    generator = torch.Generator().manual_seed(layer)
    return list(torch.randn(count, n_relations, generator=generator))


def capture_mediators(model: nn.Module, passages: Passages) -> Mediators:
    """Relations and selections of all passages; ``ValueError`` for a model without relations."""
    sites = [choice.site for choice in choose_sites(model) if choice.site.n_relations]
    if not sites:
        raise ValueError("model: expected one with relations, got none")
    layers = [site.layer for site in sites]
    found: dict[str, list[list[Tensor]]] = {"relations": [[] for _ in sites], "weights": [[] for _ in sites]}
    with evaluating(model), torch.no_grad():
        for tokens in passages.tokens.split(BATCH):
            with capture(model, ["relations", "weights"], layers=layers, heads="relational") as maps:
                model(tokens[:, :-1])
            for place, layer in enumerate(layers):
                record = maps[layer].relational
                assert record is not None
                for name, parts in found.items():
                    parts[place].append(record.get(name))
    relations, weights = ([torch.cat(parts) for parts in found[name]] for name in ("relations", "weights"))
    return Mediators(sites, relations, weights, passages.partners)


@dataclass(frozen=True)
class Totals:
    """Effects of an intervention on passages, summed over their tokens; zero for passages without pairs.

    Attributes:
        kl: divergence from the predictions without it, ``(B,)`` float64, nats.
        loss: change of the cross-entropy, ``(B,)`` float64, nats.
    """

    kl: Tensor
    loss: Tensor


Changes = Mapping[str, Sequence[tuple[Target, Change]]]
"""Interventions by name: what is added to which targets."""


def total_effects(model: nn.Module, passages: Passages, pairs: Tensor, changes: Changes) -> dict[str, Totals]:
    """Effects of changes at pairs, ``(B, N, N)`` boolean, on the predictions of passages."""
    size = len(passages.tokens)
    found = {name: Totals(*(torch.zeros(size, dtype=torch.float64) for _ in range(2))) for name in changes}
    rows = pairs.flatten(1).any(1).nonzero().flatten()
    with evaluating(model), torch.no_grad():
        for part in rows.split(BATCH) if len(rows) else ():
            tokens = passages.tokens[part]
            before = predict_next_tokens(model, tokens)
            for name, given in changes.items():
                interventions = [_at(target, pairs[part], change, part) for target, change in given]
                with intervene(model, interventions):
                    after = predict_next_tokens(model, tokens)
                for metric in ("kl", "loss"):
                    per_token = change_of(metric, before, after).double()
                    getattr(found[name], metric)[part] = per_token * before.targets.shape[1]
    return found


def _at(target: Target, pairs: Tensor, change: Change, rows: Tensor) -> ChangeAtPairs:
    return ChangeAtPairs(target, pairs, lambda x: change(rows, x))
