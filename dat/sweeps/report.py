"""Tables and figures from the results of one or several grids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from dual_attention._base.files import write_atomically

from ..training.metrics import Row
from .comparison import comparison_text
from .contrasts import contrasts_text, draw_contrasts
from .curves import draw_curves
from .experiment import AnySwept
from .grid import GridFolder
from .results import merge_results, to_csv
from .sources import by_source, made_differently
from .table import CurvesFigure, Draw, ResultTable


def write_tables(folder: GridFolder, rows: Sequence[Row]) -> None:
    """Write the table of a grid into its folder."""
    write_atomically(folder.comparison, comparison_text(folder.experiment.table, rows))


def figures(table: ResultTable, rows: Sequence[Row]) -> dict[str, Callable[[Path], None]]:
    """The figures of results: names of files, and what draws each."""

    def drawn(what: CurvesFigure | Draw) -> Callable[[Path], None]:
        return partial(draw_curves, table, rows, what=what) if isinstance(what, CurvesFigure) else partial(what, rows)

    return {name: drawn(what) for name, what in table.figures.items()}


def draw_figures(table: ResultTable, rows: Sequence[Row], folder: Path) -> None:
    """Draw the figures of results into ``folder``."""
    for name, draw in figures(table, rows).items():
        draw(folder / name)


def chosen_rows(table: ResultTable, rows: Sequence[Row], chosen: Mapping[str, Sequence[str]]) -> list[Row]:
    """Rows with one of the ``chosen`` values of each axis named there; an empty list of values takes all."""
    names = [axis.name for axis in reversed(table.axes) if chosen.get(axis.name)]
    for name in names:
        known = sorted({row[name] for row in rows})
        unknown = [value for value in chosen[name] if value not in known]
        if unknown:
            raise ValueError(f"{name}s: expected names among {', '.join(known)}; got {', '.join(unknown)}")
    kept = [row for row in rows if all(row[name] in chosen[name] for name in names)]
    if not kept:
        raise ValueError(f"{', '.join(f'{name}s' for name in names)}: no result has one of each")
    return kept


def plot_results(
    experiment: AnySwept,
    sources: Sequence[str | Path],
    out: str | Path,
    chosen: Mapping[str, Sequence[str]] | None = None,
    against: str | None = None,
) -> list[Path]:
    """Write ``results.csv``, the tables and the figures of several sources together into the folder ``out``.

    Args:
        sources: as :func:`~.results.merge_results` takes them. Those with a label have curves of their own, and then
            only curves are drawn.
        chosen: values of axes to take; all, if there are none of an axis.
        against: a curve from which the others' differences are written, ``contrasts.md``, and drawn, ``contrasts.png``.

    Returns:
        The files written.

    Raises:
        FileExistsError: if one of them is there already.
        FileNotFoundError, ValueError: as :func:`~.results.merge_results` and :func:`chosen_rows`.
    """
    rows, folder = chosen_rows(experiment.table, merge_results(experiment, sources), chosen or {}), Path(out)
    table, curves = by_source(experiment.table, rows)
    note = made_differently(experiment.table, rows) if table is not experiment.table else ""
    texts = {"results.csv": to_csv(rows), "comparison.md": comparison_text(table, curves, note)}
    if against is not None:
        texts["contrasts.md"] = contrasts_text(table, curves, against)
    drawings = figures(table, curves)
    if against is not None:
        drawings["contrasts.png"] = partial(draw_contrasts, table, curves, against=against)
    names = [*texts, *drawings]
    present = [name for name in names if (folder / name).exists()]
    if present:
        raise FileExistsError(f"{folder}: expected a folder without {', '.join(present)}, which are not overwritten")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_atomically(folder / name, text)
    for name, draw in drawings.items():
        draw(folder / name)
    return [folder / name for name in names if (folder / name).exists()]
