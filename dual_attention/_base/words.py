"""Names and texts in messages: the known name that a wrong one may stand for, texts safe to print, and short reprs."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from difflib import SequenceMatcher
from typing import Any

_ALLOWED = "\n\t"
_TURNING = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))
"""Marks that turn the direction of writing."""

_MEANT = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "gpu": "cuda",
    "rotary": "RoPE",
    "euclidean": "squared_distance",
    "inner_product": "dot",
    "gpt2": "T-353M",
}
"""Names that other libraries use, and ours for the same."""


def suggestion(name: str, known: Iterable[str], *, separator: str | None = None) -> str:
    """``"; did you mean a or b?"`` for the known names nearest to a wrong one; empty if none is near.

    Case does not count. If some names begin with the same word and a hyphen, only they are meant, all if none is near:
    ``DAT-tny`` is never ``T-tiny``. Of names with parts those with the same last part are nearest, then those with the
    same first parts; others only if none has these.
    """
    parts = {other: _parts(other.lower(), separator) for other in known}
    first, last = _parts(name.lower(), separator)
    ends = {other: end for other, (_, end) in parts.items()}
    beside = {other: end for other, (begin, end) in parts.items() if begin == first}
    meant = _MEANT.get(last.replace("-", ""))
    found = [other for other, end in ends.items() if end == last or other == meant]
    found = found or _nearest(last, beside) or ([] if first and beside else _nearest(last, ends))
    return f"; did you mean {' or '.join(found[:3])}?" if found else ""


def _parts(name: str, separator: str | None) -> tuple[str, str]:
    """The first parts of a name, and the last."""
    first, _, last = name.lstrip("-").rpartition(separator) if separator else ("", "", name)
    return first, last


def _nearest(name: str, texts: dict[str, str]) -> list[str]:
    """The names whose texts begin with a wrong one, or else are like it, and hardly less so than the likest."""
    word, hyphen, _ = name.partition("-")
    kin = {other: text for other, text in texts.items() if hyphen and text.partition("-")[0] == word}
    texts = kin or texts
    if begun := [other for other, text in texts.items() if len(name) > 2 and text.startswith(name)]:
        return begun
    alike = {other: SequenceMatcher(None, name, text).ratio() for other, text in texts.items()}
    best = max(alike.values(), default=0.0)
    found = [other for other in sorted(alike, key=alike.__getitem__, reverse=True) if alike[other] > best - 0.08]
    return found if best >= 0.7 else list(kin)


def listed(names: Sequence[str], most: int = 12) -> str:
    """The first of some names in one text, and how many there are more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number and the noun in singular or plural, by default with an s: ``1 cell``, ``2 cells``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def printable(text: str) -> str:
    """``text`` with control characters as escapes, so that a terminal shows them and does not obey them.

    Line breaks and tabs stay, and so does all that is not a control character or a mark that turns the direction of
    writing.
    """
    return "".join(one if _harmless(one) else one.encode("unicode_escape").decode("ascii") for one in text)


def shortened(text: str) -> str:
    """``text`` in one printable line of at most 100 characters."""
    text = printable(" ".join(text.split()))
    return text if len(text) <= 100 else f"{text[:97]}..."


def repr_of_shapes(self: Any) -> str:
    """``repr`` of a dataclass or named tuple that shows shapes in place of tensors, and no fields that are None."""
    names = getattr(self, "_fields", None) or [field.name for field in fields(self) if field.repr]
    given = {name: value for name in names if (value := getattr(self, name)) is not None}
    return f"{type(self).__name__}({', '.join(f'{name}={_brief(value)}' for name, value in given.items())})"


def _brief(value: Any) -> str:
    if getattr(value, "shape", ()) and hasattr(value, "dtype"):
        return f"{type(value).__name__}{tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_brief(inner)}' for key, inner in value.items())}}}"
    if type(value) is tuple and any(hasattr(inner, "dtype") for inner in value):
        return f"({', '.join(map(_brief, value))})"
    return repr(value)


def _harmless(character: str) -> bool:
    controls = unicodedata.category(character) in ("Cc", "Cs") and character not in _ALLOWED
    return not controls and character not in _TURNING
