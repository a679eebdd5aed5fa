"""Tables of one's own: the columns of a CSV or Parquet file as numbers, categories and sequences, and a split of rows.

The split follows from hashes of what rows say, so it is the same whatever their order, and equal rows lie on one side.
"""

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from dual_attention._base.digests import document_hash
from dual_attention._base.extras import require
from dual_attention._base.files import first_line
from dual_attention._base.words import counted, listed, shortened, suggestion

Task = Literal["classes", "number"]
Cells: TypeAlias = Mapping[str, Sequence[Any]]
"""Cells of a table by column: numbers, texts, tuples, or None where nothing is."""

TABLES = (".csv", ".tsv", ".parquet")
"""Suffixes of files that hold a table."""
SHARE = 0.2
"""Share of the examples that is validated on, and that is tested on."""
FEWEST = 20
"""Fewest examples that are split."""
MOST_CLASSES = 20
"""Different whole numbers up to which they are classes."""
MOST_CATEGORIES = 50
"""Different texts up to which they are categories; beyond, they are if half of them occur again."""

_MISSING = {"", "na", "n/a", "nan", "null"}
_EXACT = 2**53  # from which on a float is not every whole number
_KINDS = {float: "a number", str: "a text", tuple: "a list"}


class Column(NamedTuple):
    """A column: numbers, categories (texts), or sequences (tuples of either); None where a value is missing."""

    name: str
    kind: Literal["number", "category", "sequence"]
    values: Sequence[Any]


def read_cells(path: Path, categories: Collection[str] = ()) -> Cells:
    """The cells of a CSV, TSV or Parquet file.

    Args:
        categories: columns whose cells are texts, as they stand in the file.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming the file, and the line, if it is no table.
        ImportError: if a Parquet file needs the extra ``datasets``.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    read = _read_parquet if path.suffix.lower() == ".parquet" else _read_csv
    columns = {
        name: [_text(value) if name in categories else _cell(value) for value in values]
        for name, values in read(path).items()
    }
    if not any(map(len, columns.values())):
        raise ValueError(f"{path}: expected a line of column names and rows below it, got no row")
    return columns


def _read_csv(path: Path) -> Mapping[str, list[Any]]:
    began = 1
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            delimiter = max(",;\t", key=re.sub('"[^"]*("|$)', "", first).count)
            lines = csv.reader(file, strict=True, delimiter=delimiter)
            names = [name.strip() for name in next(lines, [])]
            if not all(names):
                place = names.index("") + 1
                raise ValueError(f"expected a name for each column, got none for column {place} (pandas: index=False)")
            if len({*names}) < len(names):
                raise ValueError("expected a first line of different column names")
            rows, began = [], lines.line_num + 1
            for line in lines:
                if line and len(line) != len(names):
                    raise ValueError(f"line {lines.line_num}: expected {len(names)} cells, got {len(line)}")
                rows += [line] if line else []
                began = lines.line_num + 1
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error}); save it as UTF-8") from error
    except csv.Error as error:
        raise ValueError(f"{path}: the row from line {began} on: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    if delimiter == ",":
        return columns
    comma = r",\d" if delimiter == ";" else r",(?!\d{3}$)"  # after a tab, 1,234 may be more than a thousand
    return {name: _with_points(cells, re.compile(comma)) for name, cells in columns.items()}


def _with_points(cells: list[str], comma: re.Pattern[str]) -> list[str]:
    """A column with points for decimal commas, if it is all numbers and one has such a comma."""
    texts = [*map(str.strip, cells)]
    numbers = all(re.fullmatch(r"[-+]?\d+(,\d+)?", text) for text in texts if text.lower() not in _MISSING)
    return [text.replace(",", ".") for text in texts] if numbers and any(map(comma.search, texts)) else cells


def _read_parquet(path: Path) -> Mapping[str, list[Any]]:
    arrow, parquet = require("pyarrow", extra="datasets"), require("pyarrow.parquet", extra="datasets")
    try:
        found = parquet.read_table(path).to_pydict()
    except (arrow.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path}: damaged, or no Parquet file ({first_line(error)})") from error
    return {name: values for name, values in found.items() if not name.startswith("__index_level_")}


def _text(value: Any) -> str | None:
    text = "" if value is None else str(value).strip()
    return None if text.lower() in _MISSING else text


def _cell(value: Any) -> Any:
    """A number, a text, a tuple or None, the same from either kind of file; a number that is not exact is a text."""
    if isinstance(value, list | tuple):
        items = [_cell(item) for item in value]
        numbers = all(isinstance(item, float) for item in items)
        return tuple(items if numbers else map(str, value))
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return _cell(json.loads(value))
        except (ValueError, RecursionError):
            return value.strip()
    text = _text(value)
    try:
        number = math.nan if text is None or "_" in text else float(text)
    except ValueError:
        return text
    exact = abs(number) < _EXACT or not (text or "").lstrip("+-").isdigit()
    return number if math.isfinite(number) and exact else text


def typed_column(name: str, cells: Sequence[Any], *, category: bool = False, target: bool = False) -> Column | None:
    """A column of one kind; None if it is empty.

    Args:
        category: take its values as categories, whatever they are.
        target: whether it is the one to predict, for the advice in an error.

    Raises:
        ValueError: naming the column and two of its rows, if their types differ.
    """
    first: dict[type, int] = {}
    for row, cell in enumerate(cells, 1):
        if cell is not None:
            first.setdefault(type(cell), row)
    if category:
        return Column(name, "category", [None if cell is None else category_text(cell) for cell in cells])
    if len(first) > 1:
        told = (f"{_KINDS[kind]} in row {row} ({shortened(str(cells[row - 1]))})" for kind, row in first.items())
        advice = "--task classes" if target else f"--categories '[{name}]' or --leave_out '[{name}]'"
        raise ValueError(
            f"{name}: expected values of one type, got {' and '.join(told)}; make them alike, leave a cell empty where "
            f"a value is missing, or give {advice}"
        )
    if not first:
        return None
    (kind,) = first
    if kind is not str:
        return Column(name, "number" if kind is float else "sequence", cells)
    different, known = {*cells} - {None}, sum(cell is not None for cell in cells)
    if len(different) <= max(MOST_CATEGORIES, known / 2):
        return Column(name, "category", cells)
    words = any(" " in text for text in different)
    return Column(name, "sequence", [cell and tuple(cell.split() if words else cell) for cell in cells])


def category_text(cell: Any) -> str:
    """A value as the name of a category, other values having others: whole numbers without a point."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def check_columns(key: str, names: Sequence[str | None], cells: Cells, path: Path) -> None:
    """Raise ``ValueError`` naming key and columns unless there are all columns that a key names."""
    for name in names:
        if name not in cells:
            hint = suggestion(name, cells) if name else ""
            raise ValueError(f"{key}: expected a column of {path} ({listed([*cells])}), got {name or 'none'}{hint}")


