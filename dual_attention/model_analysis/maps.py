"""Records of what heads computed, with labelled axes.

Shapes: B examples, H heads kept, N receivers, M senders, R relations kept, d_h width of a head, d width of the layer's
output, L tokens that the call added, K symbols of a library, S heads of the symbol assignment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from .._base.words import repr_of_shapes
from .._layers.inputs import check_choice
from ..functional.checks import MaybeNone
from .sites import KINDS, Kind

Quantity = Literal[
    "visible",
    "weights",
    "values",
    "relations",
    "symbols",
    "symbol_values",
    "assignment",
    "relational_message",
    "symbol_message",
    "head_output",
    "contribution",
]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)

AXES_OF: dict[str, tuple[str, ...]] = {
    "visible": ("example", "head", "receiver", "sender"),
    "weights": ("example", "head", "receiver", "sender"),
    **dict.fromkeys(("values", "symbol_values"), ("example", "head", "sender", "feature")),
    "relations": ("example", "receiver", "sender", "relation"),
    "symbols": ("example", "token", "feature"),
    "assignment": ("example", "symbol_head", "token", "symbol"),
    **dict.fromkeys(
        ("relational_message", "symbol_message", "head_output", "contribution"),
        ("example", "head", "receiver", "feature"),
    ),
}
_OF_LIBRARY = {"symbols": ("symbol", "feature"), "symbol_values": ("example", "head", "symbol", "feature")}
_MAY_BE_SHARED = {"visible", "symbols", "symbol_values"}  # by all examples


@dataclass(frozen=True)
class HeadMaps:
    """Quantities that the heads of one kind computed in one layer and one call; None for those not kept.

    Attributes:
        layer, kind: name of the layer, and ``"sensory"`` or ``"relational"``.
        head_numbers, relation_numbers: the heads and relations kept.
        first_receiver, first_sender: places of the first receiver and the first sender in the sequence; with a cache,
            later ones than 0.
        crosses: whether receivers and senders are different objects, as in cross-attention.
        relative_symbols: whether symbols belong to pairs, as rows of a library.
        visible: pairs that may be attended, boolean ``(B or 1, H or 1, N, M)``.
        weights: of attention, before dropout, ``(B, H, N, M)``.
        values: of sensory heads, features of the senders as projected for each head, ``(B, H, M, d_h)``.
        relations: r_ij, not masked, ``(B, N, M, R)``. The heads of a layer share them, except for disentangled RCA,
            where each is that of the head with its number.
        symbols: as they come to the layer, ``(B or 1, L, d)``; of relative symbols the library, ``(K, d)``.
        symbol_values: symbols projected for each head, ``(B or 1, H, M, d_h)``; of relative ones ``(1, H, K, d_h)``.
        assignment: weights with which symbolic attention chose the symbols, ``(B, S, L, K)``.
        relational_message: what a head received of relations, ``W_r^h sum_j alpha_ij r_ij``, ``(B, H, N, d_h)``.
        symbol_message: what it received of symbols, ``sum_j alpha_ij W_s^h s_j`` likewise; of RCA and its disentangled
            form the whole message.
        head_output: input of the output projection by head, ``(B, H, N, d_h)``: the sum of the messages, of sensory
            heads the attended values, after an output gate.
        contribution: that of each head to the output of the layer, which is added to the residual stream,
            ``(B, H, N, d)``. Their sum and the bias of the output projection are that output.
    """

    layer: str
    kind: Kind
    head_numbers: tuple[int, ...]
    relation_numbers: tuple[int, ...]
    first_receiver: int = 0
    first_sender: int = 0
    crosses: bool = False
    relative_symbols: bool = False
    visible: Tensor | MaybeNone = None
    weights: Tensor | MaybeNone = None
    values: Tensor | MaybeNone = None
    relations: Tensor | MaybeNone = None
    symbols: Tensor | MaybeNone = None
    symbol_values: Tensor | MaybeNone = None
    assignment: Tensor | MaybeNone = None
    relational_message: Tensor | MaybeNone = None
    symbol_message: Tensor | MaybeNone = None
    head_output: Tensor | MaybeNone = None
    contribution: Tensor | MaybeNone = None

    __repr__ = repr_of_shapes

    @property
    def kept(self) -> dict[str, Tensor]:
        """The quantities that were kept, by name."""
        found = {about.name: getattr(self, about.name) for about in fields(self) if about.name in QUANTITIES}
        return {name: values for name, values in found.items() if values is not None}

    @property
    def examples(self) -> int:
        """B; 1 if nothing that was kept tells."""
        return max((values.shape[0] for name, values in self.kept.items() if "example" in self.axes(name)), default=1)

    def get(self, quantity: str) -> Tensor:
        """A quantity by name; ``ValueError`` if it was not kept."""
        if quantity not in QUANTITIES:
            raise ValueError(f"quantity: expected one of {', '.join(QUANTITIES)}, got {quantity!r}")
        values = getattr(self, quantity)
        if values is None:
            kept = ", ".join(self.kept) or "nothing"
            raise ValueError(f"quantity: {self.layer} kept of its {self.kind} heads {kept}, got {quantity!r}")
        return values

    def axes(self, quantity: str) -> tuple[str, ...]:
        """Names of the axes of a quantity."""
        self.get(quantity)
        return (_OF_LIBRARY if self.relative_symbols else {}).get(quantity, AXES_OF[quantity])

    def labels(self, quantity: str) -> dict[str, tuple[int, ...]]:
        """Numbers along each axis of a quantity: of heads, relations, and places in the sequence."""
        values = self.get(quantity)
        numbers: dict[str, tuple[int, ...]] = {"relation": self.relation_numbers}
        first = {"receiver": self.first_receiver, "token": self.first_receiver, "sender": self.first_sender}
        found = {}
        for axis, length in zip(self.axes(quantity), values.shape, strict=True):
            if axis == "head" and length == len(self.head_numbers):
                found[axis] = self.head_numbers
            else:
                start = first.get(axis, 0)
                found[axis] = numbers.get(axis, tuple(range(start, start + length)))
        return found

    def select(self, quantity: str, **where: int) -> Tensor:
        """A quantity at some labels: ``select("weights", example=0, head=2)`` is ``(N, M)``.

        An axis of length one that stands for all examples or heads is taken for the label of any of them; for any label
        of an example if nothing that was kept tells how many there are.
        """
        values, labels = self.get(quantity), self.labels(quantity)
        all_of = {"head": self.head_numbers, "example": range(self.examples)}
        tells = self.examples > 1 or bool(self.kept.keys() - _MAY_BE_SHARED)
        index: list[Any] = [slice(None)] * values.dim()
        for axis, label in where.items():
            if axis not in labels:
                raise ValueError(f"axis: {quantity} has {', '.join(labels)}, got {axis!r}")
            place = list(labels).index(axis)
            numbers = tuple(all_of.get(axis, labels[axis]))
            if label not in numbers and (tells or axis != "example"):
                raise ValueError(f"{axis}: expected one of {numbers}, got {label}")
            index[place] = 0 if values.shape[place] == 1 else labels[axis].index(label)
        return values[tuple(index)]


@dataclass(frozen=True)
class LayerMaps:
    """Both kinds of head of a layer; None for a kind that it lacks or that was not chosen."""

    layer: str
    sensory: HeadMaps | MaybeNone = None
    relational: HeadMaps | MaybeNone = None

    @property
    def kinds(self) -> tuple[HeadMaps, ...]:
        """Those that are there, sensory heads first."""
        return tuple(found for found in (self.sensory, self.relational) if found is not None)


class CallMaps(Mapping[str, LayerMaps]):
    """Layers of one call of a model by name; of a model with one stack of blocks also by number."""

    def __init__(self, found: Sequence[HeadMaps]) -> None:
        self._layers: dict[str, LayerMaps] = {}
        for heads in found:
            self.put(heads)

    def put(self, heads: HeadMaps) -> None:
        """Add heads of a layer, or replace them."""
        layer = self._layers.get(heads.layer, LayerMaps(heads.layer))
        self._layers[heads.layer] = replace(layer, **{heads.kind: heads})

    def __getitem__(self, layer: str | int) -> LayerMaps:
        name = f"blocks.{layer}" if isinstance(layer, int) else layer
        if name not in self._layers:
            raise KeyError(f"layer: expected one of {', '.join(self._layers)}, got {layer!r}")
        return self._layers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    def __repr__(self) -> str:
        return f"CallMaps({self.heads()})"

    def heads(self, kind: Kind | None = None) -> list[HeadMaps]:
        """Maps of all heads, or of one kind, in the order of the layers."""
        check_choice("kind", kind, (*KINDS, None))
        return [heads for layer in self.values() for heads in layer.kinds if kind in (None, heads.kind)]

    @property
    def memory(self) -> int:
        """Bytes of all tensors kept."""
        return sum(values.nbytes for heads in self.heads() for values in heads.kept.values())


@dataclass
class Maps:
    """Calls of a model that were captured, each kept apart.

    ``maps["blocks.0"]`` is a layer of the only call. Of several take ``maps.calls[1]``, or join them:
    :meth:`joined`.

    Attributes:
        calls: a record for each call.
    """

    calls: list[CallMaps] = field(default_factory=list)

    @property
    def only(self) -> CallMaps:
        """The only call; ``ValueError`` if there are none or several."""
        if not self.calls:
            raise ValueError("maps: nothing was captured; the model is to be called within the context")
        if len(self.calls) > 1:
            raise ValueError(f"maps: expected one call, got {len(self.calls)}; see maps.calls and maps.joined()")
        return self.calls[0]

    def __getitem__(self, layer: str | int) -> LayerMaps:
        return self.only[layer]

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers of the first call."""
        return tuple(self.calls[0]) if self.calls else ()

    def heads(self, kind: Kind | None = None) -> list[HeadMaps]:
        """Maps of all heads of the only call, or of one kind, in the order of the layers."""
        return self.only.heads(kind)

    @property
    def memory(self) -> int:
        """Bytes of all tensors kept."""
        return sum(call.memory for call in self.calls)

    def joined(self, axis: Literal["example", "receiver"]) -> CallMaps:
        """All calls as one.

        Args:
            axis: ``"example"`` joins batches of one length; ``"receiver"`` joins calls that go on from a cache, in
                which earlier receivers have zeros for senders that came later. Not all of them need all layers: an
                encoder is called once, its decoder step by step.
        """
        check_choice("axis", axis, ("example", "receiver"))
        if not self.calls:
            return self.only
        first, *others = self.calls
        for number, other in enumerate(others, start=1):
            if axis == "example" and list(other) != list(first):
                raise ValueError(f"maps: call {number} has the layers {', '.join(other)}, call 0 {', '.join(first)}")
        grouped: dict[tuple[str, str], list[HeadMaps]] = {}
        for call in self.calls:
            for heads in call.heads():
                grouped.setdefault((heads.layer, heads.kind), []).append(heads)
        return CallMaps([_joined(group, axis) for group in grouped.values()])


