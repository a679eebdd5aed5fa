"""Packing of a recording into JSON: factors in as few bits as leave what is seen unchanged, and the error made.

Each row of a factor is packed with a scale of its own. Errors are those of the maps that are drawn, not of the factors,
in steps of a colour scale of 256 colours that ends at the largest value of a map.

Shapes: F maps, H heads, R relations, N receivers, M senders, p width of a query.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from .._numpy import np
from .factors import ScoreFactors, Visible
from .recording import RecordedHeads, Recording

Bits = Literal[8, 16, 32]
BITS: tuple[Bits, ...] = (8, 16, 32)

STEPS = 255
"""Steps of a colour scale of 256 colours."""

LARGEST_ERROR = 1.0
"""Steps by which no value that is drawn from packed factors may be wrong."""

CHECKED_RECEIVERS = 256
"""Receivers, in runs spread over a text, with which errors are measured."""

_RUN = 16

_INTEGERS = {8: torch.int8, 16: torch.int16}
_NAMES = {torch.uint8: "u1", torch.int8: "i1", torch.int16: "i2", torch.int32: "i4", torch.float32: "f4"}


def packed_array(x: Tensor) -> dict[str, Any]:
    """An array as JSON: its type, shape, and little-endian bytes in base64."""
    values = x.detach().cpu().contiguous().numpy()
    data = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
    return {"type": _NAMES[x.dtype], "shape": list(x.shape), "data": base64.b64encode(data).decode("ascii")}


def unpacked_array(packed: Mapping[str, Any]) -> Tensor:
    """The array that :func:`packed_array` packed."""
    dtype = next(dtype for dtype, name in _NAMES.items() if name == packed["type"])
    values = np.frombuffer(base64.b64decode(packed["data"]), np.dtype(f"<{packed['type']}"))
    return torch.from_numpy(values.astype(values.dtype.newbyteorder("="))).to(dtype).view(packed["shape"])


@dataclass(frozen=True)
class PackedRows:
    """Rows of a factor ``(F, L, p)`` as integers, with a scale for each, ``(F, L)``; or as they are, without."""

    values: Tensor
    scales: Tensor | None

    @classmethod
    def of(cls, x: Tensor, bits: Bits) -> PackedRows:
        """Pack rows into integers of 8 or 16 bits, or keep their 32."""
        if bits == 32:
            return cls(x.float(), None)
        dtype = _INTEGERS[bits]
        most = torch.iinfo(dtype).max
        scales = x.float().abs().amax(-1) / most if x.shape[-1] else x.new_zeros(x.shape[:-1])
        scales = scales.where(scales > 0, 1.0)
        return cls((x.float() / scales[..., None]).round().clamp(-most, most).to(dtype), scales)

    @property
    def unpacked(self) -> Tensor:
        """The rows that a page computes with."""
        return self.values.float() if self.scales is None else self.values.float() * self.scales[..., None]

    def json(self) -> dict[str, Any]:
        """These rows as JSON."""
        packed: dict[str, Any] = {"values": packed_array(self.values)}
        return packed if self.scales is None else {**packed, "scales": packed_array(self.scales)}


def packed_factors(factors: ScoreFactors, bits: Bits) -> tuple[ScoreFactors, dict[str, Any]]:
    """Factors as a page will read them, and their JSON."""
    rows = {"queries": PackedRows.of(factors.queries, bits), "keys": PackedRows.of(factors.keys, bits)}
    if factors.offsets is not None:
        rows["offsets"] = PackedRows.of(factors.offsets, bits)
    packed: dict[str, Any] = {"activation": factors.activation, "bits": bits}
    packed |= {name: found.json() for name, found in rows.items()}
    if factors.normalisers is not None:
        packed["normalisers"] = packed_array(factors.normalisers.float())
    return replace(factors, **{name: found.unpacked for name, found in rows.items()}), packed


@dataclass(frozen=True)
class Ranges:
    """Largest absolute values of the maps of some heads.

    Attributes:
        weights: of attention, ``(H,)``; None without.
        senders: of weights times what a sender contributes, ``(H,)``; None without.
        relations: r, over visible pairs, ``(R,)``; None for heads without relations.
        attended: weight times relation, ``(H, R)``; of relations that belong to heads ``(R,)``; None without either.
    """

    weights: Tensor | None = None
    senders: Tensor | None = None
    relations: Tensor | None = None
    attended: Tensor | None = None


def ranges_of(heads: RecordedHeads) -> Ranges:
    """The ranges of maps, over all receivers."""
    found: dict[str, list[Tensor]] = {}
    relations = heads.relations
    both = heads.n_heads + (relations.maps if relations else 0)
    for start, stop in _some(heads).blocks(heads.visible.senders * both):
        for name, values in _maps(heads, heads.weights, relations, start, stop).items():
            found.setdefault(name, []).append(values.abs().amax((-2, -1)))
    return Ranges(**{name: torch.stack(parts).amax(0) for name, parts in found.items()})


def _some(heads: RecordedHeads) -> ScoreFactors:
    """The weights, or the relations of heads without."""
    found = heads.relations if heads.weights is None else heads.weights
    assert found is not None
    return found


def _maps(
    heads: RecordedHeads, weights: ScoreFactors | None, relations: ScoreFactors | None, start: int, stop: int
) -> dict[str, Tensor]:
    """The maps of some receivers, by the names of :class:`Ranges`."""
    found = {}
    if weights is not None:
        found["weights"] = alpha = weights.values(start, stop, heads.visible)
        if heads.sender_norms is not None:
            found["senders"] = alpha * heads.sender_norms[:, None]
    if relations is not None:
        found["relations"] = r = relations.values(start, stop, heads.visible)
        if weights is not None:
            alpha = found["weights"]
            found["attended"] = alpha * r if heads.relation_of_head else alpha[:, None] * r[None]
    return found


def error_of(
    heads: RecordedHeads, ranges: Ranges, weights: ScoreFactors | None, relations: ScoreFactors | None
) -> float:
    """Largest error, in steps of the colour scale, of maps drawn from other factors than the ones of a recording."""
    n = _some(heads).receivers
    worst = 0.0
    runs = range(0, n, max(_RUN, _RUN * n // CHECKED_RECEIVERS))
    for start in runs:
        stop = min(start + _RUN, n)
        ours = _maps(heads, heads.weights, heads.relations, start, stop)
        theirs = _maps(heads, weights, relations, start, stop)
        for name, values in ours.items():
            most = getattr(ranges, name).clamp_min(torch.finfo(torch.float32).tiny)
            worst = max(worst, float(((values - theirs[name]).abs().amax((-1, -2)) / most).max()) * STEPS)
    return worst


@dataclass(frozen=True)
class Packed:
    """A recording as JSON.

    Attributes:
        json: an object that only holds strings, numbers, lists and objects.
        error: largest error of what is drawn, in steps of the colour scale.
        bits: most bits that a factor takes.
    """

    json: dict[str, Any]
    error: float
    bits: int


def pack(recording: Recording, bits: Bits | None = None) -> Packed:
    """Pack a recording.

    Args:
        bits: of the numbers in factors; by default the fewest of 8, 16 and 32, for each layer and kind of head, with
            which no value that is drawn is wrong by more than a step of the colour scale.

    Raises:
        ValueError: for other bits.
    """
    if bits not in (None, *BITS):
        raise ValueError(f"bits: expected one of {', '.join(map(str, BITS))}, or None, got {bits!r}")
    found = [_packed_heads(heads, BITS if bits is None else (bits,)) for heads in recording.heads]
    errors = [error for _, error in found]
    most = max((factors["bits"] for json, _ in found for factors in (json["weights"], json["relations"]) if factors))
    worst = max(errors, default=0.0)
    json = {
        "format": 1,
        "title": recording.title,
        "facts": {**recording.facts, "largest error": f"{worst:.2g} of {STEPS} colour steps"},
        "sequences": {name: list(labels) for name, labels in recording.sequences.items()},
        "heads": [json for json, _ in found],
        "reads": recording.reads,
    }
    return Packed(json, worst, most)


def _packed_heads(heads: RecordedHeads, choices: Sequence[Bits]) -> tuple[dict[str, Any], float]:
    ranges = ranges_of(heads)
    packed, error = _with_bits(heads, ranges, choices[0])
    for bits in choices[1:]:
        if error > LARGEST_ERROR:
            packed, error = _with_bits(heads, ranges, bits)
    visible = heads.visible
    json: dict[str, Any] = {
        "layer": heads.layer,
        "kind": heads.kind,
        "receivers": heads.receivers,
        "senders": heads.senders,
        "first": packed_array(visible.first.int()),
        "last": packed_array(visible.last.int()),
        **packed,
        "relation_of_head": heads.relation_of_head,
        "mediators": list(heads.mediators),
        "messages": _arrays(heads.message_norms),
        "error": error,
        "ranges": _arrays({name: getattr(ranges, name) for name in ("weights", "senders", "relations", "attended")}),
    }
    json |= _arrays({"relation_norms": heads.relation_norms, "sender_norms": heads.sender_norms})
    if heads.assignment is not None:
        json["assignment"], of_symbols = _assignment(heads.assignment, max(16, choices[0]))
        error = max(error, of_symbols)
    return json, error


def _with_bits(heads: RecordedHeads, ranges: Ranges, bits: Bits) -> tuple[dict[str, Any], float]:
    """The JSON of the factors of some heads, and the error of the maps that are drawn from it."""
    weights, of_weights = (None, None) if heads.weights is None else packed_factors(heads.weights, bits)
    relations, of_relations = (None, None) if heads.relations is None else packed_factors(heads.relations, bits)
    return {"weights": of_weights, "relations": of_relations}, error_of(heads, ranges, weights, relations)


def _assignment(assignment: ScoreFactors, bits: Bits) -> tuple[dict[str, Any], float]:
    """The JSON of the weights of symbols, and the error of what is drawn from it."""
    n, k = assignment.receivers, assignment.keys.shape[1]
    drawn, packed = packed_factors(assignment, bits)
    whole, worst, usage = Visible.whole(n, k), 0.0, torch.zeros(assignment.maps, k)
    for start, stop in assignment.blocks(k):
        ours, theirs = (factors.values(start, stop, whole) for factors in (assignment, drawn))
        worst = max(worst, float(((ours - theirs).abs() / ours.amax((1, 2), keepdim=True)).max()) * STEPS)
        usage += ours.sum(1) / n
    return {**packed, **_arrays({"usage": usage})}, worst


def _arrays(found: Mapping[str, Tensor | None]) -> dict[str, Any]:
    return {
        name: packed_array(x if x.dtype == torch.int32 else x.float()) for name, x in found.items() if x is not None
    }
