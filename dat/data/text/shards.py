"""Tokens of a text in a folder of shards: made in parallel, continued after a stop, checked whenever they are opened.

A shard holds some pieces of the text in a row. Its record says which text it was made of and what its files hash to, so
one that a stopped process made is kept, and one that is damaged is made again. In a row, the tokens of all shards are
those that one process would write.
"""

from __future__ import annotations  # numpy is imported when it is used

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from dual_attention._base.checksums import sha256_of
from dual_attention._base.digests import document_hash
from dual_attention._base.extras import require
from dual_attention._base.files import read_json_object, remove_leftovers, replaced_atomically, write_json
from dual_attention.generation.tokenizer import Tokenizer

from ..._numpy import np
from .documents import Documents, Tokens, TokenView, hash_of_text
from .files import Piece

SHARD = 1 << 25
"""Characters of a shard, about; a piece is never cut."""
ABOUT = "about.json"
"""File of a folder whose shards are complete; it says what they were made of, and how many there are."""
DOCUMENTS = "documents.npy"

Report = Callable[[int, int], None]
"""``report(characters, tokens)`` is told how far the text has been tokenized."""


class NoText(ValueError):
    """A text has no document that is not empty."""


class TokenizedText(NamedTuple):
    """A text in shards.

    Attributes:
        tokens: of all shards in a row, mapped into memory.
        documents: where they begin.
        characters: how many it has; None if an older version did not note it.
        empty: documents without text, which were left out; None likewise.
    """

    tokens: Tokens
    documents: Documents
    characters: int | None
    empty: int | None


class Shard(NamedTuple):
    """A shard that is there.

    Attributes:
        characters, tokens: their number.
        starts: the first token of each document that begins in it.
    """

    characters: int
    tokens: int
    starts: list[int]


def make_shards(
    folder: Path,
    pieces: Callable[[], Iterable[Piece]],
    tokenizer: Tokenizer,
    origin: dict[str, Any],
    *,
    threads: int | None = None,
    report: Report | None = None,
) -> None:
    """Tokenize a text into ``folder``, unless it is there; shards of it that are there already and whole are kept.

    Another process that makes the same is waited for. Where all is there and whole, nothing is written; and nothing is
    written through a link, which is replaced instead.

    Args:
        pieces: the text, read from its beginning.
        origin: what identifies it, written down with the shards.
        threads: that tokenize at the same time, as the libraries of byte pairs can; None takes one for each core.
        report: told of the progress.

    Raises:
        NoText: if there is none.
    """
    if shards_are_whole(folder):
        return
    if folder.is_symlink():
        folder.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    with require("filelock", extra="train").FileLock(folder / ".lock"):
        if shards_are_whole(folder):
            return
        remove_leftovers(folder)
        (folder / ABOUT).unlink(missing_ok=True)
        starts: list[int] = []
        hashes: list[int] = []
        dropped: Counter[str] = Counter()
        tokens = characters = count = 0
        batches = _batches(_hashed(pieces(), hashes, dropped))
        for shard in _in_parallel(folder, batches, tokenizer, threads or os.cpu_count() or 1):
            starts += [tokens + start for start in shard.starts]
            tokens, characters, count = tokens + shard.tokens, characters + shard.characters, count + 1
            if report is not None:
                report(characters, tokens)
        if not tokens:
            raise NoText(f"{folder}: there is no text to tokenize")
        _write_array(folder / DOCUMENTS, np.array([starts, hashes], dtype=np.uint64))
        sizes = {"shards": count, "tokens": tokens, "documents": sha256_of(folder / DOCUMENTS)}
        write_json(folder / ABOUT, {"origin": origin, **sizes, "characters": characters, "empty": dropped["empty"]})


def shards_are_whole(folder: Path) -> bool:
    """Whether a folder holds all shards of a text, and each is as it was written."""
    try:
        about = read_json_object(folder / ABOUT)
        names = range(about["shards"])
        return sha256_of(folder / DOCUMENTS) == about["documents"] and all(
            sha256_of(_tokens_of(folder, i)) == read_json_object(_record_of(folder, i))["sha256"] for i in names
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def open_shards(folder: Path) -> TokenizedText:
    """The text in the shards of a folder."""
    about = read_json_object(folder / ABOUT)
    count = about["shards"]
    arrays = [np.load(_tokens_of(folder, i), mmap_mode="r") for i in range(count)]
    starts, hashes = np.load(folder / DOCUMENTS)
    whole = np.array([[0, sum(map(len, arrays))]], dtype=np.int64)
    tokens = arrays[0] if count == 1 else TokenView(arrays, whole)
    return TokenizedText(
        tokens, Documents(starts.astype(np.int64), hashes), about.get("characters"), about.get("empty")
    )


def _hashed(pieces: Iterable[Piece], hashes: list[int], dropped: Counter[str]) -> Iterator[Piece]:
    """The pieces but empty ones, which are counted; a hash of each document is appended to ``hashes`` when it ends."""
    digest: Any = None
    for piece in pieces:
        if piece.empty:
            dropped["empty"] += 1
            continue
        if piece.begins:
            if digest is not None:
                hashes.append(hash_of_text(digest))
            digest = document_hash()
        digest.update(piece.text.encode())
        yield piece
    if digest is not None:
        hashes.append(hash_of_text(digest))


def _batches(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Pieces in a row that make a shard."""
    batch: list[Piece] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece.text)
        if size >= SHARD:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _in_parallel(folder: Path, batches: Iterable[list[Piece]], tokenizer: Tokenizer, threads: int) -> Iterator[Shard]:
    """The shards in their order; no more batches are held than threads work on, and one."""
    executor = ThreadPoolExecutor(threads)
    running: deque[Future[Shard]] = deque()
    try:
        for number, batch in enumerate(batches):
            running.append(executor.submit(_shard, folder, number, batch, tokenizer))
            if len(running) > threads:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _shard(folder: Path, number: int, batch: list[Piece], tokenizer: Tokenizer) -> Shard:
    """Make a shard, unless it is there, made of the same text and as it was written."""
    digest = document_hash()
    for piece in batch:
        digest.update(b"\1" if piece.begins else b"\0")
        digest.update(piece.text.encode())
    path, record, text = _tokens_of(folder, number), _record_of(folder, number), f"{hash_of_text(digest):016x}"
    characters = sum(len(piece.text) for piece in batch)
    try:
        known = read_json_object(record)
        if known["text"] == text and known["sha256"] == sha256_of(path):
            return Shard(characters, known["tokens"], known["starts"])
    except (OSError, ValueError, KeyError):
        pass  # there is none, or not a whole one
    dtype = np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")
    parts = [np.array([tokenizer.end] * piece.begins + tokenizer.encode(piece.text), dtype=dtype) for piece in batch]
    places = np.cumsum([0, *map(len, parts)]).tolist()
    starts = [place for place, piece in zip(places, batch, strict=False) if piece.begins]
    record.unlink(missing_ok=True)
    _write_array(path, np.concatenate(parts))
    write_json(record, {"text": text, "tokens": places[-1], "starts": starts, "sha256": sha256_of(path)})
    return Shard(characters, places[-1], starts)


def _write_array(path: Path, array: np.ndarray) -> None:
    with replaced_atomically(path) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def _tokens_of(folder: Path, number: int) -> Path:
    return folder / f"tokens-{number:05}.npy"


def _record_of(folder: Path, number: int) -> Path:
    return folder / f"tokens-{number:05}.json"
