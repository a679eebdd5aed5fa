"""Tokens as labels: their text, also where a character is split over several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..._base.extras import require
from ...generation.tokenizer import Tokenizer

_SHOWN = {" ": "␣", "\n": "↵", "\t": "⇥"}
_RAISED, _LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹", "₀₁₂₃₄₅₆₇₈₉"


def token_labels(tokenizer: Tokenizer, tokens: Iterable[int]) -> list[str]:
    """Text of each token, such that every character can be told.

    A space is ``␣``, a line break ``↵``, a tab ``⇥``. Of a character whose bytes lie in several tokens, each shows the
    whole character and its part: ``猫¹⁄₂``, ``猫²⁄₂``. Bytes that are no character, and control characters, are
    escapes (``\\xff``); a token without text is ``⟨begin⟩``, ``⟨end⟩`` or its number, ``⟨7⟩``.

    >>> from dual_attention.generation.tokenizer import ByteTokenizer
    >>> token_labels(ByteTokenizer(), [97, 32, 10])
    ['a', '␣', '↵']
    """
    ids = list(tokens)
    data = [tokenizer.token_bytes(token) for token in ids]
    labels = [""] * len(ids)
    owner = [place for place, part in enumerate(data) for _ in part]
    start = 0
    for text, size in _characters(b"".join(data)):
        places = list(dict.fromkeys(owner[start : start + size]))
        for number, place in enumerate(places, 1):
            labels[place] += text + (_fraction(number, len(places)) if len(places) > 1 else "")
        start += size
    special = {tokenizer.begin: "begin", tokenizer.end: "end"}
    names = [f"⟨{special.get(token, token)}⟩" for token in ids]
    return [label or name for label, name in zip(labels, names, strict=True)]


def _characters(data: bytes) -> Iterator[tuple[str, int]]:
    """Text and number of bytes of each character, and of each byte that belongs to none."""
    for character in data.decode("utf-8", "surrogateescape"):
        byte = ord(character) - 0xDC00  # of one that belongs to no character
        yield (f"\\x{byte:02x}", 1) if 0x80 <= byte <= 0xFF else (_shown(character), len(character.encode()))


def _shown(character: str) -> str:
    if character in _SHOWN:
        return _SHOWN[character]
    # What is not printable includes marks that turn the direction of writing, and joiners.
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def _fraction(part: int, whole: int) -> str:
    return f"{_RAISED[part]}⁄{_LOWERED[whole]}"


def drawable(labels: Iterable[str]) -> list[str]:
    """Labels in which characters that the font of figures lacks are written ``U+732B``.

    >>> drawable(["cat", chr(0x732B)])
    ['cat', 'U+732B']
    """
    manager = require("matplotlib.font_manager", extra="train")
    glyphs = manager.get_font(manager.findfont(manager.FontProperties())).get_charmap()
    return ["".join(one if ord(one) in glyphs else f"U+{ord(one):04X}" for one in label) for label in labels]
