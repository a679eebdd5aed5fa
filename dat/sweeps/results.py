"""Tables of results: one line a run, written as CSV, read again, and merged."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dual_attention._base.checksums import check_checksums, damaged_files, read_checksums
from dual_attention._base.files import read_json_object
from dual_attention._base.words import shortened

from ..training.metrics import Row
from .experiment import AnySwept
from .protocol import digest_columns, digests
from .table import ResultTable

LR = "lr"
"""Column of the learning rate, where an arm has its own."""
SOURCE = "source"
"""Column of the label of a source, whose curves are its own; see :mod:`.sources`."""


def to_csv(rows: Sequence[Row]) -> str:
    """``rows`` as CSV text, with the columns of all of them; texts as :func:`cell_of` has them."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(cell_of, columns))
    writer.writerows([cell_of(row.get(key, "")) for key in columns] for row in rows)
    return text.getvalue()


_COMPUTED = re.compile(r"(?![-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\Z)[=+\-@＝＋－＠\t\r\n](?s:.)", re.IGNORECASE | re.ASCII)


def cell_of(value: Any) -> Any:
    """A value of a table; a text that a spreadsheet would compute follows an apostrophe."""
    return f"'{value}" if isinstance(value, str) and _COMPUTED.match(value.lstrip("'")) else value


def _value_of(cell: str) -> str:
    """The text that :func:`cell_of` wrote."""
    return cell[1:] if cell.startswith("'") and _COMPUTED.match(cell.lstrip("'")) else cell


def read_results(experiment: AnySwept, path: Path) -> list[Row]:
    """Rows of a results.csv; numbers as numbers.

    Raises:
        ValueError: naming the file, if it is no table, and the line and column of what is no number.
    """
    table = experiment.table
    texts = {SOURCE, *digest_columns(table).values(), *(axis.name for axis in table.axes if not axis.number)}
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file, strict=True)
            columns = [_value_of(cell) for cell in next(lines, [])]
            if len(set(columns)) < len(columns):
                raise ValueError("a column is there twice")
            return [dict(_entries(columns, line, texts, lines.line_num)) for line in lines if line]
    except (ValueError, csv.Error) as error:  # not UTF-8 is a ValueError, too
        raise ValueError(f"{path}: damaged, or no table of results ({error})") from error


def _entries(columns: Sequence[str], line: Sequence[str], texts: Set[str], number: int) -> Iterator[tuple[str, Any]]:
    """Columns and values of a line, without the empty ones."""
    if len(line) != len(columns):
        raise ValueError(f"line {number}: expected {len(columns)} entries, got {len(line)}")
    for column, text in zip(columns, line, strict=True):
        if text:
            where = f"line {number}, {shortened(column)}"
            yield column, _printed(_value_of(text), where) if column in texts else _number(text, where)


