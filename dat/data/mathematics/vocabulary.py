"""Questions and answers as characters: the vocabulary of the paper, and padding.

Shapes: n texts, L = 161 positions of a question, T + 1 = 32 of an answer between its start and its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from ..._numpy import np

if TYPE_CHECKING:
    from torch import Tensor

LONGEST_QUESTION = 160
"""Characters of the longest question; the generator draws again what is longer."""
LONGEST_ANSWER = 30

QUESTION_LENGTH = LONGEST_QUESTION + 1
ANSWER_LENGTH = LONGEST_ANSWER + 1
"""Positions of a question and of an answer, each with its end."""


VOCABULARY = ("", *(character for character in map(chr, range(32, 127)) if character not in '"#$%&\\^_`|~'))
"""The 85 entries by index: padding, and 84 characters of ASCII in its order."""

PAD, END, START = 0, VOCABULARY.index(";"), VOCABULARY.index("@")
"""Indices of padding, and of the ends of a text, whose characters occur in none."""

_UNKNOWN = 255


@cache
def _index() -> np.ndarray:
    """The index of each character of ASCII."""
    found = np.full(128, _UNKNOWN, dtype=np.uint8)
    for number, character in enumerate(VOCABULARY):
        if number not in (PAD, END, START):
            found[ord(character)] = number
    return found


def encode_questions(questions: Sequence[str]) -> Tensor:
    """Questions as indices with an end, padded: uint8 ``(n, 161)``.

    Raises:
        ValueError: naming the first question that is too long or has a character that is not in the vocabulary.
    """
    import torch  # not at the top: processes that only draw questions begin 1.6 s sooner

    return torch.from_numpy(_encode(questions, LONGEST_QUESTION, "question"))


def encode_answers(answers: Sequence[str]) -> Tensor:
    """Answers as indices between a start and an end, padded: uint8 ``(n, 32)``; errors as :func:`encode_questions`."""
    import torch

    codes = _encode(answers, LONGEST_ANSWER, "answer")
    return torch.from_numpy(np.concatenate([np.full((len(codes), 1), START, dtype=np.uint8), codes], axis=1))


def decode_text(indices: Tensor) -> str:
    """The text of indices ``(m,)`` up to an end or padding, without a start."""
    text = ""
    for index in indices.tolist():
        if index in (PAD, END):
            break
        text += "" if index == START else VOCABULARY[index]
    return text


def _encode(texts: Sequence[str], longest: int, kind: str) -> np.ndarray:
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    if len(texts) and lengths.max() > longest:
        text = texts[int(lengths.argmax())]
        raise ValueError(f"{kind}: expected at most {longest} characters, got {len(text)}: {text[:80]!r}")
    joined = "".join(texts)
    found = _index()[np.frombuffer(joined.encode(), dtype=np.uint8)] if joined.isascii() else np.array([_UNKNOWN])
    if (found == _UNKNOWN).any():
        raise ValueError(_strange(texts, kind))
    codes = np.zeros((len(texts), longest + 1), dtype=np.uint8)
    codes[np.arange(longest + 1) < lengths[:, None]] = found
    codes[np.arange(len(texts)), lengths] = END
    return codes


def _strange(texts: Sequence[str], kind: str) -> str:
    """Sentence on the first character that no text may have."""
    allowed = {character for character in VOCABULARY if character} - {VOCABULARY[END], VOCABULARY[START]}
    text, character = next((text, c) for text in texts for c in text if c not in allowed)
    return f"{kind}: expected characters of the vocabulary, got {character!r} in {text[:80]!r}"
