"""Learned byte pairs, and tokenizers as files of Hugging Face: all encode alike."""

import json

import pytest

from dual_attention.generation.tokenizer import (
    BytePairTokenizer,
    ByteTokenizer,
    GPT2Tokenizer,
    JsonTokenizer,
    load_tokenizer,
)
from dual_attention.generation.tokenizer_json import as_tokenizer_json, write_tokenizer_json
from tests.support.refusals import refused

tokenizers = pytest.importorskip("tokenizers")

TEXT = "The cat sat on the mat, the cats' mats — naïve façade; 12345 times.\n\n  the end\n" * 20
PROBES = ("the cat", " the  mats'\n\n", "naïve 漢字 👩‍👩‍👧", "<|endoftext|>", "\x00\xad\xa0", "", "123 they'll")


@pytest.fixture(scope="module")
def learned() -> BytePairTokenizer:
    return BytePairTokenizer.train([TEXT], 300)


def kinds(learned) -> list:
    return [ByteTokenizer(), learned, GPT2Tokenizer(learned.ranks)]


def test_learned_pairs(learned):
    assert learned.vocab_size <= 300 and learned.end == learned.vocab_size - 1
    assert len(learned.encode(TEXT)) < len(TEXT.encode()) / 2
    assert all(learned.decode(learned.encode(text)) == text for text in PROBES)
    assert learned.ranks == BytePairTokenizer.train(iter([TEXT]), 300).ranks
    assert BytePairTokenizer.train(["a"], 1000).vocab_size == 257


def test_learned_pairs_are_kept(learned, tmp_path):
    learned.save(tmp_path / "t")
    again = load_tokenizer(str(tmp_path / "t"))
    assert type(again) is BytePairTokenizer and again.ranks == learned.ranks


def test_merges_make_every_token(learned):
    made = [learned.token_bytes(a) + learned.token_bytes(b) for a, b in learned.merges()]
    assert made == [learned.token_bytes(token) for token in range(256, learned.end)]


BYTES = {bytes((b,)): b for b in range(256)}


test_pairs_that_are_none = refused(
    (lambda: BytePairTokenizer.train(["text"], 256), "vocab_size: expected at least 257"),
    (lambda: BytePairTokenizer({**BYTES, b"xyz": 256}).merges(), "is not made of two that come before it"),
)


@pytest.mark.parametrize("number", range(3))
def test_the_file_encodes_alike(learned, number, tmp_path):
    tokenizer = kinds(learned)[number]
    write_tokenizer_json(tokenizer, tmp_path, context=64)
    again = JsonTokenizer(tmp_path)
    assert (again.vocab_size, again.end) == (tokenizer.vocab_size, tokenizer.end)
    for text in PROBES:
        tokens = tokenizer.encode(text)
        assert again.encode(text) == tokens
        assert [again.token_bytes(token) for token in tokens] == [tokenizer.token_bytes(token) for token in tokens]
    assert again.token_bytes(again.end) == again.token_bytes(-1) == again.token_bytes(10**6) == b""
    assert as_tokenizer_json(again) == as_tokenizer_json(tokenizer)
    again.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").encode(TEXT) == tokenizer.encode(TEXT)


PLAIN = as_tokenizer_json(ByteTokenizer())
WORD_PIECES = {**PLAIN, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}


def open_files(contents: object, config: str | None, *, tmp_path) -> None:
    """Open a tokenizer from its file, if there is one, and the configuration beside it."""
    if contents is not None:
        (tmp_path / "tokenizer.json").write_text(json.dumps(contents))
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(config)
    JsonTokenizer(tmp_path)


test_what_is_no_tokenizer = refused(
    (None, None, FileNotFoundError, r"tokenizer\.json: no such file"),
    ({}, None, r"tokenizer\.json: not a tokenizer"),
    (WORD_PIECES, None, "expected a tokenizer of byte-level pairs"),
    (PLAIN, '{"eos_token": "</s>"}', "expected an end token '</s>'"),
    *((PLAIN, text, r"tokenizer_config\.json: expected a JSON object") for text in ("null", "[]", '"text"')),
    by=open_files,
)


TRUNCATED = {"max_length": 4, "strategy": "LongestFirst", "direction": "Right", "stride": 0}
PADDING = {"pad_to_multiple_of": None, "pad_id": 7, "pad_type_id": 0, "pad_token": "x"}
PADDED = {"strategy": {"Fixed": 12}, "direction": "Left", **PADDING}


@pytest.mark.parametrize(
    "changes",
    [
        {"truncation": TRUNCATED},
        {"padding": PADDED},
        {"truncation": {**TRUNCATED, "stride": 9}},  # a panic, where it is used
        {"padding": {**PADDED, "strategy": {"Fixed": 2**40}}},  # the end of the process
        {"truncation": "anything", "padding": 3},
    ],
)
def test_truncation_and_padding_change_nothing(tmp_path, changes):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**as_tokenizer_json(ByteTokenizer()), **changes}), encoding="utf-8-sig")
    tokenizer = JsonTokenizer(path)
    assert [tokenizer.encode(text) for text in PROBES] == [ByteTokenizer().encode(text) for text in PROBES]
    tokenizer.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").encode(TEXT) == ByteTokenizer().encode(TEXT)


def test_panics_of_the_library_are_errors_that_name_the_file(tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    contents = as_tokenizer_json(ByteTokenizer())
    garbage = {"type": "Precompiled", "precompiled_charsmap": "AAAAAAAA"}
    path.write_text(json.dumps({**contents, "normalizer": garbage}))
    with pytest.raises(ValueError, match=r"tokenizer\.json: (not a tokenizer|cannot encode a text) \("):
        JsonTokenizer(path).encode("text")
    empty = {**contents["model"], "vocab": {}, "merges": []}
    path.write_text(json.dumps({**contents, "model": empty, "added_tokens": []}))
    with pytest.raises(ValueError, match=r"tokenizer\.json: expected an end token '<|endoftext|>' in the vocabulary"):
        JsonTokenizer(path)

    class Panic(BaseException):
        """As pyo3's PanicException, no Exception."""

    def panics(*_, **__):
        raise Panic("called `Result::unwrap()` on an `Err` value\nat src/lib.rs")

    path.write_text(json.dumps(contents))
    tokenizer = JsonTokenizer(path)
    monkeypatch.setattr(tokenizer, "_tokenizer", type("Rust", (), {"encode": panics}))
    with pytest.raises(ValueError, match=r"tokenizer\.json: cannot encode a text \(called .* value at src/lib\.rs\)"):
        tokenizer.encode("text")
