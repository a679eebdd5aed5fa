"""Tokenizers as ``tokenizer.json``, the format of Hugging Face: written for transformers, and read.

Byte-level tokens are texts there, with one printable character for each byte. Writing needs no other package; reading
needs ``tokenizers`` (the extra ``language``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .._base.extras import require
from .._base.files import read_json_object, write_json
from .tokenizer import GPT2_PATTERN, BytePairTokenizer, Tokenizer, characters_of_bytes

TOKENIZER_JSON = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
END = "<|endoftext|>"
"""Text of the end token."""


def write_tokenizer_json(tokenizer: Tokenizer, folder: Path, *, context: int) -> None:
    """Write the two files with which ``transformers.AutoTokenizer`` encodes and decodes as the tokenizer does.

    Args:
        tokenizer: one of bytes or byte pairs.
        context: the most tokens that the model sees.
    """
    write_json(folder / TOKENIZER_JSON, as_tokenizer_json(tokenizer))
    special = {"bos_token": END, "eos_token": END}
    if isinstance(tokenizer, JsonTokenizer):
        special = tokenizer.special_texts()
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


def as_tokenizer_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """Contents of ``tokenizer.json``."""
    if isinstance(tokenizer, JsonTokenizer):
        return tokenizer.contents
    pairs = isinstance(tokenizer, BytePairTokenizer)
    if not pairs and tokenizer.kind != "bytes":
        raise TypeError(f"tokenizer: expected one of bytes or byte pairs, got {type(tokenizer).__name__}")
    names = characters_of_bytes()
    tokens = [tokenizer.token_bytes(token) for token in range(tokenizer.end)]
    texts = ["".join(names[byte] for byte in token) for token in tokens]
    merges = [[texts[a], texts[b]] for a, b in tokenizer.merges()] if isinstance(tokenizer, BytePairTokenizer) else []
    split = {"type": "Split", "pattern": {"Regex": GPT2_PATTERN}, "behavior": "Isolated", "invert": False}
    to_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": tokenizer.end, "content": END, **special}],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*([split] if pairs else []), to_bytes]},
        "post_processor": None,
        "decoder": to_bytes,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text: token for token, text in enumerate(texts)} | {END: tokenizer.end},
            "merges": merges,
        },
    }


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
