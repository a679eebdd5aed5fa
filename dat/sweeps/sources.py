"""Results of several sources: merged, or with labels as curves of their own, such as new runs over committed ones."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..training.metrics import Row
from .curves import LOOKS, colours_of
from .experiment import AnySwept
from .results import LR, SOURCE, check_provenance, digest_columns, load_results
from .table import CurvesFigure, ResultTable


def _tells_rate(table: ResultTable, source: str | Path, row: Row) -> bool:
    """Whether it is known that a run has the learning rate of its line or, where that has none, of its grid.

    A table may be of several grids and of a version that did not tell rates apart.
    """
    return LR in row or Path(source).is_dir() or any(name in row for name in digest_columns(table).values())


def _check_rates(table: ResultTable, rows: Sequence[Row], where: object) -> None:
    """Check that no arm of a source and panel has a learning rate of its own in some runs and optim.lr in others, and
    none has two of its own at a point.

    Raises:
        ValueError: naming the arm and both rates.
    """
    arm, own, at = table.curve_axis.name, {}, {}
    for row in rows:
        point = (row.get(SOURCE, ""), *(row[axis.name] for axis in table.axes))
        if LR in row and (before := at.setdefault(point, row[LR])) != row[LR]:
            raise ValueError(
                f"{where}: {row[arm]}: lr {row[LR]:g} and lr {before:g}; they were not made alike, so they are not "
                "merged: expected one learning rate in all runs of an arm at a point"
            )
        rates = own.setdefault((row.get(SOURCE, ""), table.panel(row), row[arm]), {})
        rates.setdefault(LR in row, row)
        if len(rates) > 1:
            raise ValueError(
                f"{where}: {row[arm]}: lr {rates[True][LR]:g} and optim.lr; they were not made alike, so they are not "
                "merged: expected its own learning rate in all runs of an arm, or in none"
            )


def merge_results(experiment: AnySwept, sources: Sequence[str | Path]) -> list[Row]:
    """All runs of the sources, each once, ordered by label, axes and seed.

    Args:
        sources: as :func:`load_results` takes them, each with or without a label (``LABEL=PATH``). Runs of a label are
            merged with each other only, and have it in the column :data:`SOURCE`.

    Raises:
        ValueError: as :func:`load_results` and :func:`check_provenance`; also for an arm with and without a learning
            rate of its own, or with two at a point, and for a run with two results.
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


def by_source(table: ResultTable, rows: Sequence[Row]) -> tuple[ResultTable, list[Row]]:
    """Table and rows in which the curves of each labelled source are curves of their own.

    A curve has the colour and the published numbers of its arm, and a line of its source. Figures other than curves are
    left out.
    """
    labels = list(dict.fromkeys(row.get(SOURCE, "") for row in rows))
    if labels == [""]:
        return table, list(rows)
    axis, colours = table.curve_axis, colours_of(table, rows)
    arms = {_curve(arm, label): (arm, label) for arm in colours for label in labels}
    split = replace(
        axis, order=tuple(arms), labels={curve: _curve(axis.label(arm), label) for curve, (arm, label) in arms.items()}
    )
    curves = replace(
        table,
        axes=(*table.axes[:-2], split, table.point_axis),
        colours={curve: colours[arm] for curve, (arm, _) in arms.items()},
        looks={curve: LOOKS[labels.index(label) % len(LOOKS)] for curve, (_, label) in arms.items()},
        figures={name: what for name, what in table.figures.items() if isinstance(what, CurvesFigure)},
        published=lambda measure, panel, curve: table.published_curve(measure, panel, arms[curve][0]),
    )
    return curves, [{**row, axis.name: _curve(row[axis.name], row.get(SOURCE, ""))} for row in rows]


def _curve(arm: str, label: str) -> str:
    return f"{label}: {arm}" if label else arm


def made_differently(table: ResultTable, rows: Sequence[Row]) -> str:
    """A sentence on what is known to differ in how the runs of labelled sources were made; empty if nothing is."""
    columns = (*table.provenance, *digest_columns(table).values())
    by_panel: dict[str, dict[str, set[object]]] = {}
    by_label: dict[str, dict[str, dict[str, None]]] = {}
    for row in rows:
        for name in (name for name in columns if name in row):
            by_panel.setdefault(name, {}).setdefault(table.panel(row), set()).add(row[name])
            by_label.setdefault(name, {}).setdefault(row.get(SOURCE) or "unlabelled", {})[str(row[name])] = None
    parts = []
    for name, panels in by_panel.items():
        if any(len(values) > 1 for values in panels.values()):
            told = (f"{label}: {' and '.join(values)}" for label, values in by_label[name].items())
            parts.append(f"{name} ({', '.join(told)})")
    return f"The sources were made differently: {'; '.join(parts)}." if parts else ""
