"""Keys of models whose heads are put together from the toolbox of attention: controls, and other relations."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from ...training.configs import check
from ..heads import RivalName

Carried = Literal["relations", "symbols", "objects"]
RelationKind = Literal["dot", "dot_and_norms", "hadamard", "cosine", "squared_distance"]
Relatum = Literal["pair", "receiver", "sender", "shuffled"]
Normalisation = Literal["none", "softmax", "standardise"]
Gate = Literal["none", "identity", "sigmoid"]


@dataclass(frozen=True)
class ToolboxConfig:
    """Heads that differ from relational heads in one thing, or in more."""

    carries: Carried = "relations"
    """What heads carry from sender to receiver: relations beside symbols, as relational heads do; symbols only; or the
    sender's features, as sensory heads do."""
    relation: RelationKind = "dot"
    """Comparison: scaled inner product; the same with the squared norms of query and key as two further relations;
    products of single features, where every relation is one number of both sides; cosine; or negated squared distance.
    The last two have a learned strength."""
    of: Relatum = "pair"
    """What is compared: receiver and sender; the receiver with itself; the sender with itself; or the receiver with
    some sender, drawn anew for each image. The last three have the parameters of relations, and nothing of the pair."""
    normalise: Normalisation = "none"
    """Normalisation of a receiver's relations over its senders: none, softmax, or to mean 0 and variance 1."""
    sharpness: float | None = None
    """Factor of inner products before they are normalised, the inverse of a temperature; null takes
    1 / sqrt(rel_proj_dim)."""
    gate: Gate = "none"
    """Gate on what each head brings, computed from the receiver: none, linear, or a sigmoid."""
    identities: bool = False
    """Add a learned multiple of the identity to the product of query and key weights of each head, and another to that
    of value and output weights (arXiv 2310.09753); heads that carry features only."""

    heads: RivalName | None = None
    """Heads of a rival of relational attention, which carry objects, without a gate and identities; null for the heads
    that the other keys describe."""

    def __post_init__(self) -> None:
        relations = self.carries == "relations"
        for name in ("relation", "of", "normalise", "sharpness"):
            default = type(self).__dataclass_fields__[name].default
            value = getattr(self, name)
            expected = f"{default!r} with model.toolbox.carries={self.carries}"
            check(relations or value == default, f"model.toolbox.{name}", expected, value)
        sharp = self.sharpness
        check(sharp is None or 0 < sharp < inf, "model.toolbox.sharpness", "a positive number or null", sharp)
        dot = self.relation == "dot"
        check(dot or sharp is None, "model.toolbox.sharpness", f"null with relation {self.relation}", sharp)
        check(dot or self.of == "pair", "model.toolbox.of", f"'pair' with relation {self.relation}", self.of)
        of_pair = self.of == "pair" or self.normalise == "none"
        check(of_pair, "model.toolbox.normalise", "'none' unless the relation is of the pair", self.normalise)
        plain = self.carries == "objects" and self.gate == "none"
        expected = "false unless heads carry objects, without a gate"
        check(plain or not self.identities, "model.toolbox.identities", expected, self.identities)
        fits = self.heads is None or (plain and not self.identities)
        expected = "null unless heads carry objects, without a gate and identities"
        check(fits, "model.toolbox.heads", expected, self.heads)