def task_of(target: str, values: Sequence[Any], asked: Task | None = None) -> Task:
    """Whether values, of which none is missing, are predicted as classes or as numbers; few whole ones are classes.

    Raises:
        ValueError: naming the column, if it cannot be predicted.
    """
    column = typed_column(target, values, category=asked == "classes", target=True)
    if column is None or len({*values}) < 2:
        only = shortened(str(values[0]))
        raise ValueError(f"target: expected two different values in {target!r} or more, got only {only}")
    if column.kind == "sequence" or (asked == "number" and column.kind != "number"):
        wanted = "numbers" if asked == "number" else "numbers or categories"
        found = "sequences, or texts that hardly ever occur twice" if column.kind == "sequence" else "texts"
        raise ValueError(f"target: expected {wanted} in {target!r}, got {found}")
    few = len({*values}) <= MOST_CLASSES
    whole = column.kind != "number" or (few and all(value == round(value) for value in values))
    return asked or ("classes" if whole else "number")


def row_key(*values: Any) -> str:
    """A digest of what a row says."""
    digest = document_hash()
    digest.update(repr(values).encode())
    return digest.hexdigest()


def split_by_hash(keys: Sequence[str], parts: Collection[str], seed: int) -> list[str]:
    """``"train"`` or one of the ``parts`` for each example, a share of :data:`SHARE` for each part.

    Args:
        keys: of the examples; equal ones come to the same part.
        seed: of the order in which they are dealt.

    Raises:
        ValueError: if there are fewer than :data:`FEWEST` examples, or too few different ones.
    """
    if len(keys) < FEWEST:
        raise ValueError(f"expected at least {FEWEST} examples to split, got {len(keys)}; collect more")
    number = Counter(keys)
    part_of: dict[str, str] = {}
    waiting = iter(sorted(number, key=lambda key: row_key(seed, key)))
    for part in parts:
        taken = 0
        while taken < round(SHARE * len(keys)) and (key := next(waiting, None)) is not None:
            part_of[key] = part
            taken += number[key]
    found = [part_of.get(key, "train") for key in keys]
    if {*found} != {"train", *parts}:
        raise ValueError(f"expected different examples, got only {counted(len(number), 'different one')}; collect more")
    return found
