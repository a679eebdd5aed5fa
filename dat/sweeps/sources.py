"""Labelled sources: results of several origins as curves of their own, such as new runs over committed ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..training.metrics import Row
from .curves import LOOKS, colours_of
from .protocol import digest_columns
from .results import SOURCE
from .table import CurvesFigure, ResultTable


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
