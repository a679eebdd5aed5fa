"""Results of cells, and tables of them: one line a run, with digests of its settings, as CSV and read again.

A cell keeps the settings of its run: all that its result depends on beside its seed. A table has digests of groups of
them, one column each, so that results of several grids are merged only if they were made alike. What a cell or a table
lacks, since an older version wrote it, is not known and hinders nothing.
"""

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from dual_attention._base.checksums import check_checksums, damaged_files, read_checksums
from dual_attention._base.files import read_json_object
from dual_attention._base.words import shortened

from ..training.metrics import Row
from .experiment import AnySwept
from .table import ResultTable

Made = TypeVar("Made")
Cells: TypeAlias = Mapping[Path, dict[str, Any]]
"""Results of cells by their files."""

LR = "lr"
"""Column of the learning rate, where an arm has its own."""
SOURCE = "source"
"""Column of the label of a source, whose curves are its own; see :mod:`.sources`."""


def to_csv(rows: Sequence[Row]) -> str:
    """``rows`` as CSV text, with the columns of all of them; texts as :func:`cell_of` has them."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return csv_of([columns, *([row.get(key, "") for key in columns] for row in rows)])


def csv_of(lines: Iterable[Iterable[Any]]) -> str:
    """Lines of cells as CSV text; texts as :func:`cell_of` has them."""
    return "".join(f"{','.join(map(_quoted, line))}\n" for line in lines)


def _quoted(value: Any) -> str:
    text = str(cell_of("" if value is None else value))
    return '"{}"'.format(text.replace('"', '""')) if re.search(r'[",\n\r]', text) else text


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
            value = _value_of(text)
            if column in texts and not value.isprintable():
                raise ValueError(f"{where}: expected a text to print, got {shortened(value)}")
            yield column, value if column in texts else _number(text, where)


def _number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{where}: expected a number, got {shortened(text)}")
    return number


CONFIG = "config"
"""Entry of the result of a cell: the settings of its run, before what its arm alone is given."""
UNCOMPARED = ("experiment", "seed", "machine", "output")
"""Keys of a run's configuration that are no settings; the folder of a grid has one device and one precision."""
IDLE = (
    *("eval_batch_size", "micro_batch_size", "report_every", "eval_every", "checkpoint_every", "measure_at"),
    *("milestones", "milestone_tokens", "milestone_words", "activation_stats"),
)
"""Keys of the loop that change no result, or only by rounding and which units drop out."""


def settings_of(config: Any) -> dict[str, Any]:
    """The settings of a run as JSON has them."""
    settings = {name: value for name, value in json.loads(json.dumps(asdict(config))).items() if name not in UNCOMPARED}
    return settings | {"loop": {name: value for name, value in settings["loop"].items() if name not in IDLE}}


