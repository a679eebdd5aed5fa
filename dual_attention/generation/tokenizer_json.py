"""Tokenizers written as ``tokenizer.json``, the format of Hugging Face, for transformers.

Byte-level tokens are texts there, with one printable character for each byte. It needs no other package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._base.files import write_json
from .tokenizer import (
    END,
    GPT2_PATTERN,
    TOKENIZER_CONFIG,
    TOKENIZER_JSON,
    BytePairTokenizer,
    JsonTokenizer,
    Tokenizer,
    characters_of_bytes,
)


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
