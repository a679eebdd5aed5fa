"""Tables and figures from the results of one or several grids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .._files import write_atomically
from ..training.metrics import Row
from .comparison import comparison_text
from .contrasts import contrasts_text, draw_contrasts
from .curves import draw_curves
from .experiment import AnySwept
from .results import merge_results, to_csv


def draw_figures(experiment: AnySwept, rows: Sequence[Row], folder: Path) -> None:
    """Draw every figure of the experiment into ``folder``."""
    for figure in experiment.figures:
        draw_curves(experiment, rows, folder / figure.file, figure)
    for name, draw in experiment.extra_figures().items():
        draw(rows, folder / name)


def chosen_rows(experiment: AnySwept, rows: Sequence[Row], chosen: Mapping[str, Sequence[str]]) -> list[Row]:
    """Rows with one of the ``chosen`` values of each axis named there; an empty list of values takes all."""
    names = [axis.name for axis in reversed(experiment.axes) if chosen.get(axis.name)]
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
    """Write ``results.csv``, ``comparison.md`` and the figures of several sources together into the folder ``out``.

    Args:
        chosen: values of axes to take; all, if there are none of an axis.
        against: a curve from which the others' differences are written, ``contrasts.md`` and ``contrasts.png``.

    Returns:
        The files written.

    Raises:
        FileExistsError: if one of them is there already.
        FileNotFoundError, ValueError: as :func:`~.results.merge_results` and :func:`chosen_rows`.
    """
    rows = chosen_rows(experiment, merge_results(experiment, sources), chosen or {})
    folder = Path(out)
    pictures = (*(figure.file for figure in experiment.figures), *experiment.extra_figures())
    names = ("results.csv", "comparison.md", *pictures, *(("contrasts.md", "contrasts.png") if against else ()))
    differences = "" if against is None else contrasts_text(experiment, rows, against)
    present = [name for name in names if (folder / name).exists()]
    if present:
        raise FileExistsError(f"{folder}: expected a folder without {', '.join(present)}, which are not overwritten")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "results.csv", to_csv(rows))
    write_atomically(folder / "comparison.md", comparison_text(experiment, rows))
    draw_figures(experiment, rows, folder)
    if against is not None:
        write_atomically(folder / "contrasts.md", differences)
        draw_contrasts(experiment, rows, folder / "contrasts.png", against)
    return [folder / name for name in names if (folder / name).exists()]