def differing_settings(
    older: Mapping[str, Any], newer: Mapping[str, Any], group: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """The dotted keys, and both values, in which two runs differ, of those that both have."""
    for name in (name for name in older if name in newer):
        before, now = older[name], newer[name]
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            yield from differing_settings(before, now, f"{group}{name}.")
        elif before != now:
            yield group + name, before, now


def short_digest(values: Any) -> str:
    """A short digest of something that is JSON."""
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def digest_columns(table: ResultTable) -> dict[str, str]:
    """Columns of digests, by what each is of."""
    return {name: f"{name}_digest" for name in table.digests}


def digests(table: ResultTable, entries: Mapping[str, Any]) -> Row:
    """The digests of a run, of those that are known.

    Args:
        entries: of its result: digests by their columns, and the :data:`CONFIG` from which the others follow.
    """
    settings, apart = entries.get(CONFIG, {}), {*(axis.key for axis in table.axes), *table.locations}
    found: Row = {}
    for name, column in digest_columns(table).items():
        if column in entries:
            found[column] = entries[column]
        elif name in settings:
            # Without those that are null, so that a key that is added later changes nothing.
            values = {key: x for key, x in settings[name].items() if x is not None and f"{name}.{key}" not in apart}
            found[column] = short_digest(values)
    return found


def cell_files(folder: Path) -> list[Path]:
    """Files of the results of cells in the folder of a grid, sorted; an error of the system if it cannot be listed."""
    cells = folder / "cells"
    if not cells.exists():
        return []
    return sorted(path for path in cells.iterdir() if path.suffix == ".json" and not path.name.startswith("."))


def sound_cells(folder: Path) -> Cells:
    """Results of the cells in the folder of a grid, by their files, without those that were damaged since."""
    damaged = {folder / name for name in damaged_files(folder, ending=".json")}
    return {file: read_json_object(file) for file in cell_files(folder) if file not in damaged}


def whole_cells(folder: Path) -> Cells:
    """Results of all cells in the folder of a grid, whichever grid asked for them, by their files.

    Raises:
        FileNotFoundError: naming the file, if one that was there is missing.
        ValueError: naming the file, if one is damaged, or has changed.
    """
    check_checksums(folder, [name for name in read_checksums(folder) if name.endswith(".json")])
    return {file: read_json_object(file) for file in cell_files(folder)}


def each_cell(cells: Cells, make: Callable[[dict[str, Any]], Made]) -> Iterator[Made]:
    """Apply ``make`` to each cell's result; errors about its entries become ``ValueError`` naming the file."""
    for file, result in cells.items():
        try:
            yield make(result)
        except (AttributeError, KeyError, TypeError, ZeroDivisionError) as error:
            raise ValueError(
                f"{file}: damaged, or not the result of a cell ({type(error).__name__}: {error})"
            ) from error


def cell_rows(experiment: AnySwept, cells: Cells) -> list[Row]:
    """A line for each cell."""

    def row(result: dict[str, Any]) -> Row:
        return {**experiment.row(result), **digests(experiment.table, result), **own_rate(result)}

    return list(each_cell(cells, row))


def rows_on_the_way(experiment: AnySwept, cells: Cells) -> list[Row]:
    """The lines that shorter runs would have, one for each epoch after which a run was measured.

    Their seconds are those of the whole run, and metrics that only its end was measured by are left out.
    """

    def rows(result: dict[str, Any]) -> list[Row]:
        rest = {name: value for name, value in result.items() if name not in experiment.table.metrics}
        early = result.get("measured", [])
        return [{**experiment.row({**rest, **measured}), **own_rate(result)} for measured in early]

    return [row for rows_of_one in each_cell(cells, rows) for row in rows_of_one]


def columns_of_cell(experiment: AnySwept, result: Mapping[str, Any]) -> Row:
    """The columns that tell which run a cell is, and how it was made."""
    return {**experiment.table.columns_of_run(result), **digests(experiment.table, result), **own_rate(result)}


def own_rate(result: Mapping[str, Any]) -> Row:
    """The column of the learning rate, if the arm of a cell has its own."""
    return dict(result.get("given", {}).get("numbers", {}))


def load_results(experiment: AnySwept, source: str | Path) -> list[Row]:
    """Rows of a ``results.csv``, or of the folder of a grid, finished or not.

    Raises:
        FileNotFoundError: naming the source, if it holds no results.
        ValueError: naming the file, if it is damaged or holds something else.
    """
    path, table = Path(source), experiment.table
    if path.is_dir():
        rows, file = cell_rows(experiment, whole_cells(path)), path / "results.csv"
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


def values_by_point(
    table: ResultTable, rows: Sequence[Row], measure: str, panel: str, curve: str
) -> dict[int, list[float]]:
    """Values of all trials of one curve, by the horizontal axis, sorted."""
    values: dict[int, list[float]] = {}
    for row in rows:
        if table.panel(row) == panel and row[table.curve_axis.name] == curve and row.get(measure) is not None:
            values.setdefault(int(row[table.point_axis.name]), []).append(float(row[measure]))
    return dict(sorted(values.items()))
