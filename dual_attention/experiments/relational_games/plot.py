"""Tables and figures from the results of one or several grids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..._files import write_atomically
from .baseline_figure import draw_baselines
from .comparison import comparison_text
from .figures import draw_figures
from .grid import GridFolder, Row, read_results, to_csv

WHOLE = ("n_train", "seed", "parameters", "steps")
"""Columns of results that are whole numbers."""


def load_results(source: str | Path) -> list[Row]:
    """Rows of a ``results.csv``, or of the folder of a grid, finished or not.

    Raises:
        FileNotFoundError: if there is nothing, or no result.
    """
    path = Path(source)
    if path.is_dir():
        folder = GridFolder(path)
        rows = folder.rows() or (read_results(folder.results) if folder.results.is_file() else [])
    elif path.is_file():
        rows = read_results(path)
    else:
        raise FileNotFoundError(f"{path}: expected a results.csv or the folder of a grid, found nothing")
    if not rows:
        raise FileNotFoundError(f"{path}: expected results, found none")
    missing = {"task", "model", "n_train", "seed", "test"} - set(rows[0])
    if missing:
        raise ValueError(f"{path}: expected a table of results, found no column {', '.join(sorted(missing))}")
    return [{key: int(value) if key in WHOLE else value for key, value in row.items()} for row in rows]


def merge_results(sources: Sequence[str | Path]) -> list[Row]:
    """All runs of the sources, each once, ordered by task, model, size and seed.

    Raises:
        FileNotFoundError, ValueError: as :func:`load_results`; if two sources have one run with other accuracies.
    """
    merged: dict[tuple[str, str, int, int], Row] = {}
    for source in sources:
        for row in load_results(source):
            run = (row["task"], row["model"], row["n_train"], row["seed"])
            known = merged.setdefault(run, row)
            if any(known.get(name) != row.get(name) for name in ("test", "hexominoes", "stripes")):
                task, model, n, seed = run
                raise ValueError(
                    f"{source}: {model} on {task}, {n:,} images, seed {seed}: {row['test']} % on the test images, and "
                    f"{known['test']} % in another source; expected one result for each run"
                )
    return [merged[run] for run in sorted(merged)]


def draw_all(rows: Sequence[Row], folder: Path) -> None:
    """The figures: learning curves, held-out objects and, if there are any baselines, these."""
    draw_figures(rows, folder)
    draw_baselines(rows, folder / "baselines.png")


def plot_results(
    sources: Sequence[str | Path], out: str | Path, *, models: Sequence[str] = (), tasks: Sequence[str] = ()
) -> list[Path]:
    """Write ``results.csv``, ``comparison.md`` and the figures of several sources together into the folder ``out``.

    Args:
        models, tasks: take these alone; all, if empty.

    Returns:
        The files written.

    Raises:
        FileExistsError: if one of them is there already.
        FileNotFoundError, ValueError: as :func:`merge_results`; if a model or task has no result.
    """
    rows = merge_results(sources)
    for name, wanted in (("model", models), ("task", tasks)):
        known = sorted({row[name] for row in rows})
        unknown = [each for each in wanted if each not in known]
        if unknown:
            raise ValueError(f"{name}s: expected names among {', '.join(known)}; received {', '.join(unknown)}")
    rows = [r for r in rows if (not models or r["model"] in models) and (not tasks or r["task"] in tasks)]
    if not rows:
        raise ValueError("models, tasks: no result has one of each")
    folder = Path(out)
    names = ("results.csv", "comparison.md", "learning_curves.png", "heldout.png", "baselines.png")
    present = [name for name in names if (folder / name).exists()]
    if present:
        raise FileExistsError(f"{folder}: expected a folder without {', '.join(present)}, which are not overwritten")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "results.csv", to_csv(rows))
    write_atomically(folder / "comparison.md", comparison_text(rows))
    draw_all(rows, folder)
    return [folder / name for name in names if (folder / name).exists()]
