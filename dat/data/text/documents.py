"""Documents within tokens: where each begins, which are there twice, and which are kept apart to validate on."""

from __future__ import annotations  # numpy is imported when it is used

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from dual_attention._base.digests import document_hash
from dual_attention._base.words import counted

from ..._numpy import np

PARTS = 8
"""Parts to keep apart of a text that has too few documents, about."""

_BLOCK = 1 << 24  # tokens of a file that are looked at together


class Tokens(Protocol):
    """A vector of token ids that is read in slices."""

    def __len__(self) -> int: ...

    def __getitem__(self, where: slice, /) -> np.ndarray: ...


class Documents(NamedTuple):
    """The documents of vectors of tokens, end to end.

    Attributes:
        starts: the first token of each, int64 ``(n,)``, ascending; the first is 0.
        hashes: a hash of what each says, uint64 ``(n,)``.
    """

    starts: np.ndarray
    hashes: np.ndarray


class TokenView:
    """Stretches of vectors of tokens, read as one vector; nothing is copied until it is read.

    Args:
        arrays: vectors of integers.
        stretches: first token and end of each, counted through all arrays, int64 ``(n, 2)``.
    """

    def __init__(self, arrays: Sequence[Tokens], stretches: np.ndarray) -> None:
        self._arrays = list(arrays)
        self._begins = np.cumsum([0, *map(len, self._arrays)])
        self._starts = stretches[:, 0]
        self._ends = np.cumsum(stretches[:, 1] - stretches[:, 0])

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, where: slice, /) -> np.ndarray:
        """The tokens of a slice without a step, a copy."""
        place, stop, _ = where.indices(len(self))
        found = [np.empty(0, dtype=np.uint16)]
        which = int(np.searchsorted(self._ends, place, side="right"))
        while place < stop:
            n = int(min(stop, self._ends[which])) - place
            offset = place - (int(self._ends[which - 1]) if which else 0)
            found += self._read(int(self._starts[which]) + offset, n)
            place, which = place + n, which + 1
        return np.concatenate(found)

    def _read(self, place: int, n: int) -> list[np.ndarray]:
        """Tokens from ``place`` on, counted through all arrays."""
        found = []
        which = int(np.searchsorted(self._begins, place, side="right")) - 1
        while n > 0:
            first = place - int(self._begins[which])
            part = self._arrays[which][first : first + n]
            found.append(part)
            place, n, which = place + len(part), n - len(part), which + 1
        return found


def hash_of_text(digest: Any) -> int:
    """The number that stands for a document, from :func:`document_hash` of all its text."""
    return int.from_bytes(digest.digest(), "little")


def find_documents(arrays: Sequence[Tokens], end: int) -> Documents:
    """The documents of vectors of tokens: one begins with each vector, and with each token ``end``.

    All tokens are read, so with many vectors it takes a while.
    """
    starts: list[int] = []
    hashes: list[int] = []
    before = 0
    for array in arrays:
        begins = {0} if len(array) else set[int]()
        for block in range(0, len(array), _BLOCK):
            begins.update((block + np.flatnonzero(array[block : block + _BLOCK] == end)).tolist())
        for first, stop in pairwise([*sorted(begins), len(array)]):
            digest = document_hash()
            digest.update(np.ascontiguousarray(array[first:stop], dtype="<u4"))
            starts.append(before + first)
            hashes.append(hash_of_text(digest))
        before += len(array)
    return Documents(np.array(starts, dtype=np.int64), np.array(hashes, dtype=np.uint64))


def split_documents(
    arrays: Sequence[Tokens], documents: Documents, fraction: float, *, least: int
) -> tuple[TokenView, TokenView, dict[str, Any]]:
    """All documents but some, and those to validate on; each document once.

    Which are kept apart follows from hashes of what they say, so it is the same whatever the order of files, the seed
    of a run and its model. They come in the order of their hashes, a mixed one. A text with too few documents for that
    share is cut into parts of equal length instead, which are chosen in the same way.

    Args:
        fraction: share of the tokens to keep apart, about.
        least: tokens to keep apart at least.

    Returns:
        What to train on, what to validate on, and how they were split, as JSON.

    Raises:
        ValueError: if the text is shorter than two such parts.
    """
    size = sum(map(len, arrays))
    stretches = np.stack([documents.starts, np.append(documents.starts, size)[1:]], axis=1)
    first = np.sort(np.unique(documents.hashes, return_index=True)[1])
    about: dict[str, Any] = {"documents": len(first), "duplicates": len(stretches) - len(first)}
    hashes, stretches = documents.hashes[first], stretches[first]
    lengths = stretches[:, 1] - stretches[:, 0]
    wanted = max(round(fraction * int(lengths.sum())), least)
    chosen = _choose(np.argsort(hashes), lengths, wanted)
    if lengths[chosen].sum() < max(wanted / 2, least) or len(chosen) == len(stretches):
        stretches = _parts(stretches, wanted, least, about["duplicates"])
        lengths = stretches[:, 1] - stretches[:, 0]
        chosen = _choose(np.argsort([_hash_of_number(i) for i in range(len(stretches))]), lengths, wanted)
        about |= {"parts": len(stretches)}
    kept = np.zeros(len(stretches), dtype=bool)
    kept[chosen] = True
    about |= {"kept apart": len(chosen)}
    return TokenView(arrays, _joined(stretches[~kept])), TokenView(arrays, stretches[chosen]), about


def _choose(order: np.ndarray, lengths: np.ndarray, wanted: int) -> np.ndarray:
    """Items in that order until they have the wanted length, without those that are too long for it."""
    found, total = [], 0
    for item in order.tolist():
        if total >= wanted:
            break
        if total + lengths[item] <= 1.25 * wanted:  # more is too much to keep apart
            found.append(item)
            total += int(lengths[item])
    return np.array(found, dtype=np.int64)


def _parts(stretches: np.ndarray, wanted: int, least: int, duplicates: int) -> np.ndarray:
    """The stretches cut into parts of one length, as far as it fits."""
    size = max(least, wanted // PARTS)
    cut = [
        (place, min(place + size, int(stop)))
        for start, stop in stretches
        for place in range(int(start), int(stop), size)
    ]
    whole = sum(stop - start == size for start, stop in cut)
    if whole < 2:
        length = int((stretches[:, 1] - stretches[:, 0]).sum())
        without = f" without {counted(duplicates, 'document')} that {'is' if duplicates == 1 else 'are'} there twice"
        raise ValueError(
            f"expected at least {2 * size:,} tokens, of which some are kept apart to validate on, got {length:,}"
            f"{without if duplicates else ''}"
        )
    return np.array(cut, dtype=np.int64)


def _hash_of_number(number: int) -> int:
    digest = document_hash()
    digest.update(number.to_bytes(8, "little"))
    return hash_of_text(digest)


def _joined(stretches: np.ndarray) -> np.ndarray:
    """Stretches of which none begins where the one before it ends."""
    if not len(stretches):
        return stretches
    apart = np.flatnonzero(stretches[1:, 0] != stretches[:-1, 1])
    starts = np.append(stretches[0, 0], stretches[apart + 1, 0])
    return np.stack([starts, np.append(stretches[apart, 1], stretches[-1, 1])], axis=1)
