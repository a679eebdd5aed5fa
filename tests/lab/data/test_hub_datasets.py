"""Data sets of the hub, by one that lies in a folder."""

import json
import time

import pytest

from dat.data.text import hub_datasets
from dat.data.text.hub_datasets import CONTENTS, folder_identity, open_dataset, read_dataset
from dat.experiments.language.config import LanguageDataConfig
from dat.experiments.language.data import load_data, make_tokenizer, same_text
from dual_attention.generation.tokenizer import ByteTokenizer
from tests.support.refusals import refused

library = pytest.importorskip("datasets", reason="the extra datasets is large, and not installed")


def refuse(*_, **__) -> None:
    raise FileNotFoundError("no such data set\nand more")


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    """A data set named owner/name, as the hub would hold it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    library.disable_progress_bars()
    folder = tmp_path / "owner" / "name"
    folder.mkdir(parents=True)
    for split, n in (("train", 60), ("validation", 9)):
        rows = [{"body": f"{split} {number}" if number else " ", "n": number} for number in range(n)]
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def load(tmp_path, **more):
    config = LanguageDataConfig(dataset="owner/name", field="body", **more)
    common = {"context": 8, "vocab_size": 300, "seed": 0, "cache": tmp_path / "tokens"}
    return load_data(config, make_tokenizer(config), **common)


def test_splits_of_a_data_set(dataset, tmp_path):
    pieces = list(read_dataset(open_dataset("owner/name")["train"], "owner/name", "body"))
    texts = [piece.text for piece in pieces if not piece.empty]
    assert len(pieces) == 60 and texts == [f"train {number}" for number in range(1, 60)]
    data = load(tmp_path)
    assert data.origin["train"]["rows"] == 60 and data.origin["val"]["split"] == "validation"
    whole = data.train.arrays[0].tolist()
    assert ByteTokenizer().decode(whole) == "".join(texts) and whole[0] == 256
    assert load(tmp_path).origin == data.origin  # from the cache
    assert data.about.splitlines()[0] == "text: owner/name, 59 documents, 463 characters; left out: 1 empty document"
    learned = load(tmp_path, tokenizer="bpe", bpe_vocab_size=270)
    assert len(learned.train.arrays[0]) < len(whole)


def test_a_data_set_without_validation_keeps_documents_apart(dataset, tmp_path):
    (dataset / "validation.jsonl").unlink()
    data = load(tmp_path, val_fraction=0.2)
    assert data.origin["train"] == data.origin["val"] and data.origin["train"]["split"]["documents"] == 59
    assert len(data.val.arrays[0]) < len(data.train.arrays[0])


def test_a_row_without_a_text_is_an_empty_document(dataset, tmp_path):
    with open(dataset / "train.jsonl", "a") as file:
        file.write('\n{"body": null, "n": 60}')
    assert "59 documents, 463 characters; left out: 2 empty documents" in load(tmp_path).about


def test_a_streamed_data_set_gives_the_same_tokens(dataset, tmp_path):
    streamed, kept = load(tmp_path, streamed=True), load(tmp_path)
    assert streamed.train.arrays[0].tolist() == kept.train.arrays[0].tolist()
    assert streamed.origin["train"]["streamed"] and "rows" in kept.origin["train"]
    some = load(tmp_path, streamed=True, rows=11)
    texts = [f"train {number}" for number in range(1, 11)]
    assert ByteTokenizer().decode(some.train.arrays[0].tolist()) == "".join(texts)
    assert some.origin["train"]["first rows"] == 11


@pytest.mark.parametrize("streamed", [False, True])
def test_a_changed_file_of_the_same_size_is_another_text(dataset, tmp_path, streamed):
    before, file = load(tmp_path, streamed=streamed), dataset / "train.jsonl"
    file.write_text(file.read_text().replace("train 1", "texts 1"))
    after = load(tmp_path, streamed=streamed)
    assert b"texts 1" in bytes(after.train.arrays[0].astype("uint8")) and not same_text(before.origin, after.origin)
    for part in ("train", "val"):
        assert not same_text(before.origin, {**before.origin, part: after.origin[part]})
        del before.origin[part][CONTENTS]  # as in a run of before
    assert same_text(before.origin, after.origin) and folder_identity("owner/other:of") == {}


def test_a_hub_that_is_silent_is_told_soon(dataset, monkeypatch):
    monkeypatch.setattr(hub_datasets, "PATIENCE", 0.2)
    monkeypatch.setattr(hub_datasets.urllib.request, "urlopen", lambda *_, **__: time.sleep(60))
    started, before = time.monotonic(), library.config.HF_HUB_OFFLINE
    for streamed, message in ((False, "owner/other is not kept here"), (True, "owner/other cannot be streamed")):
        with pytest.raises(OSError, match=rf"data\.dataset: {message}.*the Hugging Face hub .* cannot be reached"):
            open_dataset("owner/other", streamed=streamed)
    assert time.monotonic() - started < 5 and before == library.config.HF_HUB_OFFLINE


def read(field: str, streamed: bool = False) -> None:
    list(read_dataset(open_dataset("owner/name", streamed=streamed)["train"], "owner/name", field))


test_what_cannot_be_read = refused(
    (lambda: read("text"), r"expected a column of owner/name \(body, n\), got 'text'"),
    (lambda: read("text", streamed=True), r"expected a column of owner/name \(body, n\), got 'text'"),
    (lambda: read("n"), "texts, got int"),
    (lambda: LanguageDataConfig(streamed=True), r"data\.\w+: expected its default without data\.dataset"),
    (lambda: LanguageDataConfig(rows=3), r"data\.\w+: expected its default without data\.dataset"),
    (lambda: LanguageDataConfig(dataset="owner/name", path="x.txt"), r"data\.dataset: expected null with data\.p"),
    by=lambda call, *, dataset: call(),
)


def test_what_is_no_data_set(monkeypatch):
    monkeypatch.setattr(hub_datasets, "hub_answers", lambda: True)
    monkeypatch.setattr(library, "load_dataset", refuse)
    with pytest.raises(OSError, match=r"data\.dataset: owner/other could not be loaded \(no such data set\)"):
        open_dataset("owner/other")