def _joined(parts: list[HeadMaps], axis: str) -> HeadMaps:
    first = parts[0]
    if len(parts) == 1:
        return first
    start = min(part.first_sender for part in parts)
    firsts = [part.first_sender - start for part in parts]
    if axis == "receiver":
        parts = _aligned(parts, start)
    else:
        for part in parts[1:]:
            if (part.first_receiver, part.first_sender) != (first.first_receiver, first.first_sender):
                raise ValueError(f"maps: calls begin at different places in {first.layer}; expected batches")
    joined: dict[str, Any] = {}
    for name in first.kept:
        axes = first.axes(name)
        along = "token" if axis == "receiver" and "token" in axes else axis
        values = [part.get(name) for part in parts]
        if along == "example" and along in axes:  # what is the same for all examples, once or for each of them
            shared = name in _MAY_BE_SHARED and all(len(one) == 1 and torch.equal(one, values[0]) for one in values)
            pairs = zip(values, parts, strict=True)
            values = values[:1] if shared else [value.expand(part.examples, *value.shape[1:]) for value, part in pairs]
        if along in axes:
            joined[name] = _cat(values, axes.index(along), f"{name} of {first.layer}")
        elif "sender" in axes:  # each call has those that it holds, with a window not all earlier ones
            joined[name] = _latest(values, firsts, axes.index("sender"))
        else:  # a library
            joined[name] = values[-1]
    return replace(first, first_sender=start, **joined)


