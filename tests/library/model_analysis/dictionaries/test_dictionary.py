"""Files of dictionaries."""

import json
import os
from dataclasses import asdict

import pytest

from dual_attention.model_analysis.dictionaries import (
    DictionaryEntry,
    PairContext,
    PairExample,
    RelationDictionary,
    load_dictionary,
)
from tests.support.refusals import refused


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


def test_files_keep_everything(dictionary, tmp_path):
    for one in (dictionary, RelationDictionary((), {})):
        one.save(tmp_path / "d.jsonl")
        assert load_dictionary(tmp_path / "d.jsonl") == one


def test_lines_are_json(dictionary, tmp_path):
    dictionary.save(tmp_path / "d.jsonl")
    about, first, *others = map(json.loads, (tmp_path / "d.jsonl").read_text().splitlines())
    assert about == {"about": {"documents": 10, "layers": None}} and len(others) == 2
    assert first["example"]["receiver_context"] == {"start": 0, "tokens": [5, 6, 7]}


def test_entries_by_relation(dictionary):
    assert dictionary.relations == [("blocks.0", 1), ("blocks.2", 0)]
    assert [entry.example.value for entry in dictionary.of("blocks.0", 1, "low")] == [-2.5]


test_other_names_are_refused = refused(
    (lambda one: one.of("blocks.1", 0), r"relation: .* one of blocks.0 1, blocks.2 0, got blocks.1 0 \(high\)"),
    (lambda one: one.save("d.txt"), r"path: expected a name that ends in .jsonl, got 'd.txt'"),
    (lambda _: load_dictionary("nothing.jsonl"), FileNotFoundError, "nothing"),
    by=lambda call, *, dictionary: call(dictionary),
)


def test_other_files_are_refused(tmp_path):
    for text in ("", "{}\n", "nonsense", '{"about": {}}\n{"layer": 1}\n'):
        (tmp_path / "d.jsonl").write_text(text)
        with pytest.raises(ValueError, match=r"d\.jsonl: not a relation dictionary"):
            load_dictionary(tmp_path / "d.jsonl")
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(ValueError, match=r"pipe\.jsonl: expected a file, got a pipe or a device"):
        load_dictionary(tmp_path / "pipe.jsonl")


SCRIPT = "<script>alert(1)</script>"
WRONG = [
    (("rank",), SCRIPT, "an integer from 1"),
    (("rank",), 0, "an integer from 1"),
    (("rank",), True, "an integer from 1"),
    (("relation",), 1.0, "an integer from 0"),
    (("layer",), ["blocks.0"], "a name"),
    (("layer",), "\ud800", "a name"),
    (("end",), SCRIPT, "high or low"),
    (("example", "value"), "0.1", "a finite number"),
    (("example", "value"), float("nan"), "a finite number"),
    (("example", "value"), None, "a finite number"),
    (("example", "receiver"), -1, "an integer from 0"),
    (("example", "sender_context"), [1, 2], "start, tokens"),
    (("example", "sender_context", "start"), None, "an integer from 0"),
    (("example", "sender_context", "tokens"), "abc", "a list"),
    (("example", "sender_context", "tokens"), [1, "2"], "an integer from 0"),
    (("counterexamples",), [SCRIPT], "value, document"),
]


@pytest.mark.parametrize("keys, value, expected", WRONG)
def test_a_file_with_other_types_is_refused_by_line(dictionary, keys, value, expected, tmp_path):
    rows = [{"about": {}}, *json.loads(json.dumps([asdict(entry) for entry in dictionary.entries]))]
    inner = rows[2]
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match=rf"d\.jsonl: not .* \(line 3, {', '.join(keys)}: expected {expected}"):
        load_dictionary(tmp_path / "d.jsonl")


def test_damaged_lines_are_named(tmp_path):
    for line in ("[" * 100_000, "1e999999", "{", '{"layer": "a"}'):
        (tmp_path / "d.jsonl").write_text('{"about": {}}\n' + line)
        with pytest.raises(ValueError, match=r"d\.jsonl: not a relation dictionary \(line 2: "):
            load_dictionary(tmp_path / "d.jsonl")
