"""Text to tokens to sequences: nothing lost, nothing repeated, the same each time."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from dat.data.text import files as text_module
from dat.data.text.files import find_files, read_pieces
from dat.experiments.language.config import LanguageDataConfig
from dat.experiments.language.data import TextSequences, load_data, make_tokenizer
from dual_attention.generation.tokenizer import ByteTokenizer
from tests.support.refusals import refusals

from .conftest import TEXT

BYTES = ByteTokenizer()


def load(config: LanguageDataConfig, tmp_path, context: int = 8):
    return load_data(config, BYTES, context=context, vocab_size=257, seed=0, cache=tmp_path / "cache")


def documents(path, separator="|") -> list[str]:
    found: list[str] = []
    for piece in (piece for piece in read_pieces(path, separator) if not piece.empty):
        if piece.begins:
            found.append(piece.text)
        else:
            found[-1] += piece.text
    return found


@pytest.mark.parametrize("block", [1, 7, 1 << 22])
def test_documents_whatever_the_size_of_blocks(tmp_path, monkeypatch, block):
    monkeypatch.setattr(text_module, "BLOCK", block)
    (tmp_path / "a.txt").write_bytes("one ü\n\nline\r\n\n  two||\n|<three\nfour>".encode())
    assert documents(tmp_path / "a.txt") == ["one ü\n\nline\r\n\n  two", "<three\nfour>"]
    assert documents(tmp_path / "a.txt", "<three") == ["one ü\n\nline\r\n\n  two||\n|", "\nfour>"]
    assert len(documents(tmp_path / "a.txt", "")) == 1


def test_long_documents_come_in_pieces_cut_before_line_breaks(tmp_path, monkeypatch):
    monkeypatch.setattr(text_module, "BLOCK", 50)
    (tmp_path / "a.txt").write_text(TEXT)
    pieces = list(read_pieces(tmp_path / "a.txt", "<|endoftext|>"))
    assert len(pieces) > 10 and "".join(piece.text for piece in pieces) == TEXT
    assert [piece.begins for piece in pieces] == [True] + [False] * (len(pieces) - 1)
    assert all(piece.text[0] == "\n" for piece in pieces[1:])


def test_text_that_is_no_text(tmp_path, monkeypatch):
    monkeypatch.setattr(text_module, "BLOCK", 3)
    (tmp_path / "a.txt").write_bytes("aü€".encode() + b"b\xff")
    with pytest.raises(ValueError, match=r"a\.txt: not UTF-8 text \(byte 7"):
        documents(tmp_path / "a.txt")


def test_files_folders_and_patterns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for name in ("b.txt", "in/c.txt", "in/deep/d.txt", "in/e.md", "in/s_0.npy", "in/s_1.npy"):
        (tmp_path / name).write_text("x")
    (tmp_path / "in" / "s_1.npy").write_bytes(b"\0")
    found = find_files(["b.txt", "in", "in/s_*.npy", str(tmp_path / "in" / "*.md")], "data.path")
    read = ["b.txt", "c.txt", "d.txt", "e.md", "s_0.npy", "s_0.npy", "s_1.npy", "e.md"]
    assert [path.name for path in found.files] == read and [path.name for path in found.left_out] == ["s_1.npy"]


DOCUMENTS = [f"document {i} says " + f"{i * i} " * (5 + i % 7) + "and that is that" for i in range(40)]


def pieces_of(tokens: list[int]) -> list[str]:
    """The documents of tokens in a row."""
    whole = "".join("|" if token == BYTES.end else chr(token) for token in tokens)
    return whole.removeprefix("|").split("|")


def everything(sequences: TextSequences) -> list[int]:
    return np.concatenate([array[0 : len(array)] for array in sequences.arrays]).tolist()


def test_text_is_tokenized_once_and_split_by_documents(tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("|".join([*DOCUMENTS, *DOCUMENTS[3:6]]))
    config = LanguageDataConfig(
        path=str(tmp_path / "text.txt"), separator="|", val_fraction=0.2, val_tokens=10_000, order="sequential"
    )
    data = load(config, tmp_path)
    train, val = pieces_of(everything(data.train)), pieces_of(everything(data.val))
    assert train == [text for text in DOCUMENTS if text in train]  # in their order, each once
    apart = len(DOCUMENTS) - len(train)
    split = {"fraction": 0.2, "documents": 40, "duplicates": 3, "kept apart": apart}
    assert data.origin["train"]["split"] == split
    assert set(val[:-1]) <= set(DOCUMENTS) - set(train) and 5 <= len(val) <= 12
    assert data.val_bytes == sum(token != BYTES.end for token in data.val.batch(torch.arange(len(data.val)))[1].ravel())

    monkeypatch.setattr(ByteTokenizer, "encode", None)  # not called again
    assert load(config, tmp_path).origin == data.origin


def test_what_is_kept_apart_depends_on_the_documents_only(tmp_path):
    found = []
    for turn, documents in enumerate((DOCUMENTS, DOCUMENTS[::-1])):
        (tmp_path / f"{turn}.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in documents))
        config = LanguageDataConfig(path=str(tmp_path / f"{turn}.jsonl"), val_fraction=0.2, val_tokens=10_000)
        data = load_data(config, BYTES, context=8, vocab_size=257, seed=turn, cache=tmp_path)
        found.append((everything(data.val), sorted(pieces_of(everything(data.train)))))
    assert found[0] == found[1]


def test_a_text_of_one_document_is_split_by_parts(text, tmp_path):
    config = LanguageDataConfig(path=str(text), val_fraction=0.25, val_tokens=10_000)
    data = load(config, tmp_path)
    about = data.origin["train"]["split"]
    assert (about["documents"], about["parts"] >= 20, 5 <= about["kept apart"] <= 12) == (1, True, True)
    size = len([BYTES.end, *TEXT.encode()])
    train, val = everything(data.train), everything(data.val)
    assert 0.2 * size < len(val) < 0.32 * size and size - 10 < len(train) + len(val) <= size
    assert bytes(val[-40:]) not in TEXT.encode()[-80:]  # not the end of the text


def test_several_texts_and_files_of_tokens(tmp_path):
    (tmp_path / "a.txt").write_text("a" * 30)
    (tmp_path / "v.txt").write_text("v" * 30)
    data = load(LanguageDataConfig(path=(str(tmp_path / "a.txt"),) * 2, val_path=str(tmp_path / "v.txt")), tmp_path)
    assert data.origin["train_tokens"] == 62 and set(data.val.batch(torch.tensor([0]))[1].flatten().tolist()) == {118}
    assert "also trained on" not in data.about
    data = load(LanguageDataConfig(path=str(tmp_path / "*.txt"), val_path=str(tmp_path / "v.txt")), tmp_path)
    assert "validation: 1 of its 1 documents are also trained on" in data.about

    np.save(tmp_path / "t.npy", np.arange(100, dtype=np.uint32))
    np.arange(100, 200, dtype=np.uint16).tofile(tmp_path / "t.bin")
    paths = (str(tmp_path / "t.npy"), str(tmp_path / "t.bin"))
    data = load(LanguageDataConfig(path=paths, val_path=paths[0], order="sequential"), tmp_path)
    inputs, targets = data.train.batch(torch.arange(len(data.train)))
    assert torch.equal(targets, inputs + 1) and {0, 100} <= set(inputs[:, 0].tolist())
    assert not (tmp_path / "cache" / "t.npy").exists()


PUBLISHED = [0, 48, 32, 8, 16, 24, 40, 38, 22, 6, 14, 30, 54, 46]
PERMUTED = [5, 21, 37, 45, 29, 53, 13, 12, 4, 20, 36, 52, 44, 28]


@pytest.mark.parametrize(("seed", "listed"), [(None, True), (3, True), (3, False)])
def test_a_pass_holds_each_sequence_once(seed, listed):
    arrays = [np.arange(0, 103), np.arange(1000, 1050), np.arange(7)]
    sequences = TextSequences(arrays, 10, vocab_size=2000, seed=seed, listed=listed)
    n = len(sequences)
    passes = [sequences.batch(torch.arange(i * n, (i + 1) * n))[0] for i in range(3)]
    for rows in passes:
        assert rows.shape == (n, 10) and len(set(rows.flatten().tolist())) == 10 * n  # none overlap
        assert torch.equal(rows, rows[:, :1] + torch.arange(10))
    assert torch.equal(passes[0], passes[1]) == (seed is None)
    assert n == (14 if seed is None else 9 + 4)
    again = TextSequences(arrays, 10, vocab_size=2000, seed=seed, listed=listed)
    assert torch.equal(again.batch(torch.arange(2 * n, 3 * n))[0], passes[2])
    across = torch.arange(n - 3, 2 * n + 3)  # of three passes, out of order
    turned = across[torch.randperm(len(across))]
    assert torch.equal(again.batch(turned)[0], torch.cat(passes)[turned])


def test_the_order_of_published_results_is_kept():
    """Runs that were begun before there was another order go on in theirs."""
    sequences = TextSequences([np.arange(65)], 8, vocab_size=100, seed=0)
    assert sequences.batch(torch.arange(14))[0][:, 0].tolist() == PUBLISHED
    permuted = TextSequences([np.arange(65)], 8, vocab_size=100, seed=0, listed=False)
    assert permuted.batch(torch.arange(14))[0][:, 0].tolist() == PERMUTED


def test_a_text_that_just_suffices():
    sequences = TextSequences([np.arange(11)], 10, vocab_size=20, seed=0)
    assert sequences.batch(torch.tensor([0, 5]))[1].tolist() == [list(range(1, 11))] * 2


FEW = "expected at least 18 tokens, of which some are kept apart .*, got"


@refusals(
    ("short.txt", b"short", f"{FEW} 6; the context"),
    ("none.npy", np.zeros(0, dtype=np.uint16), f"{FEW} 0; the context"),
    ("square.npy", np.zeros((3, 3), dtype=np.int64), r"expected a vector of integers, got int64 \(3, 3\)"),
    ("broken.npy", b"nothing", "not a file of tokens"),
    ("high.npy", np.full(100, 300), "expected token ids from 0 to 256, got 300 to 300"),
    ("empty.npy", b"", r"not a file of tokens \(No data left in file\)"),
    ("zipped.npy", b"PK\x05\x06" + bytes(18), "expected a vector of integers, got an archive"),
    ("empty.bin", b"", "not a file of tokens"),
    ("same.jsonl", 500 * b'{"text": "ab"}\n', ".*, got 3 without 499 documents that are there twice"),
    of="name, contents",
)
def test_wrong_files(tmp_path, name, contents, error, message):
    path = tmp_path / name
    path.write_bytes(contents) if isinstance(contents, bytes) else np.save(path, contents)
    with pytest.raises(error, match=rf"{re.escape(name)}: {message}"):
        load(LanguageDataConfig(path=str(path), val_fraction=0.2 if name == "same.jsonl" else 0.05), tmp_path)


@refusals(
    ({"path": "blank.txt"}, r"data: there is no text in blank\.txt"),
    ({"path": ("text.txt", "tokens.npy")}, "files of text or files of tokens"),
    ({"path": "nowhere"}, FileNotFoundError, r"data\.path: no such file or folder: .*nowhere; give other text with"),
    ({"tokenizer": "gpt2", "tokenizer_folder": "."}, FileNotFoundError, r"data\.tokenizer_folder"),
    ({"tokenizer_folder": "nowhere"}, r"data\.tokenizer_folder: expected null with data\.tokenizer=bytes"),
    of="changes",
)
def test_wrong_data(tmp_path, monkeypatch, text, changes, error, message):
    monkeypatch.chdir(tmp_path)
    Path("blank.txt").write_text("\n")
    np.save("tokens.npy", np.full(100, 3))
    config = LanguageDataConfig(**{"path": "text.txt", **changes})
    with pytest.raises(error, match=message):
        load(config, tmp_path) if "path" in changes else make_tokenizer(config)


def test_all_that_is_not_used_is_counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [*DOCUMENTS, *DOCUMENTS[:3], " ", None]
    Path("in").mkdir()
    Path("in/rows.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in rows))
    Path("in/more.md").write_text("one more|and another||")
    Path("in/empty.txt").touch()
    Path("in/picture.png").write_bytes(b"\x89PNG")
    config = LanguageDataConfig(path="in", separator="|", val_fraction=0.2, val_tokens=10_000)
    data = load(config, tmp_path)
    characters = sum(map(len, [*DOCUMENTS, *DOCUMENTS[:3], "one more", "and another"]))
    line, tokens = data.about.splitlines()
    assert line == (
        f"text: 3 files, 42 documents, {characters:,} characters; left out: 3 duplicates, 3 empty documents, "
        "1 file (in/picture.png)"
    )
    passed = f"{len(data.train)} sequences of 8 in a pass"
    assert tokens == f"tokens: {data.train.size:,} to train on ({passed}), {data.origin['val_tokens']} to validate on"
    assert load(config, tmp_path).about == data.about  # from the cache


def test_files_of_tokens_shorter_than_the_context_are_counted(tmp_path):
    for number, size in enumerate((100, 8, 9, 3)):
        np.arange(size, dtype=np.uint16).tofile(tmp_path / f"{number}.bin")
    data = load(LanguageDataConfig(path=str(tmp_path / "*.bin"), val_path=str(tmp_path / "0.bin")), tmp_path)
    assert data.about.splitlines() == [
        "text: 4 files; left out: 11 tokens of 2 files not longer than the context (8)",
        "validation: 1 file",
        "tokens: 109 to train on (12 sequences of 8 in a pass), 96 to validate on",
    ]


def test_a_run_goes_on_with_the_files_that_it_began_with(tmp_path):
    """Those that lie in its folder since, or that an older version left out, are not read."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("\n".join(DOCUMENTS))
    config = LanguageDataConfig(path=str(tmp_path / "in"), val_fraction=0.2)
    begun = load(config, tmp_path)
    (tmp_path / "in" / "b.md").write_text("another text")
    (tmp_path / "in" / "0").mkdir()
    (tmp_path / "in" / "0" / "a.txt").write_text("another text of that name")
    common = {"context": 8, "vocab_size": 257, "seed": 0, "cache": tmp_path / "cache"}
    data = load_data(config, BYTES, begun=begun.origin, **common)
    others = f"2 files ({tmp_path / 'in' / '0' / 'a.txt'}, {tmp_path / 'in' / 'b.md'})"
    assert data.origin == begun.origin and data.about.splitlines()[0].endswith(others)
    for other in ({}, {"train": {"files": [{"file": "c.txt"}]}}, {"train": {"files": 3}}, {"train": None}):
        assert load_data(config, BYTES, begun=other, **common).origin != begun.origin


def test_python_has_topics():
    pytest.importorskip("pydoc_data.topics")
    assert len(text_module._topics()) > 50
