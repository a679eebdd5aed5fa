"""One clean file of text from folders."""

import gzip
import json

import pytest

from dat.cli.main import main
from dat.data.text.corpus import clean_text
from tests.lab.cli.commands import refusal


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_text_is_tidied():
    assert clean_text("\n a  \r\nb\r\n\n\n\nc\rd\n\n") == "a\nb\n\nc\nd"
    assert clean_text("u\u0308") == "ü"


def test_a_file_of_documents(tmp_path, capsys):
    folder = tmp_path / "in" / "deep"
    folder.mkdir(parents=True)
    (folder / "b.rst.txt").write_text("Ü " * 20)
    (folder / "c.md.gz").write_bytes(gzip.compress(("c " * 20).encode()))
    (tmp_path / "in" / "copy.txt").write_text("Ü " * 19 + "Ü\n\n")
    (tmp_path / "in" / "short.txt").write_text("short")
    (tmp_path / "in" / "a.html").write_text("<p>" * 20)
    out = tmp_path / "out.jsonl"
    command = ["data", "language", "--out", str(out), "--path", str(tmp_path / "in"), "--shortest", "20"]
    assert main(command) == 0
    kept = (("Ü", "copy.txt"), ("c", "deep/c.md.gz"))
    assert lines(out) == [{"text": (letter + " ") * 19 + letter, "source": source} for letter, source in kept]
    said = capsys.readouterr().out
    assert "2 documents, 40 words, 78 characters; left out: 1 that are there already, 1 shorter than 20 " in said
    assert main(command) == 2 and "exists already and is not overwritten" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"\xff" * 50, "not UTF-8 text"),
        ("a.txt", b"a\0" * 50, "a zero byte"),
        ("a.txt.gz", b"no gzip" * 50, "not UTF-8 text"),
        ("a.txt", b"short", "there is no text of 1000 characters"),
        ("a.py", b"x = 1\n" * 500, "path: there are no files *.txt or "),
    ],
    ids=["latin", "zero", "gzip", "short", "other"],
)
def test_what_is_no_text(tmp_path, capsys, name, content, message):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(content)
    command = ["data", "language", "--out", tmp_path / "o.jsonl", "--path"]
    assert message in refusal(capsys, *command, f"[{tmp_path / 'in'}]") and not (tmp_path / "o.jsonl").exists()
    assert "path: expected folders, got" in refusal(capsys, *command, f"[{tmp_path / 'none'}]")


def test_a_corpus_of_babylm(tmp_path, capsys):
    """Markers part documents; titles are text, but not in CHILDES and Project Gutenberg, where they are paths."""
    folder = tmp_path / "train_10M"
    folder.mkdir()
    wiki = "= = = Water = = =\nIt is wet.\n\n= = = Salt = = =\nIt is = = = salty.\n"
    (folder / "simple_wiki.train").write_text(wiki, newline="\r\n")
    (folder / "childes.train").write_text("= = = /a/b.cha = = =\n*CHI: more.  \n= = = /a/c.cha = = =\n*MOT: no.\n")
    (folder / "gutenberg.train.txt").write_text("before\n = = = PG11 = = =\nOnce.\n")
    (folder / "switchboard.train.txt").write_text("A: hi\nB: hi\n")
    (folder / "notes.txt").write_text("no part of it")
    out = tmp_path / "out.jsonl"
    assert main(["data", "language", "--layout=babylm", f"--path={folder}", f"--out={out}"]) == 0
    assert [(line["source"], line["text"]) for line in lines(out)] == [
        ("childes.train", "*CHI: more."),
        ("childes.train", "*MOT: no."),
        ("gutenberg.train.txt", "before"),
        ("gutenberg.train.txt", "Once."),
        ("simple_wiki.train", "Water\nIt is wet."),
        ("simple_wiki.train", "Salt\nIt is = = = salty."),
        ("switchboard.train.txt", "A: hi\nB: hi"),
    ]
    assert "7 documents, 21 words" in capsys.readouterr().out
