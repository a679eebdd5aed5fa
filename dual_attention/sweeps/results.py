"""Tables of results: one line a run, written as CSV, read again, and merged."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._files import read_json
from ..training.experiment import AnyExperiment
from ..training.metrics import Row


def to_csv(rows: Sequence[Row]) -> str:
    """``rows`` as CSV text, with the columns of all of them."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def read_results(experiment: AnyExperiment, path: Path) -> list[Row]:
    """Rows of a results.csv; numbers as numbers."""
    texts = {axis.name for axis in experiment.axes if not axis.number}
    with open(path, newline="", encoding="utf-8") as file:
        return [
            {key: value if key in texts else float(value) for key, value in row.items() if value != ""}
            for row in csv.DictReader(file)
        ]


def load_results(experiment: AnyExperiment, source: str | Path) -> list[Row]:
    """Rows of a ``results.csv``, or of the folder of a grid, finished or not."""
    path = Path(source)
    if path.is_dir():
        rows = [experiment.row(read_json(file)) for file in sorted((path / "cells").glob("*.json"))]
        table = path / "results.csv"
        if not rows and table.is_file():
            rows = read_results(experiment, table)
    elif path.is_file():
        rows = read_results(experiment, path)
    else:
        raise FileNotFoundError(f"{path}: expected a results.csv or the folder of a grid, found nothing")
    if not rows:
        raise FileNotFoundError(f"{path}: expected results, found none")
    axes = experiment.axes
    missing = {*(axis.name for axis in axes), "seed", next(iter(experiment.measures))} - set(rows[0])
    if missing:
        raise ValueError(f"{path}: expected a table of results, found no column {', '.join(sorted(missing))}")
    whole = {*(axis.name for axis in axes if axis.number), "seed", "parameters", "steps"}
    return [{key: int(value) if key in whole else value for key, value in row.items()} for row in rows]


def merge_results(experiment: AnyExperiment, sources: Sequence[str | Path]) -> list[Row]:
    """All runs of the sources, each once, ordered by axes and seed."""
    merged: dict[tuple[Any, ...], Row] = {}
    for source in sources:
        for row in load_results(experiment, source):
            run = (*(row[axis.name] for axis in experiment.axes), row["seed"])
            known = merged.setdefault(run, row)
            for measure in experiment.measures:
                if known.get(measure) != row.get(measure):
                    unit = experiment.unit
                    raise ValueError(
                        f"{source}: {experiment.describe_run(row)}: {row.get(measure)}{unit} ({measure}), and "
                        f"{known.get(measure)}{unit} in another source; expected one result for each run"
                    )
    return [merged[run] for run in sorted(merged)]
