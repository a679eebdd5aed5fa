"""Results of the study of a language model's relations, as JSON keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dual_attention.model_analysis.measures import Selectivity

from .language_reading import LabelRead
from .mediators import Mediation, Restored
from .passages import SEMANTIC, SYNTACTIC

LABELS = (SEMANTIC, SYNTACTIC)
ALL, NOISE = "all relations", "noise"
"""Names of interventions at pairs."""


@dataclass(frozen=True)
class AtPairs:
    """Effect of an intervention at pairs of words, in nats a pair, over documents.

    Attributes:
        what: the intervention.
        semantic, syntactic: divergence at pairs with the label, and without.
        difference: D: of both selectivities, in documents that have both.
        loss: the same difference of the change of the loss, instead of the divergence.
    """

    what: str
    semantic: Selectivity
    syntactic: Selectivity
    difference: Selectivity
    loss: Selectivity


@dataclass(frozen=True)
class Everywhere:
    """Change of the loss by resampling at all pairs, in nats a token, over passages.

    Attributes:
        relation: its name, ``"layer.number"``.
        mean, half: by the relation, and half of the 95 % interval.
        directions: by random directions of its layer that change as much.
    """

    relation: str
    mean: float
    half: float
    directions: tuple[float, ...]

    @property
    def is_outside(self) -> bool:
        """Whether it is beyond all of the directions, on either side."""
        return not min(self.directions) <= self.mean <= max(self.directions)


@dataclass(frozen=True)
class LanguageFound:
    """One language model looked into.

    Attributes:
        run: name of its folder.
        seed: of the run.
        loss: on the text kept apart, nats a token.
        documents, passages: that were read.
        pairs: number of pairs with each label: there are, matched, and drawn for the interventions.
        read: detection of labels.
        at_pairs: interventions at pairs, that of all relations first.
        beyond_noise: D of all relations, less that of noise.
        synonyms: selectivity of all relations for pairs with a common synset; None if too few documents have any.
        everywhere: each relation resampled at all pairs.
        mediation: what carries copies and agreement.
    """

    run: str
    seed: int
    loss: float
    documents: int
    passages: int
    pairs: Mapping[str, tuple[int, ...]]
    read: tuple[LabelRead, ...]
    at_pairs: tuple[AtPairs, ...]
    beyond_noise: Selectivity
    synonyms: Selectivity | None
    everywhere: tuple[Everywhere, ...]
    mediation: tuple[Mediation, ...]

    def effect(self, what: str) -> AtPairs:
        """The effect of an intervention; ``ValueError`` if it was not made."""
        for one in self.at_pairs:
            if one.what == what:
                return one
        raise ValueError(f"what: expected one of {', '.join(one.what for one in self.at_pairs)}, got {what!r}")

    def as_json(self) -> dict[str, Any]:
        """The results as JSON has them."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LanguageFound:
        """The results that :meth:`as_json` wrote; ``TypeError`` or ``KeyError`` for others."""
        own = dict(value)
        own["pairs"] = {name: tuple(counts) for name, counts in value["pairs"].items()}
        own["read"] = tuple(LabelRead(**{**one, "aucs": tuple(one["aucs"])}) for one in value["read"])
        own["at_pairs"] = tuple(
            AtPairs(one["what"], *(Selectivity(**one[name]) for name in _KINDS)) for one in value["at_pairs"]
        )
        own["beyond_noise"] = Selectivity(**value["beyond_noise"])
        own["synonyms"] = None if value["synonyms"] is None else Selectivity(**value["synonyms"])
        own["everywhere"] = tuple(
            Everywhere(**{**one, "directions": tuple(one["directions"])}) for one in value["everywhere"]
        )
        own["mediation"] = tuple(
            Mediation(**{**one, "restored": tuple(Restored(**part) for part in one["restored"])})
            for one in value["mediation"]
        )
        return cls(**own)


_KINDS = ("semantic", "syntactic", "difference", "loss")
