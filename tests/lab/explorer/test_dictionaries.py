"""Dictionaries for a page: those of files, and those made of a text while the page waits."""

import json
import threading
import time
from dataclasses import replace

import pytest
import torch

from dat.explorer import dictionaries
from dat.explorer.dictionaries import made_dictionary, read_dictionary, window_of, windows
from dat.explorer.server import ExplorerServer
from dat.explorer.session import Session
from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.model_analysis.dictionaries import DictionarySettings, RelationDictionary, build_dictionary
from dual_attention.model_analysis.dictionaries.pairs import rounded
from tests.lab.explorer.conftest import dat, transformer
from tests.lab.explorer.test_page import maps_of
from tests.lab.explorer.test_server import ask

TEXT = "the cat sat on the mat; the dog sat on the log. " * 8
SETTINGS = DictionarySettings(top=3, ends=("high", "low"), counterexamples=2, context=6)


def built(session):
    return build_dictionary(session.model, windows(session.tokenizer.encode(TEXT), 64), SETTINGS, batch_size=4)


def test_a_dictionary_of_a_text_is_that_of_the_library(session):
    *progress, last = made_dictionary(session, {"text": TEXT, "pairs": 3})
    found, expected = last["dictionary"], built(session)
    assert [part["done"] for part in progress] == [0, 4, 6] and progress[0]["of"] == 6
    assert found["documents"] == 6 and found["tokens"] == len(TEXT)
    assert len(found["entries"]) == len(expected.entries) == 2 * 4 * 2 * 3
    for ours, theirs in zip(found["entries"], expected.entries, strict=True):
        assert (ours["layer"], ours["relation"], ours["end"], ours["rank"]) == (
            theirs.layer,
            theirs.relation,
            theirs.end,
            theirs.rank,
        )
        assert rounded(torch.tensor(ours["example"]["value"])) == theirs.example.value
        receiver = ours["example"]["receiver"]
        assert receiver["labels"][receiver["at"]] == chr(theirs.example.receiver_token).replace(" ", "␣")
        assert receiver["place"] == theirs.example.receiver
        assert len(ours["counterexamples"]) == len(theirs.counterexamples)


def test_values_are_those_of_the_map(session):
    """A text that fits into the model is read whole; a longer one is cut, and the dictionary says so."""
    words = TEXT[:60]
    *_, last = made_dictionary(session, {"text": words})
    maps = maps_of(session.model, words)
    assert last["dictionary"]["documents"] == 1 and last["dictionary"]["note"] == ""
    for entry in last["dictionary"]["entries"]:
        for one in (entry["example"], *entry["counterexamples"]):
            i, j = one["receiver"]["place"], one["sender"]["place"]
            value = float(maps[entry["layer"]].relational.relations[0, i, j, entry["relation"]])
            assert one["value"] == pytest.approx(value, rel=1e-6)
    *_, last = made_dictionary(session, {"text": TEXT})
    assert "in pieces of 64 tokens" in last["dictionary"]["note"]
    assert window_of(session, 64) == 64 and window_of(replace(session, layers=[0]), 65) == 64
    many = Session(dat(context=4096), ByteTokenizer(), "x")
    assert window_of(many, 2048) == 2048 and window_of(many, 4096) == 128


def test_a_dictionary_of_a_file(session, tmp_path):
    expected = built(session)
    expected.save(tmp_path / "relations.jsonl")
    for name in (tmp_path, tmp_path / "relations.jsonl"):
        found = read_dictionary(session, str(name))
        assert found["note"] == "" and len(found["entries"]) == len(expected.entries)
    other = Session(dat(1), ByteTokenizer(), "another")
    assert read_dictionary(other, str(tmp_path))["note"] == "It was made with other weights than these."


REFUSED = [
    ("token", ValueError, "has the token 9999, but the tokenizer only 257"),
    ("context", ValueError, "has the token 9999, but the tokenizer only 257"),
    ("place", ValueError, "expected a context of the object 1000000000"),
    ("empty", ValueError, "got none"),
    ("two", ValueError, r"one file \.jsonl in the folder .*got a\.jsonl, b\.jsonl"),
    ("none", FileNotFoundError, "there is no file or folder .*none"),
]


def test_refusals(session, tmp_path):
    entry = built(session).entries[0]
    pair, context = entry.example, entry.example.sender_context
    unknown = replace(pair, sender_context=replace(context, tokens=(9999,) * len(context.tokens)))
    wrong = {"token": replace(pair, sender_token=9999), "context": unknown, "place": replace(pair, receiver=10**9)}
    for name, example in wrong.items():
        (tmp_path / name).mkdir()
        RelationDictionary((replace(entry, example=example),), {}).save(tmp_path / name / "a.jsonl")
    for name, files in {"empty": [], "two": ["a.jsonl", "b.jsonl"]}.items():
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).touch()
    for name, error, message in REFUSED:
        with pytest.raises(error, match=message):
            read_dictionary(session, str(tmp_path / name))


def test_a_model_without_relations(serve):
    _, body, _ = ask(serve(transformer()), json.dumps({"text": TEXT}), path="/make-dictionary")
    assert "relational" in json.loads(body.splitlines()[-1])["error"]


def test_the_dictionary_of_a_session(session):
    with pytest.raises(KeyError):
        ExplorerServer(session, "x").answers["/dictionary"]
    server = ExplorerServer(replace(session, dictionary={"source": "a file", "entries": []}), "x")
    server.server_close()
    assert server.answers["/dictionary"].answer({})["dictionary"]["source"] == "a file"


def test_who_goes_away_ends_the_work(session, monkeypatch):
    calls = []
    twin = Session.twin

    def slow(self):
        def slowly(*_):
            calls.append(1)
            time.sleep(0.05)

        model = twin(self)
        model.register_forward_pre_hook(slowly)
        return model

    monkeypatch.setattr(Session, "twin", slow)
    monkeypatch.setattr(dictionaries, "_BATCH", 1)
    parts = made_dictionary(session, {"text": TEXT * 20})
    assert next(parts)["done"] == 0 and next(parts)["done"] == 1
    parts.close()
    count = len(calls)
    assert not any("work" in thread.name for thread in threading.enumerate())
    time.sleep(0.4)
    assert len(calls) == count < 20
