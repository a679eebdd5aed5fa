"""Tables and figures from the results of one or several grids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dual_attention._files import write_atomically

from ..training.metrics import Row
from .analysis import AnalysisConfig
from .analysis_report import report_text
from .comparison import comparison_text
from .contrasts import Equivalence, contrasts_text, draw_contrasts
from .curves import draw_curves
from .experiment import AnySwept
from .grid import GridFolder
from .learning_rates import FIGURE, TABLE, draw_rates, rates_text, sweeps_rates
from .results import merge_results, to_csv


@dataclass(frozen=True)
class Reading:
    """Reading of results, beyond tables and figures of all of them.

    Attributes:
        against: a curve from which the others' differences are written, ``contrasts.md`` and ``contrasts.png``.
        bound: of equivalence, of all measures.
        analysis: fixed before the runs; its findings are written, ``report.md``, and it says the two others and the
            measure that learning rates are chosen by.
    """

    against: str | None = None
    bound: float | None = None
    analysis: AnalysisConfig | None = None

    def reference(self) -> str | None:
        """The curve from which differences are taken, if they are."""
        return self.against or (self.analysis.reference if self.analysis is not None else None)

    def equivalence(self, experiment: AnySwept) -> Equivalence:
        """Bounds of equivalence; none, if nothing says any."""
        if self.bound is not None:
            return Equivalence(dict.fromkeys(experiment.measures, self.bound))
        if self.analysis is None or self.analysis.bound is None:
            return Equivalence()
        return Equivalence({self.analysis.measure: self.analysis.bound}, self.analysis.equivalence_alpha)

    def measure(self, experiment: AnySwept) -> str:
        """The primary measure."""
        return next(iter(experiment.measures)) if self.analysis is None else self.analysis.measure


REPORT = "report.md"
NOTHING = Reading()
Writers = dict[str, Callable[[Path], None]]
"""Names of files, and what writes each."""


def text_writer(text: str) -> Callable[[Path], None]:
    """Function that writes ``text`` into a file."""
    return lambda path: write_atomically(path, text)


def tables(experiment: AnySwept, rows: Sequence[Row], how: Reading, folder: GridFolder | None = None) -> Writers:
    """The tables of results: files by name. Those of a sweep of learning rates are of these only.

    Raises:
        ValueError: if there is no such curve to take differences from.
    """
    if sweeps_rates(experiment, rows):
        return {TABLE: text_writer(rates_text(experiment, rows, how.measure(experiment)))}
    files = {"comparison.md": text_writer(comparison_text(experiment, rows))}
    if (reference := how.reference()) is not None and _has(experiment, rows, reference, how):
        text = contrasts_text(experiment, rows, reference, how.equivalence(experiment))
        files["contrasts.md"] = text_writer(text)
    if how.analysis is not None:
        files[REPORT] = text_writer(report_text(experiment, how.analysis, rows, folder))
    return files


def figures(experiment: AnySwept, rows: Sequence[Row], how: Reading) -> Writers:
    """The figures of results: files by name."""
    if sweeps_rates(experiment, rows):
        return {FIGURE: lambda path: draw_rates(experiment, rows, how.measure(experiment), path)}
    files: Writers = {
        figure.file: lambda path, figure=figure: draw_curves(experiment, rows, path, figure)
        for figure in experiment.figures
    }
    files |= {name: partial(draw, rows) for name, draw in experiment.extra_figures().items()}
    if (reference := how.reference()) is not None and _has(experiment, rows, reference, how):
        tested = how.equivalence(experiment)
        files["contrasts.png"] = lambda path: draw_contrasts(experiment, rows, path, reference, tested)
    return files


def _has(experiment: AnySwept, rows: Sequence[Row], reference: str, how: Reading) -> bool:
    """Whether there are results of a reference; one that is asked for by name must have some, see :func:`tables`."""
    return how.against is not None or reference in experiment.curve_axis.ordered(rows)


def write_tables(folder: GridFolder, rows: Sequence[Row], how: Reading) -> None:
    """Write the tables of a grid into its folder."""
    for name, write in tables(folder.experiment, rows, how, folder).items():
        write(folder.path / name)


def draw_figures(experiment: AnySwept, rows: Sequence[Row], folder: Path, how: Reading = NOTHING) -> None:
    """Draw the figures of results into ``folder``."""
    for name, draw in figures(experiment, rows, how).items():
        draw(folder / name)


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
    how: Reading = NOTHING,
) -> list[Path]:
    """Write ``results.csv``, the tables and the figures of several sources together into the folder ``out``.

    Args:
        chosen: values of axes to take; all, if there are none of an axis.
        how: the results are read.

    Returns:
        The files written.

    Raises:
        FileExistsError: if one of them is there already.
        FileNotFoundError, ValueError: as :func:`~.results.merge_results` and :func:`chosen_rows`.
    """
    rows = chosen_rows(experiment, merge_results(experiment, sources), chosen or {})
    of_one = GridFolder(experiment, sources[0]) if len(sources) == 1 and Path(sources[0]).is_dir() else None
    folder = Path(out)
    texts = {"results.csv": text_writer(to_csv(rows)), **tables(experiment, rows, how, of_one)}
    pictures = figures(experiment, rows, how)
    present = [name for name in (*texts, *pictures) if (folder / name).exists()]
    if present:
        raise FileExistsError(f"{folder}: expected a folder without {', '.join(present)}, which are not overwritten")
    folder.mkdir(parents=True, exist_ok=True)
    for name, write in texts.items():
        write(folder / name)
    draw_figures(experiment, rows, folder, how)
    return [folder / name for name in _in_order(texts, pictures) if (folder / name).exists()]


def _in_order(texts: Writers, pictures: Writers) -> list[str]:
    """Names of files as they are listed: tables of all results, figures, and what is read of them."""
    last = ("contrasts.md", "contrasts.png", REPORT)
    names = [*texts, *pictures]
    return [*(name for name in names if name not in last), *(name for name in last if name in names)]
