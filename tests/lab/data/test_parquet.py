"""Text in Parquet files, made here."""

import pytest

from dat.data.text.files import find_files
from dat.data.text.formats import read_documents
from dat.experiments.language.config import LanguageDataConfig
from dat.experiments.language.data import load_data, make_tokenizer
from dual_attention.generation.tokenizer import ByteTokenizer

arrow = pytest.importorskip("pyarrow", reason="the extra datasets is large, and not installed")
parquet = pytest.importorskip("pyarrow.parquet")

TEXTS = [f"story {i}: once upon a time" for i in range(50)]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "stories.parquet"
    columns = {"text": [*TEXTS, "  ", None], "url": ["a"] * 52, "score": list(range(52))}
    parquet.write_table(arrow.table(columns), path, row_group_size=7)
    return path


def texts(path, field="text") -> list[str]:
    pieces = list(read_documents(path, "", field))
    assert all(piece.begins for piece in pieces)
    return [piece.text for piece in pieces if not piece.empty]


def test_rows_are_documents(table, tmp_path):
    assert texts(table) == TEXTS and texts(table, "url") == ["a"] * 52
    large = tmp_path / "large.parquet"
    parquet.write_table(arrow.table({"body": arrow.array(TEXTS, arrow.large_string())}), large)
    assert texts(large, "body") == TEXTS


def test_a_run_reads_them(table, tmp_path):
    config = LanguageDataConfig(path=str(tmp_path), val_fraction=0.2)
    assert find_files([str(tmp_path)], "data.path").files == [table]
    data = load_data(config, ByteTokenizer(), context=8, vocab_size=257, seed=0, cache=tmp_path / "cache")
    assert data.origin["train"]["field"] == "text" and data.origin["train"]["split"]["documents"] == 50
    assert data.about.startswith("text: 1 file, 50 documents, 1,290 characters; left out: 2 empty documents\n")
    learned = make_tokenizer(LanguageDataConfig(path=str(table), tokenizer="bpe", bpe_vocab_size=270))
    assert learned.vocab_size == 270


def test_what_cannot_be_read(table, tmp_path):
    bytes_of_latin_1 = arrow.array([b"caf\xe9"], arrow.binary()).cast(arrow.string(), safe=False)
    parquet.write_table(arrow.table({"text": bytes_of_latin_1}), tmp_path / "latin.parquet")
    with pytest.raises(ValueError, match=r"latin\.parquet: damaged, or no Parquet file \('utf-8' codec"):
        texts(tmp_path / "latin.parquet")
    for field, message in (
        ("body", r"stories\.parquet: expected a column data\.field='body', got the columns text, url, score"),
        ("score", r"stories\.parquet: expected texts in the column 'score', got int64"),
    ):
        with pytest.raises(ValueError, match=message):
            texts(table, field)
    for name, data in (("cut.parquet", table.read_bytes()[:-50]), ("empty.parquet", b""), ("no.parquet", b"x" * 99)):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=rf"{name}: damaged, or no Parquet file"):
            texts(tmp_path / name)
