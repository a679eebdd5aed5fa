"""Edits: an intervention on one site, as a function of the tensor that passes a tap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from ..maps import CallMaps, HeadMaps, Maps
from ..sites import ChosenSite, Site, find_sites
from .kinds import Ablate, Intervention, Situation
from .targets import TAPS, Region


@dataclass
class Edit:
    """A change of what passes one tap of one site.

    Attributes:
        intervention: what is done.
        region: where.
        places: the site whose visible pairs tell which places are real.
        source: maps of the same heads in other inputs, if these were given.
        seen: tensors of other taps in the present call, by name, as they came out of interventions.
    """

    intervention: Intervention
    region: Region
    places: Site
    source: HeadMaps | None = None
    seen: dict[str, Tensor] = field(default_factory=dict)

    @property
    def choice(self) -> ChosenSite:
        """The site with its heads and relations."""
        return self.region.choice

    @property
    def mediator(self) -> str:
        """The mediator of the target."""
        return self.intervention.target.mediator

    @property
    def of_pairs(self) -> bool:
        """Whether symbols are changed for some pairs only, which shows in what heads receive of them."""
        return self.mediator == "symbol" and self.intervention.target.pairs is not None

    @property
    def of_library(self) -> bool:
        """Whether symbols belong to pairs, as rows of a library."""
        return self.mediator == "symbol" and self.choice.site.has_relative_symbols

    @property
    def tap(self) -> str:
        """Name of the tap."""
        return "symbol_message" if self.of_pairs else TAPS[self.mediator]

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of other taps whose tensors are needed; they come earlier in a call."""
        needs = self.intervention.needs_visible and not self.of_library
        found = ["visible"] if needs and self.choice.site.tap("visible") else []
        if self.mediator == "symbol":
            found.append("weights")
        if self.of_pairs:
            found.append("symbol_values")
            if self.choice.site.tap("relational_message") is None and self.choice.site.tap("relations") is not None:
                found.append("relations")  # disentangled RCA, whose relations are factors of the weights
        return tuple(found)

    def __call__(self, x: Tensor) -> Tensor:
        """The tensor with the intervention; itself at strength 0."""
        if self.of_pairs:
            return self._with_pairs(x)
        region = self.region.of(x)
        if self.intervention.strength == 0:
            return x
        new = self._new(x)
        return new if region is None else torch.where(region, new, x)

    def _new(self, x: Tensor) -> Tensor:
        """The tensor that takes the place of ``x`` everywhere."""
        examples = self.seen["weights"].shape[0] if self.mediator == "symbol" else x.shape[0]
        crosses = (self.source or self.places.module.taps).crosses
        about = Situation(self.mediator, examples, self.seen.get("visible"), crosses, *self._source_of(x))
        new = self.intervention.replacement(x, about).to(x.dtype)
        strength = self.intervention.strength
        return (new if strength == 1 else x + strength * (new - x)).expand_as(x)

    def _with_pairs(self, message: Tensor) -> Tensor:
        """The symbol message ``(B, H, N, d_h)`` with other symbols for some pairs."""
        weights, values = self.seen["weights"], self.seen["symbol_values"]
        pairs = self.region.pairs(weights.shape[2], weights.shape[3], weights.device)
        if self.intervention.strength == 0:
            return message
        heads = getattr(self.choice.site.module, "attention", self.choice.site.module)  # of the toolbox, or the layer
        if heads.training and heads.dropout:
            raise ValueError(
                f"pairs: expected evaluation or no dropout for symbols of some pairs in {self.choice.site.layer}, "
                f"since interventions do not see which weights are dropped; got a rate of {heads.dropout} in training"
            )
        if "relations" in self.seen:
            weights = weights * self.seen["relations"].permute(0, 3, 1, 2)
        changes = self._new(values) - values
        region = self.region.of(changes)
        if region is not None:
            changes = torch.where(region, changes, torch.zeros_like(changes))
        return message + weights.masked_fill(~pairs, 0.0) @ changes

    def _source_of(self, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The mediator in the source, like ``x`` except for the number of examples, and the visible pairs there."""
        if self.source is None:
            return None, None
        axis, chosen, _ = self.region.numbers
        have = self.source.relation_numbers if axis == 3 else self.source.head_numbers
        values = self.source.get(TAPS[self.mediator]).to(x.device, x.dtype)
        places = torch.tensor([have.index(number) for number in chosen], device=x.device)
        values = values.index_select(axis, places)
        compares = not (isinstance(self.intervention, Ablate) and self.intervention.how == "mean")
        free = (0, axis) if compares else (0, axis, *range(1, 4))
        for place, (got, wanted) in enumerate(zip(values.shape, x.shape, strict=True)):
            if place not in free and got != wanted:
                raise ValueError(
                    f"source: expected {self.mediator}s of the same lengths as those of the call, "
                    f"{tuple(x.shape)}, in {self.choice.site.layer}; got {tuple(values.shape)}"
                )
        whole = x.new_zeros([*values.shape[:axis], x.shape[axis], *values.shape[axis + 1 :]])
        whole = whole.index_copy(axis, torch.tensor(chosen, device=x.device), values)
        visible = None if self.source.visible is None or self.of_library else self.source.visible.to(x.device)
        return whole, visible


def edits_of(
    model: nn.Module, given: Intervention | Sequence[Intervention], source: Maps | CallMaps | None = None
) -> list[Edit]:
    """The edits that interventions amount to in a model, after checking that it and the source have their targets."""
    call = source.only if isinstance(source, Maps) else source
    if call is not None and not isinstance(call, CallMaps):
        raise TypeError(f"source: expected maps of a capture, got {type(source).__name__}")
    found = []
    for intervention in [given] if isinstance(given, Intervention) else given:
        if not isinstance(intervention, Intervention):
            raise TypeError(f"interventions: expected interventions, got {type(intervention).__name__}")
        if intervention.needs_source and call is None:
            raise ValueError(f"source: {type(intervention).__name__} needs maps of other inputs, see capture; got None")
        for choice in intervention.target.locate(model):
            places = _places(model, choice.site) if intervention.target.mediator == "head" else choice.site
            edit = Edit(intervention, Region(intervention.target, choice), places)
            named = [name for name in ("senders", "pairs") if getattr(intervention.target, name) is not None]
            if named and edit.of_library:
                raise ValueError(f"{named[0]}: expected None, as pairs share relative symbols in {choice.site.layer}")
            if call is not None and intervention.uses_source:
                edit.source = _source(call, edit)
            if intervention.needs_visible and edit.source is None and choice.site.tap("visible") is None:
                why = f"{type(intervention).__name__} asks for real places, which {choice.site.layer} does not tell"
                raise ValueError(f"source: {why}; expected maps of a capture, got None")
            found.append(edit)
    return found


def _places(model: nn.Module, site: Site) -> Site:
    """The self-attention of a decoder's block for its cross-attention, which has the same receivers; else the site."""
    if not site.layer.endswith(".cross"):
        return site
    layer = site.layer.removesuffix(".cross")
    return next((own for own in find_sites(model) if own.layer == layer and own.tap("visible") is not None), site)


def _source(call: CallMaps, edit: Edit) -> HeadMaps:
    """The maps of a site in the source, after checking that they have what is chosen."""
    site = edit.choice.site
    layer = call.get(site.layer)
    heads = None if layer is None else getattr(layer, site.kind)
    quantity = TAPS[edit.mediator]
    if heads is None or heads.kept.get(quantity) is None:
        raise ValueError(f"source: expected maps with {quantity} of the {site.kind} heads of {site.layer}")
    axis, chosen, _ = edit.region.numbers
    have = heads.relation_numbers if axis == 3 else heads.head_numbers
    if not set(chosen) <= set(have):
        what = "relations" if axis == 3 else "heads"
        raise ValueError(f"source: expected the {what} {chosen} of {site.layer}, got maps of {have}")
    own = getattr(call.get(edit.places.layer), edit.places.kind, None)
    return heads if own is None else replace(heads, visible=own.visible, crosses=own.crosses)
