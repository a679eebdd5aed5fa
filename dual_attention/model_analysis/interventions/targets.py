"""Targets: which mediator of a model an intervention changes, and where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import reduce
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..._layers.inputs import check_choice
from ..maps import AXES_OF, Quantity
from ..sites import ChosenSite, HeadChoice, LayerChoice, RelationChoice, choose_sites

Mediator = Literal["head", "relation", "symbol", "selection", "value"]

TAPS: dict[str, Quantity] = {
    "head": "head_output",
    "relation": "relations",
    "symbol": "symbol_values",
    "selection": "weights",
    "value": "values",
}
"""The tap that each mediator passes through; taps are named as the quantities of a capture."""

AXES = {mediator: AXES_OF[tap] for mediator, tap in TAPS.items()}
_HAS_NO = {
    "head": (("relations", "senders", "pairs"), "the output of a head belongs to a receiver"),
    "relation": (("heads",), "the heads of a layer share relations"),
    "symbol": (("relations", "receivers"), "a symbol names a sender; to change what some receivers read, give pairs"),
    "selection": (("relations",), "attention weights belong to heads"),
    "value": (("relations", "receivers", "pairs"), "a value belongs to a sender, and all receivers read it"),
}
"""Choices that a mediator does not have, and why."""
_KIND = {"relation": "relational", "symbol": "relational", "value": "sensory"}
"""Kind of the heads that have a mediator, if it is one kind only."""


@dataclass(frozen=True)
class Target:
    """A mediator of the attention of some layers, and the part of it that is meant.

    What a relational head does has three mediators, which interventions keep apart: the selection chooses senders,
    relations compare them with the receiver, symbols name them. A sensory head has two: the selection, and values.

    Args:
        mediator: ``"head"``: the output of heads before the output projection; ``"relation"``: relations r_ij;
            ``"symbol"``: symbols as projected for a head, ``W_s^h s_j``; ``"selection"``: attention weights;
            ``"value"``: what sensory heads read of senders, ``W_v^h y_j``.
        layers, heads, relations: as in :func:`~dual_attention.model_analysis.capture.capture`. Heads mean those of the
            kind that has the mediator, if it is one kind only. Layers without it are left out.
        receivers, senders: places in the sequence, counted from 0; by default all. Of heads only receivers can be
            chosen, of symbols and values only senders.
        pairs: places (receiver, sender), instead of receivers and senders. Of symbols: those which these receivers read
            of these senders; with shared symbols only, and without dropout of attention weights.

    >>> Target("relation", layers=0, relations=3, pairs=[(11, 4)])
    Target(mediator='relation', layers=0, heads=None, relations=3, receivers=None, senders=None, pairs=((11, 4),))
    """

    mediator: Mediator
    layers: LayerChoice = None
    heads: HeadChoice = None
    relations: RelationChoice = None
    receivers: Sequence[int] | None = None
    senders: Sequence[int] | None = None
    pairs: Sequence[tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        check_choice("mediator", self.mediator, Mediator)
        for name in ("layers", "heads", "relations"):
            object.__setattr__(self, name, _frozen(getattr(self, name)))
        for name in ("receivers", "senders"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _places(name, getattr(self, name)))
        if self.pairs is not None:
            object.__setattr__(self, "pairs", _pairs(self.pairs))
            if self.receivers is not None or self.senders is not None:
                raise ValueError("pairs: expected either pairs, or receivers and senders; got both")
        others, why = _HAS_NO[self.mediator]
        for name in others:
            if getattr(self, name) is not None:
                raise ValueError(f"{name}: expected None for {self.mediator!r}, since {why}")

    def locate(self, model: nn.Module) -> list[ChosenSite]:
        """The sites of a model that have this mediator, one at least, with the chosen heads and relations."""
        heads: Any = self.heads
        kind = _KIND.get(self.mediator)
        if not any(site.site.tap(TAPS[self.mediator]) for site in choose_sites(model, self.layers)):
            which = "heads" if kind is None else f"{kind} heads"
            raise ValueError(f"target: expected layers with {which} that have a {self.mediator}, got none")
        if kind is not None:
            heads = heads if isinstance(heads, Mapping | str) else {kind: heads}
        chosen = choose_sites(model, self.layers, heads, self.relations)
        found = [choice for choice in chosen if choice.site.tap(TAPS[self.mediator]) is not None]
        if not found:
            raise ValueError(f"heads: expected some that have a {self.mediator}, got {self.heads!r}")
        return found

    def as_json(self) -> dict[str, Any]:
        """The fields that are not None, as JSON has them."""
        given = {about.name: getattr(self, about.name) for about in fields(self)}
        return {name: _thawed(value) for name, value in given.items() if value is not None}


@dataclass
class Region:
    """The part of a mediator's tensor, in one site, that a target means.

    Attributes:
        target: the target.
        choice: the site with its heads and relations.
        seen: places of the target that some call had.
        called: whether there was a call.
    """

    target: Target
    choice: ChosenSite
    seen: set[Any] = field(default_factory=set)
    called: bool = False

    @property
    def numbers(self) -> tuple[int, tuple[int, ...], int]:
        """Axis of heads or relations in the tensor, those chosen, and how many there are."""
        site = self.choice.site
        if self.target.mediator == "relation":
            return 3, self.choice.relations, site.n_relations
        return 1, self.choice.heads, site.n_heads

    def of(self, x: Tensor) -> Tensor | None:
        """Entries of a tensor of the mediator that are meant, boolean, broadcastable to it; None if all are."""
        self.called = True
        axes = AXES[self.target.mediator]
        parts = []
        axis, numbers, n = self.numbers
        if len(numbers) < n:
            parts.append(_indicator(numbers, n, x, axis))
        taps = self.choice.site.module.taps
        for name, first in (("receivers", taps.first_receiver), ("senders", taps.first_sender)):
            places = getattr(self.target, name)
            if places is not None:
                axis = axes.index(name.removesuffix("s"))
                parts.append(_indicator(self._here(places, first, x.shape[axis]), x.shape[axis], x, axis))
        if self.target.pairs is not None and self.target.mediator != "symbol":
            pairs = self.pairs(x.shape[axes.index("receiver")], x.shape[axes.index("sender")], x.device)
            parts.append(pairs[None, ..., None] if self.target.mediator == "relation" else pairs[None, None])
        return reduce(torch.logical_and, parts) if parts else None

    def pairs(self, n: int, m: int, device: torch.device) -> Tensor:
        """The target's pairs among N receivers and M senders, boolean ``(N, M)``."""
        self.called = True
        taps = self.choice.site.module.taps
        chosen = torch.zeros(n, m, dtype=torch.bool)
        for receiver, sender in self.target.pairs or ():
            i, j = receiver - taps.first_receiver, sender - taps.first_sender
            if 0 <= i < n and 0 <= j < m:
                self.seen.add((receiver, sender))
                chosen[i, j] = True
        return chosen.to(device)

    def _here(self, places: Sequence[int], first: int, length: int) -> list[int]:
        """Those of the places that this call has, counted from its first."""
        here = [place for place in places if 0 <= place - first < length]
        self.seen.update(here)
        return [place - first for place in here]

    def missed(self) -> list[Any]:
        """Places of the target that no call had."""
        target = self.target
        wanted = [*(target.receivers or ()), *(target.senders or ()), *(target.pairs or ())]
        return [place for place in wanted if place not in self.seen]


