"""Tokens in shards: those of one process, whatever stopped or damaged them."""

import os
import threading

import numpy as np
import pytest

from dat.data.text import shards
from dat.data.text.files import Piece
from dat.data.text.shards import NoText, make_shards, open_shards, shards_are_whole
from dual_attention.generation.tokenizer import BytePairTokenizer, ByteTokenizer, Tokenizer

PIECES = [Piece(f"document {i}\n" * (i % 5 + 1), i % 7 != 3) for i in range(60)]
"""Some documents are of two pieces."""


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(shards, "SHARD", 200)


def make(folder, tokenizer: Tokenizer | None = None, pieces=PIECES, **more) -> None:
    make_shards(folder, lambda: iter(pieces), tokenizer or ByteTokenizer(), {"kind": "test"}, **more)


def tokens_of(folder) -> list[int]:
    tokens = open_shards(folder).tokens
    return tokens[0 : len(tokens)].tolist()


def serial(tokenizer: Tokenizer) -> list[int]:
    found: list[int] = []
    for piece in PIECES:
        found += [tokenizer.end] * piece.begins + tokenizer.encode(piece.text)
    return found


def files(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


@pytest.mark.parametrize("threads", [1, 4])
def test_the_tokens_are_those_of_one_process(tmp_path, threads):
    learned = BytePairTokenizer.train((piece.text for piece in PIECES), 280)
    for tokenizer in (ByteTokenizer(), learned):
        told: list[tuple[int, int]] = []
        folder = tmp_path / tokenizer.kind
        make(folder, tokenizer, threads=threads, report=lambda *numbers, told=told: told.append(numbers))
        assert tokens_of(folder) == serial(tokenizer) and len(told) == len(list(folder.glob("*.npy"))) - 1 > 5
        assert told[-1] == (sum(len(piece.text) for piece in PIECES), len(serial(tokenizer)))
        documents = open_shards(folder)[1]
        assert (np.array(serial(tokenizer))[documents.starts] == tokenizer.end).all()
        assert len(documents.starts) == len(documents.hashes) == sum(piece.begins for piece in PIECES)


def test_documents_are_hashed_by_their_text(tmp_path, monkeypatch):
    make(tmp_path / "a")
    monkeypatch.setattr(shards, "SHARD", 1 << 20)
    make(tmp_path / "b", BytePairTokenizer.train(["document"], 260))
    assert (open_shards(tmp_path / "a")[1].hashes == open_shards(tmp_path / "b")[1].hashes).all()


class Counting(ByteTokenizer):
    """Bytes; it counts its calls, and may stop at one of them."""

    def __init__(self, stop: int | None = None) -> None:
        self.calls, self.stop = 0, stop

    def encode(self, text: str) -> list[int]:
        self.calls += 1
        if self.calls == self.stop:
            raise KeyboardInterrupt
        return super().encode(text)


def test_what_a_stopped_process_made_is_kept(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "a", Counting(stop=40), threads=1)
    assert not shards_are_whole(tmp_path / "a") and len(list((tmp_path / "a").glob("tokens-*.npy"))) > 2
    rest = Counting()
    make(tmp_path / "a", rest)
    assert 0 < rest.calls < 40 and tokens_of(tmp_path / "a") == serial(rest)
    make(tmp_path / "b")
    assert files(tmp_path / "a") == files(tmp_path / "b")
    again = Counting()
    make(tmp_path / "a", again)
    assert again.calls == 0


def test_what_is_whole_is_read_where_nothing_can_be_written(tmp_path, monkeypatch):
    make(tmp_path / "kept", pieces=[*PIECES, Piece(" ", True)])
    before = files(tmp_path / "kept")
    (tmp_path / "kept" / ".lock").unlink()
    (tmp_path / "linked").symlink_to(tmp_path / "kept")
    for folder in ("kept", "linked"):
        make(tmp_path / folder)
    assert not (tmp_path / "kept" / ".lock").exists() and (tmp_path / "linked").is_symlink()
    text = open_shards(tmp_path / "linked")
    assert (text.characters, text.empty) == (sum(len(piece.text) for piece in PIECES), 1)
    (tmp_path / "kept" / "tokens-00002.npy").write_bytes(b"damaged")
    make(tmp_path / "linked")  # not through the link
    assert tokens_of(tmp_path / "linked") == serial(ByteTokenizer()) and not (tmp_path / "linked").is_symlink()
    assert files(tmp_path / "kept") == {**before, "tokens-00002.npy": b"damaged"}


@pytest.mark.parametrize("name", ["tokens-00002.npy", "tokens-00002.json", "documents.npy", "about.json"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_what_is_damaged_is_made_again(tmp_path, name, damage):
    folder = tmp_path / "a"
    make(folder)
    before, path = files(folder), folder / name
    data = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        data[-3] ^= 4
        path.write_bytes(data if damage == "flipped" else data[: len(data) // 2])
    tokenizer = Counting()
    make(folder, tokenizer)
    assert files(folder) == before and tokenizer.calls < 20


def test_other_text_in_the_place_of_a_shard_is_not_taken(tmp_path):
    make(tmp_path / "a")
    (tmp_path / "a" / "about.json").unlink()
    other = [*PIECES[:30], Piece("another", True), *PIECES[31:]]
    make(tmp_path / "a", pieces=other)
    assert b"another" in bytes(token for token in tokens_of(tmp_path / "a") if token < 256)


def test_two_at_once_make_it_once(tmp_path):
    tokenizer = Counting()
    both = [threading.Thread(target=make, args=(tmp_path / "a", tokenizer)) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert tokenizer.calls == len(PIECES) and tokens_of(tmp_path / "a") == serial(tokenizer)


def test_no_text_and_no_room(tmp_path):
    with pytest.raises(NoText):
        make(tmp_path / "a", pieces=[])
    if os.path.exists("/dev/full"):
        (tmp_path / "b").write_text("a file")
        with pytest.raises(OSError):
            make(tmp_path / "b")
