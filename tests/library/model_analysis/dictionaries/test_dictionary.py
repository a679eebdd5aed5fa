"""Files of dictionaries."""

from __future__ import annotations

import json

import pytest

from dual_attention.model_analysis.dictionaries import (
    DictionaryEntry,
    PairContext,
    PairExample,
    RelationDictionary,
    load_dictionary,
)


@pytest.fixture
def dictionary() -> RelationDictionary:
    def example(value, document, receiver, sender):
        contexts = PairContext(0, (5, 6, 7)), PairContext(2, ())
        return PairExample(value, document, receiver, sender, 6, 7, *contexts)

    entries = (
        DictionaryEntry("blocks.0", 1, "high", 1, example(0.1 + 0.2, 3, 1, 0), (example(-1e-30, 4, 2, 1),)),
        DictionaryEntry("blocks.0", 1, "low", 1, example(-2.5, 3, 1, 0), ()),
        DictionaryEntry("blocks.2", 0, "high", 1, example(1.0, 9, 5, 4), ()),
    )
    return RelationDictionary(entries, {"documents": 10, "layers": None})


@pytest.mark.parametrize("name", ["d.jsonl", "d.parquet"])
def test_files_keep_everything(dictionary, name, tmp_path):
    dictionary.save(tmp_path / name)
    assert load_dictionary(tmp_path / name) == dictionary
    RelationDictionary((), {}).save(tmp_path / name)
    assert load_dictionary(tmp_path / name) == RelationDictionary((), {})


def test_lines_are_json(dictionary, tmp_path):
    dictionary.save(tmp_path / "d.jsonl")
    about, first, *others = map(json.loads, (tmp_path / "d.jsonl").read_text().splitlines())
    assert about == {"about": {"documents": 10, "layers": None}} and len(others) == 2
    assert first["example"]["receiver_context"] == {"start": 0, "tokens": [5, 6, 7]}


def test_entries_by_relation(dictionary):
    assert dictionary.relations == [("blocks.0", 1), ("blocks.2", 0)]
    assert [entry.example.value for entry in dictionary.of("blocks.0", 1, "low")] == [-2.5]
    with pytest.raises(ValueError, match=r"relation: expected one of blocks.0 1, blocks.2 0, got blocks.1 0 \(high\)"):
        dictionary.of("blocks.1", 0)


def test_other_files_are_refused(dictionary, tmp_path):
    with pytest.raises(ValueError, match=r"path: expected a name that ends in .jsonl or .parquet, got 'd.txt'"):
        dictionary.save(tmp_path / "d.txt")
    for text in ("", "{}\n", "nonsense", '{"about": {}}\n{"layer": 1}\n'):
        (tmp_path / "d.jsonl").write_text(text)
        with pytest.raises(ValueError, match=r"d\.jsonl: not a relation dictionary"):
            load_dictionary(tmp_path / "d.jsonl")
    (tmp_path / "d.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"d\.parquet: not a relation dictionary"):
        load_dictionary(tmp_path / "d.parquet")
    with pytest.raises(FileNotFoundError):
        load_dictionary(tmp_path / "nothing.jsonl")