def _latest(values: list[Tensor], firsts: list[int], axis: int) -> Tensor:
    """Values of all senders, each from the last call that holds it; a call holds those from its first one on."""
    found = values[0]
    for value, first in zip(values[1:], firsts[1:], strict=True):
        found = torch.cat([found.narrow(axis, 0, first), value.narrow(axis, first, value.shape[axis] - first)], axis)
    return found


def _cat(values: list[Tensor], place: int, what: str) -> Tensor:
    """Concatenation along an axis; others that are 1 in some are expanded."""
    sizes = [max(sizes) for sizes in zip(*(value.shape for value in values), strict=True)]
    shaped = []
    for value in values:
        want = [*sizes[:place], value.shape[place], *sizes[place + 1 :]]
        if any(have not in (1, size) for have, size in zip(value.shape, want, strict=True)):
            shapes = ", ".join(str(tuple(value.shape)) for value in values)
            raise ValueError(f"maps: calls of one size are needed to join {what}, got shapes {shapes}")
        shaped.append(value.expand(want))
    return torch.cat(shaped, dim=place)


def _aligned(parts: list[HeadMaps], start: int) -> list[HeadMaps]:
    """Maps with the same senders in all calls: zeros for those that a call did not see."""
    receivers = parts[0].first_receiver
    length = 0
    for part in parts:
        if part.first_receiver != receivers:
            raise ValueError(f"maps: expected a call of {part.layer} from {receivers} on, got {part.first_receiver}")
        for name, values in part.kept.items():
            axes = part.axes(name)
            if "receiver" in axes:
                receivers = part.first_receiver + values.shape[axes.index("receiver")]
            if "sender" in axes:
                length = max(length, part.first_sender - start + values.shape[axes.index("sender")])
    aligned = []
    for part in parts:
        changed: dict[str, Any] = {}
        for name, values in part.kept.items():
            axes = part.axes(name)
            if "sender" in axes:
                place, before = axes.index("sender"), part.first_sender - start
                after = length - before - values.shape[place]
                changed[name] = F.pad(values, (0, 0) * (values.dim() - place - 1) + (before, after))
        aligned.append(replace(part, first_sender=start, **changed))
    return aligned