def _indicator(numbers: Iterable[int], length: int, x: Tensor, axis: int) -> Tensor:
    chosen = torch.zeros(length, dtype=torch.bool)
    chosen[list(numbers)] = True
    shape = [1] * x.dim()
    shape[axis] = length
    return chosen.view(shape).to(x.device)


def _frozen(value: Any) -> Any:
    """A choice of layers, heads or relations with tuples for its lists, so that equal choices are equal."""
    if isinstance(value, Mapping):
        return {key: _frozen(inner) for key, inner in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return tuple(value)
    return value


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _thawed(inner) for key, inner in value.items()}
    return [_thawed(inner) for inner in value] if isinstance(value, tuple) else value


def _places(name: str, given: Any) -> tuple[int, ...]:
    listed = [given] if isinstance(given, int) else given
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise TypeError(f"{name}: expected places, counted from 0, got {given!r}")
    places = tuple(listed)
    for place in places:
        if isinstance(place, bool) or not isinstance(place, int):
            raise TypeError(f"{name}: expected places, counted from 0, got {place!r}")
        if place < 0:
            raise ValueError(f"{name}: expected places, counted from 0, got {place}")
    if not places:
        raise ValueError(f"{name}: expected at least one place, got none")
    return places


def _pairs(given: Any) -> tuple[tuple[int, int], ...]:
    pairs = tuple(_places("pairs", pair) for pair in given)
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"pairs: expected pairs (receiver, sender), got {given!r}")
    return tuple((receiver, sender) for receiver, sender in pairs)
