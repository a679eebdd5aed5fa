"""Packing of a recording into JSON: factors in as few bits as leave what is seen unchanged, and the error made.

Each row of a factor is packed with a scale of its own. Errors are those of the maps that are drawn, not of the factors,
in steps of a colour scale of 256 colours that ends at the largest value of a map.

Shapes: F maps, H heads, R relations, N receivers, M senders, p width of a query.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from .._numpy import np
from .factors import ScoreFactors, Visible
from .recording import RecordedHeads, Recording
from .requests import Json

Bits = Literal[8, 16, 32]
BITS: tuple[Bits, ...] = (8, 16, 32)

STEPS = 255
"""Steps of a colour scale of 256 colours."""

LARGEST_ERROR = 1.0
"""Steps by which no value that is drawn from packed factors may be wrong."""

WHOLE = 6 << 20
"""Bytes of factors up to which a page of a server gets them all at once."""

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
        dtype = {8: torch.int8, 16: torch.int16}[bits]
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

    def of_map(self, number: int, count: int) -> PackedRows:
        """Those of one of as many maps, of which several may have the same keys."""
        at = slice(place := number * len(self.values) // count, place + 1)
        return PackedRows(self.values[at], None if self.scales is None else self.scales[at])


FactorRows = Mapping[str, PackedRows]
"""Rows of the ``queries``, ``keys`` and perhaps ``offsets`` of factors."""


def packed_factors(factors: ScoreFactors, bits: Bits) -> tuple[ScoreFactors, FactorRows, dict[str, Any]]:
    """Factors as a page will read them, their rows, and a JSON that has only the shapes of these."""
    rows = {"queries": PackedRows.of(factors.queries, bits), "keys": PackedRows.of(factors.keys, bits)}
    if factors.offsets is not None:
        rows["offsets"] = PackedRows.of(factors.offsets, bits)
    packed: dict[str, Any] = {"activation": factors.activation, "bits": bits}
    packed |= {name: {"shape": list(found.values.shape)} for name, found in rows.items()}
    if factors.normalisers is not None:
        packed["normalisers"] = packed_array(factors.normalisers.float())
    return replace(factors, **{name: found.unpacked for name, found in rows.items()}), rows, packed


@dataclass(frozen=True)
class Ranges:
    """Largest absolute values of the maps of some heads.

    Attributes:
        weights: of attention, ``(H,)``; None without.
        senders: of weights times what a sender contributes, ``(H,)``; None without.
        relations: r, over visible pairs, ``(R,)``; None for heads without relations.
    """

    weights: Tensor | None = None
    senders: Tensor | None = None
    relations: Tensor | None = None


def measured(heads: RecordedHeads, drawn: Mapping[str, ScoreFactors]) -> tuple[Ranges, float]:
    """Ranges of maps, and a bound of the error of what is drawn from other factors, in steps of the colour scale.

    Of a relation under attention, H x R maps, the error is the bound e(a) max |r| + max a e(r) of each receiver, by the
    value at the sender that gets most attention, which the range is no smaller than.

    Args:
        drawn: factors by ``weights`` and ``relations``.
    """
    visible, ours = heads.visible, {name: getattr(heads, name) for name in drawn}
    parts: dict[str, list[Tensor]] = {}
    longest = max(ours.values(), key=lambda factors: factors.maps)
    for start, stop in longest.blocks(visible.senders):
        seen = visible.seen(start, stop)
        maps = {name: factors.values(start, stop, visible, seen) for name, factors in ours.items()}
        if "weights" in maps and "relations" in maps:
            most, sender = maps["weights"].max(-1)  # (H, some)
            r, at = maps["relations"], sender[..., None]
            if not heads.relation_of_head:
                r, at = r[:, None].expand(-1, len(at), -1, -1), at[None].expand(len(r), -1, -1, -1)
            parts.setdefault("attended", []).append((most * r.gather(-1, at)[..., 0]).abs())
        if "weights" in maps and heads.sender_norms is not None:
            norms = heads.sender_norms[:, None, :seen]
            parts.setdefault("senders", []).append((maps["weights"] * norms).abs_().amax(-1))
        for name, values in maps.items():
            parts.setdefault(name, []).append(torch.maximum(values.amax(-1), -values.amin(-1)))
    largest = {name: torch.cat(blocks, -1) for name, blocks in parts.items()}  # of each map and receiver
    errors = {name: factors.error_bounds(drawn[name], largest[name]) for name, factors in ours.items()}
    if "senders" in largest:
        assert heads.sender_norms is not None
        errors["senders"] = errors["weights"] * heads.sender_norms.amax(-1, keepdim=True)
    ranges = {name: most.amax(-1) for name, most in largest.items() if name != "attended"}
    worst = max((_steps(error.amax(-1), ranges[name]) for name, error in errors.items()), default=0.0)
    if "attended" in largest:
        alpha, r, of_alpha, of_r = largest["weights"], largest["relations"], errors["weights"], errors["relations"]
        if not heads.relation_of_head:
            r, of_r = r[:, None], of_r[:, None]
        worst = max(worst, _steps((of_alpha * r + alpha * of_r).amax(-1), largest["attended"].amax(-1)))
    return Ranges(**ranges), worst


def _steps(error: Tensor, most: Tensor) -> float:
    return float((error / most.clamp_min(torch.finfo(torch.float32).tiny)).max()) * STEPS


@dataclass(frozen=True)
class Packed:
    """A recording as JSON: objects that only hold strings, numbers, lists and objects.

    Attributes:
        outline: all but the rows of factors, of which it has the shapes.
        rows: of the factors of all heads, in order, by ``weights``, ``relations`` and ``assignment``.
        error: bound on the error of any value of any map from rounding its factors, in steps of the colour scale; for
            weights of a symbol library the largest error.
    """

    outline: Json
    rows: Sequence[Mapping[str, FactorRows]]
    error: float

    @property
    def size(self) -> int:
        """Bytes of all rows."""
        return sum(one.values.nbytes for heads in self.rows for rows in heads.values() for one in rows.values())

    @property
    def json(self) -> Json:
        """The whole recording."""
        return self.of_layers({one["layer"] for one in self.outline["heads"]})

    def of_layers(self, layers: Collection[str]) -> Json:
        """The outline, with the rows of some layers."""

        def filled(heads: Json, found: Mapping[str, FactorRows]) -> Json:
            rows = {name: {part: one.json() for part, one in parts.items()} for name, parts in found.items()}
            return {**heads, **{name: {**heads[name], **parts} for name, parts in rows.items()}}

        pairs = zip(self.outline["heads"], self.rows, strict=True)
        return {**self.outline, "heads": [filled(*one) if one[0]["layer"] in layers else one[0] for one in pairs]}

    def maps(self, heads: int, name: str, numbers: Sequence[int]) -> list[Json]:
        """The rows of single maps, each with the keys that are its own.

        Raises:
            IndexError, KeyError: if there are no such heads, factors or maps.
        """
        rows = self.rows[heads][name]
        count = len(rows["queries"].values)
        if not all(0 <= number < count for number in numbers):
            raise IndexError(f"maps: expected numbers from 0 to {count - 1}")
        return [{part: one.of_map(number, count).json() for part, one in rows.items()} for number in numbers]


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
    worst = max((error for *_, error in found), default=0.0)
    outline = {
        "format": 1,
        "title": recording.title,
        "facts": {**recording.facts, "error": f"at most {worst:.2g} of {STEPS} colour steps"},
        "sequences": {name: list(labels) for name, labels in recording.sequences.items()},
        "heads": [json for json, *_ in found],
        "reads": recording.reads,
    }
    return Packed(outline, [rows for _, rows, _ in found], worst)


def _packed_heads(heads: RecordedHeads, choices: Sequence[Bits]) -> tuple[Json, dict[str, FactorRows], float]:
    factors = {name: getattr(heads, name) for name in ("weights", "relations")}
    if heads.relations is not None and len(choices) > 1:
        choices = choices[1:]  # 8 bits have not been seen to suffice for relations
    bits, *more = choices
    found = {name: packed_factors(one, bits) for name, one in factors.items() if one is not None}
    ranges, error = measured(heads, {name: drawn for name, (drawn, *_) in found.items()})
    if more and not error <= LARGEST_ERROR:
        return _packed_heads(heads, more)
    visible, rows = heads.visible, {name: one for name, (_, one, _) in found.items()}
    json: Json = {
        "layer": heads.layer,
        "kind": heads.kind,
        "receivers": heads.receivers,
        "senders": heads.senders,
        "first": packed_array(visible.first.int()),
        "last": packed_array(visible.last.int()),
        **{name: found[name][2] if name in found else None for name in factors},
        "relation_of_head": heads.relation_of_head,
        "mediators": list(heads.mediators),
        "messages": _arrays(heads.message_norms),
        "error": error,
        "ranges": _arrays({name: getattr(ranges, name) for name in ("weights", "senders", "relations")}),
    }
    json |= _arrays({"relation_products": heads.relation_products, "sender_norms": heads.sender_norms})
    if heads.assignment is not None:
        json["assignment"], rows["assignment"], of_symbols = _assignment(heads.assignment, max(16, choices[0]))
        error = max(error, of_symbols)
    return json, rows, error


def _assignment(assignment: ScoreFactors, bits: Bits) -> tuple[Json, FactorRows, float]:
    """The JSON of the weights of symbols and its rows, and the error of what is drawn from them."""
    n, k = assignment.receivers, assignment.keys.shape[1]
    drawn, rows, packed = packed_factors(assignment, bits)
    whole, worst, usage = Visible.whole(n, k), 0.0, torch.zeros(assignment.maps, k)
    for start, stop in assignment.blocks(k):
        ours, theirs = (factors.values(start, stop, whole) for factors in (assignment, drawn))
        worst = max(worst, float(((ours - theirs).abs() / ours.amax((1, 2), keepdim=True)).max()) * STEPS)
        usage += ours.sum(1) / n
    return {**packed, **_arrays({"usage": usage})}, rows, worst


def _arrays(found: Mapping[str, Tensor | None]) -> dict[str, Any]:
    return {
        name: packed_array(x if x.dtype == torch.int32 else x.float()) for name, x in found.items() if x is not None
    }