def _printed(text: str, where: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{where}: expected a text to print, got {shortened(text)}")
    return text


def _number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{where}: expected a number, got {shortened(text)}")
    return number


def cell_rows(experiment: AnySwept, folder: Path, *, on_the_way: bool = False) -> list[Row]:
    """Results of all cells in the folder of a grid, whichever grid asked for them.

    Args:
        on_the_way: those that shorter runs would have, see :func:`rows_on_the_way`.

    Raises:
        FileNotFoundError: naming the file, if one that was there is missing.
        ValueError: naming the file, if one is damaged, or has changed.
    """
    check_checksums(folder, [name for name in read_checksums(folder) if name.endswith(".json")])
    rows = []
    for file in cell_files(folder):
        with named_cell(file):
            result = read_json_object(file)
            if on_the_way:
                rows += [{**row, **own_rate(result)} for row in rows_on_the_way(experiment, result)]
            else:
                rows.append({**experiment.row(result), **digests(experiment.table, result), **own_rate(result)})
    return rows


def rows_on_the_way(experiment: AnySwept, result: Mapping[str, Any]) -> list[Row]:
    """The lines that shorter runs would have, one for each epoch after which the run was measured.

    Their seconds are those of the whole run, and metrics that only its end was measured by are left out.
    """
    rest = {name: value for name, value in result.items() if name not in experiment.table.metrics}
    return [experiment.row({**rest, **measured}) for measured in result.get("measured", [])]


def columns_of_cell(experiment: AnySwept, result: Mapping[str, Any]) -> Row:
    """The columns that tell which run a cell is, and how it was made."""
    return {**experiment.table.columns_of_run(result), **digests(experiment.table, result), **own_rate(result)}


def own_rate(result: Mapping[str, Any]) -> Row:
    """The column of the learning rate, if the arm of a cell has its own."""
    return dict(result.get("given", {}).get("numbers", {}))


def cell_files(folder: Path) -> list[Path]:
    """Files of the results of cells in the folder of a grid, sorted; an error of the system if it cannot be listed."""
    cells = folder / "cells"
    if not cells.exists():
        return []
    return sorted(path for path in cells.iterdir() if path.suffix == ".json" and not path.name.startswith("."))


def sound_cells(folder: Path) -> dict[Path, dict[str, Any]]:
    """Results of the cells in the folder of a grid, by their files, without those that were damaged since."""
    damaged = {folder / name for name in damaged_files(folder, ending=".json")}
    return {file: read_json_object(file) for file in cell_files(folder) if file not in damaged}


@contextmanager
def named_cell(file: Path) -> Iterator[None]:
    """Context whose errors about the entries of a cell's result name its file."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ZeroDivisionError) as error:
        raise ValueError(f"{file}: damaged, or not the result of a cell ({type(error).__name__}: {error})") from error


def load_results(experiment: AnySwept, source: str | Path) -> list[Row]:
    """Rows of a ``results.csv``, or of the folder of a grid, finished or not.

    Raises:
        FileNotFoundError: naming the source, if it holds no results.
        ValueError: naming the file, if it is damaged or holds something else.
    """
    path, table = Path(source), experiment.table
    if path.is_dir():
        rows, file = cell_rows(experiment, path), path / "results.csv"
        if not rows and file.is_file():
            rows = read_results(experiment, file)
    elif path.is_file():
        rows = read_results(experiment, path)
    else:
        raise FileNotFoundError(f"{path}: expected a results.csv or the folder of a grid, found nothing")
    if not rows:
        raise FileNotFoundError(f"{path}: expected results, found none")
    names = {*(axis.name for axis in table.axes), "seed"}
    columns, measure = set[str]().union(*rows), next(iter(table.measures))
    missing = names - columns or ({measure} if columns.isdisjoint(table.measures) else set())
    if missing:
        raise ValueError(f"{path}: expected a table of results, found no column {', '.join(sorted(missing))}")
    if any(names - set(row) for row in rows):
        raise ValueError(f"{path}: expected {', '.join(sorted(names))} in every line")
    older = {name: number for name, number in table.provenance.items() if number is not None}
    axes = (axis.name for axis in table.axes if axis.number)
    whole = {*axes, "seed", "parameters", "steps", *older}
    return [
        {key: _whole(value, f"{path}: {key}") if key in whole else value for key, value in {**older, **row}.items()}
        for row in rows
    ]


def _whole(number: float, where: str) -> int:
    if number != int(number):
        raise ValueError(f"{where}: expected an integer, got {number}")
    return int(number)


def check_provenance(experiment: AnySwept, rows: Sequence[Row], where: object) -> None:
    """Check that the runs of each source and panel were made alike, as far as it is known of digests. Raises ValueError
    naming two that were not.
    """
    table = experiment.table
    told = digest_columns(table).values()
    firsts: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        for name in (*table.provenance, *(column for column in told if column in row)):
            first = firsts.setdefault((row.get(SOURCE, ""), table.panel(row), name), row)
            if row.get(name) != first.get(name):
                raise ValueError(
                    f"{where}: {table.run_of(row)}: {name} {row.get(name)}, but {name} {first.get(name)} in "
                    f"{table.run_of(first)}; they were not made alike, so they are not merged: expected "
                    f"one {name} for all runs of {table.panel(row) or experiment.name}"
                )


def _tells_rate(table: ResultTable, source: str | Path, row: Row) -> bool:
    """Whether it is known that a run has the learning rate of its line or, where that has none, of its grid.

    A table may be of several grids and of a version that did not tell rates apart.
    """
    return LR in row or Path(source).is_dir() or any(name in row for name in digest_columns(table).values())


def _check_rates(table: ResultTable, rows: Sequence[Row], where: object) -> None:
    """Check that no arm of a source and panel has a learning rate of its own in some runs and optim.lr in others.

    Raises:
        ValueError: naming the arm and both rates.
    """
    arm, own = table.curve_axis.name, {}
    for row in rows:
        rates = own.setdefault((row.get(SOURCE, ""), table.panel(row), row[arm]), {})
        rates.setdefault(LR in row, row)
        if len(rates) > 1:
            raise ValueError(
                f"{where}: {row[arm]}: lr {rates[True][LR]:g} and optim.lr; they were not made alike, so they are not "
                "merged: expected its own learning rate in all runs of an arm, or in none"
            )


def values_by_point(
    table: ResultTable, rows: Sequence[Row], measure: str, panel: str, curve: str
) -> dict[int, list[float]]:
    """Values of all trials of one curve, by the horizontal axis, sorted."""
    values: dict[int, list[float]] = {}
    for row in rows:
        if table.panel(row) == panel and row[table.curve_axis.name] == curve and row.get(measure) is not None:
            values.setdefault(int(row[table.point_axis.name]), []).append(float(row[measure]))
    return dict(sorted(values.items()))


def merge_results(experiment: AnySwept, sources: Sequence[str | Path]) -> list[Row]:
    """All runs of the sources, each once, ordered by label, axes and seed.

    Args:
        sources: as :func:`load_results` takes them, each with or without a label (``LABEL=PATH``). Runs of a label are
            merged with each other only, and have it in the column :data:`SOURCE`.

    Raises:
        ValueError: as :func:`load_results` and :func:`check_provenance`; also for an arm with and without a learning
            rate of its own, and for a run with two results.
    """
    merged: dict[tuple[Any, ...], Row] = {}
    tuned: list[Row] = []
    table = experiment.table
    for source in sources:
        label, path = labelled(source)
        rows = load_results(experiment, path)
        if label:
            rows = [{**row, SOURCE: label} for row in rows]
        tuned += [row for row in rows if _tells_rate(table, path, row)]
        try:
            check_provenance(experiment, [*merged.values(), *rows], path)
            _check_rates(table, tuned, path)
            for row in rows:
                run = (row.get(SOURCE, ""), *(row[axis.name] for axis in table.axes), row["seed"])
                _check_measures(table, merged.setdefault(run, row), row, path)
        except ValueError as error:
            other = "another label" if label else "a label"
            raise ValueError(f"{error}; with {other} (LABEL={path}) it has curves of its own") from error
    labels = list(dict.fromkeys(run[0] for run in merged))
    return [merged[run] for run in sorted(merged, key=lambda run: (labels.index(run[0]), *run))]


def _check_measures(table: ResultTable, known: Row, row: Row, where: object) -> None:
    for measure in table.measures:
        if known.get(measure) != row.get(measure):
            raise ValueError(
                f"{where}: {table.run_of(row)}: {row.get(measure)}{table.unit} ({measure}), and "
                f"{known.get(measure)}{table.unit} in another source; expected one result for each run"
            )


def labelled(source: str | Path) -> tuple[str, Path]:
    """Label and path of ``LABEL=PATH``; the label of a path alone is empty.

    Raises:
        ValueError: for a label that is not made of words.
    """
    label, equals, path = str(source).partition("=")
    if not equals or "/" in label or Path(source).exists():
        return "", Path(source)
    if not path or not re.fullmatch(r"[\w.+-]+( [\w.+-]+)*", label):
        raise ValueError(f"source: expected a path or LABEL=PATH, the label of letters and digits, got {source}")
    return label, Path(path)
