"""The length of training that fits the published runs: tables and a figure of what PROTOCOL.md announced.

``python -m studies.relational_games.protocol FOLDER TABLE ...`` reads results of runs of several
lengths (``epochs.csv`` and ``results.csv`` of grids) and writes ``protocol.md`` and ``protocol.png`` into the folder,
where nothing is overwritten.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from dat.experiments.relational_games.experiment import RelationalGames
from dat.sweeps.results import load_results
from dat.training.metrics import Row
from dual_attention._base.files import write_atomically

from .protocol_cells import (
    CellFit,
    by_candidate,
    choose,
    covers,
    error_of_difference,
    fit_cells,
    root_mean_square_sd,
    score,
)
from .protocol_figure import draw_lengths

CANDIDATES = (
    "batch",
    "epochs",
    "cells",
    "runs",
    "score",
    "less the best",
    "accuracy",
    "its RMS",
    "loss ratio",
    "spread, published",
    "outside, expected",
)
CELLS = (
    "task",
    "model",
    "images",
    "half",
    "runs",
    "accuracy",
    "published",
    "difference",
    "loss",
    "published",
    "ratio",
    "outside",
)


def table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    head, *body = ("| " + " | ".join(line) + " |" for line in (columns, *lines))
    return "\n".join([head, "|---" * len(columns) + "|", *body]) + "\n"


def candidates_table(cells: Sequence[CellFit]) -> str:
    """A line for each candidate: cells, runs, score, differences, ratio of losses, spread, runs outside the range."""
    groups = by_candidate(cells)
    whole = {candidate: own for candidate, own in groups.items() if covers(own, cells)} or groups
    best = min(whole.values(), key=score)
    lines = []
    for (batch, epochs), own in groups.items():
        less = "–"
        if len(own) == len(best):
            less = f"{score(own) - score(best):.2f} ± {error_of_difference(own, best):.2f}"
        ours, theirs = root_mean_square_sd(own)
        values = [
            f"{batch}",
            f"{epochs}",
            f"{len(own)}",
            f"{sum(len(cell.accuracies) for cell in own)}",
            f"{score(own):.2f}",
            less,
            f"{fmean(cell.difference for cell in own):+.1f}",
            f"{math.sqrt(fmean(cell.difference**2 for cell in own)):.1f}",
            f"{math.exp(fmean(cell.log_ratio for cell in own)):.2f}",
            f"{'–' if math.isnan(ours) else f'{ours:.1f}'}, {'–' if math.isnan(theirs) else f'{theirs:.1f}'}",
            f"{sum(cell.outside for cell in own)}, {sum(cell.expected_outside for cell in own):.0f}",
        ]
        lines.append(values)
    return table(CANDIDATES, lines)


def cells_table(cells: Sequence[CellFit]) -> str:
    """A line for each cell of one candidate: accuracy and loss, ours and published."""
    lines = []
    for cell in sorted(cells, key=lambda cell: (cell.task, cell.n_train, cell.model)):
        known = cell.published
        spread = f" ({stdev(cell.accuracies):.1f})" if len(cell.accuracies) > 1 else ""
        values = [
            cell.task,
            cell.model,
            f"{cell.n_train:,}",
            "choice" if cell.chosen_on else "held out",
            f"{len(cell.accuracies)}",
            f"{fmean(cell.accuracies):.1f}{spread}",
            f"{known['accuracy']:.1f} ({known['sd']:.1f})",
            f"{cell.difference:+.1f}",
            f"{fmean(cell.losses):.2f}",
            f"{known['loss']:.2f}",
            f"{math.exp(cell.log_ratio):.2f}",
            f"{cell.outside}",
        ]
        lines.append(values)
    return table(CELLS, lines)


def report(cells: Sequence[CellFit]) -> str:
    """Tables of both halves, the choice, and its cells, in Markdown."""
    halves = {
        "Choice": [cell for cell in cells if cell.chosen_on],
        "Held out": [cell for cell in cells if not cell.chosen_on],
    }
    chosen = choose(halves["Choice"] or cells)
    parts = ["# Lengths of training beside the published runs", ""]
    for name, half in halves.items():
        if half:
            parts += [f"## {name}", "", candidates_table(half)]
    parts += [f"## Cells at {chosen[1]} epochs of batches of {chosen[0]}", ""]
    parts += ["Standard deviations in brackets.", "", cells_table(by_candidate(cells)[chosen])]
    return "\n".join(parts)


def read_runs(table: str | Path) -> list[Row]:
    """Lines of one table, each with all that a cell needs; ValueError naming the table if one has not."""
    rows = load_results(RelationalGames(), table)
    missing = {name for row in rows for name in ("epochs", "batch_size", "test", "test_loss") if name not in row}
    if missing:
        raise ValueError(f"{table}: expected runs with losses and lengths, found no {', '.join(sorted(missing))}")
    if any(row["test_loss"] <= 0 for row in rows):
        raise ValueError(f"{table}: test_loss: expected positive numbers, got {min(row['test_loss'] for row in rows)}")
    return rows


def write_report(folder: Path, tables: Sequence[str | Path]) -> str:
    """Write ``protocol.md`` and ``protocol.png``; returns the former.

    Raises:
        ValueError, FileNotFoundError: naming a table that is none of results, or without a cell that is published.
        FileExistsError: if one of the files is there already.
    """
    rows = [row for table in tables for row in read_runs(table)]
    cells = fit_cells(rows)
    if not cells:
        raise ValueError(f"{', '.join(map(str, tables))}: expected runs of published cells, found none")
    text = report(cells)
    present = [name for name in ("protocol.md", "protocol.png") if (folder / name).exists()]
    if present:
        raise FileExistsError(f"{folder}: expected a folder without {', '.join(present)}, which are not overwritten")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "protocol.md", text)
    draw_lengths(cells, folder / "protocol.png")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 0, or 2 after one line on what is wrong."""
    prog = f"python -m {__spec__.name}"
    parser = argparse.ArgumentParser(prog=prog, description="Compare lengths of training with the published runs.")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder to write to; nothing is overwritten")
    parser.add_argument(
        "tables", metavar="TABLE", nargs="+", help="epochs.csv or results.csv of grids, or their folders"
    )
    given = parser.parse_args(arguments)
    try:
        print(write_report(given.folder, given.tables))
    except (OSError, ValueError) as error:
        print(f"{prog}: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
