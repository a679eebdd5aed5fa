"""Tables of one's own: kinds of columns, the same from either kind of file, and the split of rows."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dat.data.tables import read_cells, row_key, split_by_hash, task_of, typed_column
from tests.support.refusals import refused

ROWS = {
    "number": [1.5, -2.0, None, 3.0],
    "whole": [1, 2, 3, 4],
    "text": ["a", "b", None, "a"],
    "flag": [True, False, True, None],
    "list": [[1, 2], [3], [], None],
    "words": [["x", "y"], ["x"], ["z"], ["y"]],
}


TEXT = """number,whole,text,flag,list,words
1.5,1,a,True,"[1, 2]","[""x"", ""y""]"
-2.0,2,b,False,[3],"[""x""]"
,3,,True,[],"[""z""]"
3.0,4,a,,,"[""y""]"
"""
"""The same as pandas writes it, lists as JSON."""


def test_both_kinds_of_file_hold_the_same(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(ROWS), tmp_path / "rows.parquet")
    (tmp_path / "rows.csv").write_text(TEXT)
    cells = read_cells(tmp_path / "rows.csv")
    assert cells == read_cells(tmp_path / "rows.parquet")
    kinds = {name: typed_column(name, values).kind for name, values in cells.items()}  # type: ignore[union-attr]
    numbers, categories = dict.fromkeys(("number", "whole"), "number"), dict.fromkeys(("text", "flag"), "category")
    assert kinds == {**numbers, **categories, "list": "sequence", "words": "sequence"}
    assert cells["list"] == [(1.0, 2.0), (3.0,), (), None] and cells["number"][2] is None


@pytest.mark.parametrize("text", [
    '"a, ""b"", c";"d,e"\n1;x\n2;y\n', "a;b\n1;x\n2;y\n", "a\tb\n1\tx\n2\ty\n", "\ufeffa,b\r\n1,x\r\n\r\n2,y\r\n",
])  # fmt: skip
def test_separators_and_marks_of_spreadsheets(text, tmp_path):
    (tmp_path / "t.CSV").write_text(text, encoding="utf-8", newline="")
    assert [*read_cells(tmp_path / "t.CSV").values()] == [[1.0, 2.0], ["x", "y"]]


@pytest.mark.parametrize("cells, after_semicolon, after_tab", [
    (("1,5", "", "-2"), [1.5, None, -2.0], [1.5, None, -2.0]),
    (("1,234", "950", "NA"), [1.234, 950.0, None], ["1,234", 950.0, None]),  # a tab is no sign of decimal commas
    (("1,5", "2,x", "3"), ["1,5", "2,x", 3.0], ["1,5", "2,x", 3.0]),
])  # fmt: skip
def test_decimal_commas(cells, after_semicolon, after_tab, tmp_path):
    for mark, found in ((";", after_semicolon), ("\t", after_tab)):
        (tmp_path / "t.csv").write_text("\n".join(f"{cell}{mark}x" for cell in ("a", *cells)))
        assert read_cells(tmp_path / "t.csv")["a"] == found


@pytest.mark.parametrize("text, number", [
    ("007", 7.0), ("1e400", "1e400"), ("1_0", "1_0"), ("-9007199254740991", -9007199254740991.0), ("1e18", 1e18),
    ("123456789012345678", "123456789012345678"), ("-9007199254740992", "-9007199254740992"), (" NA ", None),
])  # fmt: skip
def test_a_number_is_exact_and_a_named_category_its_text(text, number, tmp_path):
    (tmp_path / "t.csv").write_text(f"a,b\n{text},x\n")
    cells = (read_cells(tmp_path / "t.csv", named)["a"] for named in ((), ("a",)))
    assert [*cells] == [[number], [None if number is None else text]]


def test_a_parquet_file_needs_an_extra(tmp_path, monkeypatch):
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"t\.parquet: damaged, or no Parquet file"):
        read_cells(tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'pip install "relational-attention\[datasets\]"'):
        read_cells(tmp_path / "t.parquet")


def test_texts_that_hardly_ever_occur_twice_are_sequences():
    names = [f"{i}a" for i in range(60)]
    assert typed_column("x", [*names, None]).values[:2] == [("0", "a"), ("1", "a")]  # type: ignore[union-attr]
    said = typed_column("x", [f"row {name}" for name in names])
    assert said is not None and said.kind == "sequence" and said.values[0] == ("row", "0a")
    assert typed_column("x", names, category=True).kind == "category"  # type: ignore[union-attr]
    assert typed_column("x", [None, None]) is None


def test_the_column_decides_what_is_predicted():
    columns = {"classes": (["a", "b"], [0.0, 1.0, 2.0]), "number": ([0.5, 1.0], [float(i) for i in range(30)])}
    for task, found in columns.items():
        assert [task_of("y", values) for values in found] == [task] * 2
        assert [task_of("y", values, "classes") for values in found] == ["classes"] * 2


@given(st.lists(st.integers(0, 60), min_size=30, max_size=90), st.integers(0, 5), st.randoms())
def test_equal_rows_lie_on_one_side_whatever_their_order(rows, seed, order):
    keys = [row_key(row) for row in rows]
    if len({*keys}) < 15:
        return
    parts = split_by_hash(keys, ("test", "val"), seed)
    assert len({*zip(keys, parts, strict=True)}) == len({*keys}) and {*parts} == {"train", "val", "test"}
    moved = [*zip(keys, parts, strict=True)]
    order.shuffle(moved)
    assert split_by_hash([key for key, _ in moved], ("test", "val"), seed) == [part for _, part in moved]


def test_a_split_has_its_shares_and_another_seed_another_split():
    keys = [row_key(i) for i in range(200)]
    first, other = (split_by_hash(keys, ("test", "val"), seed) for seed in (0, 1))
    assert [first.count(part) for part in ("train", "val", "test")] == [120, 40, 40] and first != other


def table(text: str | bytes):
    def call(*, tmp_path):
        (tmp_path / "t.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
        read_cells(tmp_path / "t.csv")

    return call


test_what_is_refused = refused(
    (table(""), r"t\.csv: expected a line of column names and rows below it, got no row"),
    (table("a,a\n1,2\n"), r"t\.csv: expected a first line of different column names"),
    (table(",a\n0,1\n"), r"t\.csv: expected a name for each column, got none for column 1 \(pandas: index=False\)"),
    (table('a,b\n1,2\n3,"4\n5,6\n'), r"t\.csv: the row from line 3 on: unexpected end of data"),
    (table(b"a,b\n1,caf\xe9\n"), r"t\.csv: not UTF-8 text .*save it as UTF-8"),
    (table("a,b\n1,2\n1\n"), r"t\.csv: line 3: expected 2 cells, got 1"),
    (lambda *, tmp_path: read_cells(tmp_path / "no.csv"), FileNotFoundError, r"no\.csv: no such file"),
    (lambda *, tmp_path: typed_column("age", [31.0, None, "unknown"]),
     r"age: expected values of one type, got a number in row 1 \(31.0\) and a text in row 3 \(unknown\); .*leave_out"),
    (lambda *, tmp_path: task_of("y", ["a", "a"]), "target: expected two different values in 'y' or more, got only a"),
    (lambda *, tmp_path: task_of("y", ["a", "b"], "number"), "target: expected numbers in 'y', got texts"),
    (lambda *, tmp_path: task_of("y", [f"{i}x" for i in range(99)]), "target: .* texts that hardly ever occur twice"),
    (lambda *, tmp_path: split_by_hash(["a"] * 5, ("val",), 0), "expected at least 20 examples to split, got 5"),
    (lambda *, tmp_path: split_by_hash(["a"] * 50, ("val",), 0), "got only 1 different one"),
    by=lambda call, *, tmp_path: call(tmp_path=tmp_path),
)  # fmt: skip
