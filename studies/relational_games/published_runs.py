"""``python -m studies.relational_games.published_runs RUNS.csv ...``: renew ``published.csv``.

The authors' tables of single runs are public in github.com/Awni00/abstract_transformer: relgames_data.csv in
figure_generation/figure_data/relgames of the branch project_page (May 2024, 2,446 runs), and in
figure_generation/figure_data_tmp/relgames of the branch paper (August 2024, 2,507 runs). What is kept of them is, for
each cell and object set, number, mean, standard deviation and range of the accuracies, and mean and deviation of the
loss. Cells that are in none of the tables, of other Transformers, keep the means that were read off published figures.
"""

import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import fmean, stdev

from dat.data.relational_games.tasks import TASKS, get_task
from dat.experiments.relational_games.published import LISTS, TABLE, published_rows
from dat.sweeps.results import to_csv
from dat.training.metrics import Row
from dual_attention._base.files import write_atomically

COLUMNS = {"test": "in_distribution", "hexominoes": "hexos", "stripes": "stripes"}
"""Names of the object sets in the authors' tables."""

Cell = tuple[str, str, str, int]
"""Object set, task, model, training-set size."""


def preset_of(model: str) -> str:
    """Our preset of a model that the authors' tables name. Raises ValueError for a name of another form."""
    if model in ("abstractor", "corelnet", "predinet"):
        return model
    parts = {key: value for key, _, value in (part.partition("=") for part in model.split("; "))}
    if model == "sa=2; d=128; L=2":
        return "transformer-128-h2"
    try:
        later, sensory = "ra" in parts, parts["sa"]
        heads = parts["ra" if later else "rca"]
        if parts.get("rca_type") == "standard":
            return f"rca-{sensory}+{heads}"
        name = (
            f"dat-{sensory}+{heads}-" if not later or parts["nr"] == "2" else f"dat-{sensory}+{heads}-nr{parts['nr']}-"
        )
        name += {"True": "sym", "False": "asym"}[parts["sym_rel"]]
        name += {"pos_sym_retriever": "", "positional_symbols": "", "symbolic_attention": "-symbolic"}[
            parts["symbol_type"]
        ]
    except KeyError as error:
        raise ValueError(f"model_name: expected the name of a published model, got {model!r}") from error
    return name + "-small-wr" * later


def read_runs(path: Path) -> Iterator[tuple[Cell, float, float]]:
    """Cell, accuracy in percent and loss of each finished run of one of the authors' tables.

    Raises:
        ValueError: naming the file, where it is another table.
    """
    tasks = {get_task(task).official_name: task for task in TASKS}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            try:
                for name, column in COLUMNS.items():
                    if row[f"test/acc_{column}"]:  # a few runs were never measured
                        cell = name, tasks[row["task"]], preset_of(row["model_name"]), int(float(row["train_size"]))
                        yield cell, 100 * float(row[f"test/acc_{column}"]), float(row[f"test/loss_{column}"])
            except (KeyError, ValueError) as error:
                raise ValueError(
                    f"{path}: expected a table of the authors' runs on Relational Games ({error})"
                ) from error


def summaries(runs: Iterable[tuple[Cell, float, float]]) -> list[Row]:
    """A row for each cell, in the order in which they come."""
    found: dict[Cell, list[tuple[float, float]]] = {}
    for cell, accuracy, loss in runs:
        found.setdefault(cell, []).append((accuracy, loss))
    rows: list[Row] = []
    for cell, values in found.items():
        accuracies, losses = zip(*values, strict=True)
        spread = {"sd": round(stdev(accuracies), 3), "loss_sd": round(stdev(losses), 4)} if len(values) > 1 else {}
        rows.append(
            {
                **dict(zip(("object_set", "task", "model", "n_train"), cell, strict=True)),
                "trials": len(values),
                "accuracy": round(fmean(accuracies), 3),
                "lowest": round(min(accuracies), 3),
                "highest": round(max(accuracies), 3),
                "loss": round(fmean(losses), 4),
                **spread,
            }
        )
    return rows


def renew(paths: Sequence[Path]) -> str:
    """Write the table anew from the files of runs; returns what was read, in words."""
    runs = [list(read_runs(path)) for path in paths]
    rows = summaries(run for of_file in runs for run in of_file)
    known = {(row["object_set"], row["task"], row["model"], row["n_train"]) for row in rows}
    means = [r for r in published_rows() if (r["object_set"], r["task"], r["model"], r["n_train"]) not in known]
    order = {name: number for number, name in enumerate((*COLUMNS, *TASKS))}
    every = sorted((*rows, *means), key=lambda r: (order[r["object_set"]], order[r["task"]], r["model"], r["n_train"]))
    curves: list[Row] = []
    for curve, group in groupby(every, key=itemgetter("object_set", "task", "model")):
        points = list(group)
        lists = {name: " ".join(str(row[name]) for row in points if row.get(name) is not None) for name in LISTS}
        if partial := [name for name, values in lists.items() if values and len(values.split()) < len(points)]:
            raise ValueError(f"{', '.join(map(str, curve))}: expected {' and '.join(partial)} at every size or at none")
        curves.append({**dict(zip(("object_set", "task", "model"), curve, strict=True)), **lists})
    write_atomically(TABLE, to_csv(curves))
    counted = ", ".join(
        f"{sum(cell[0] == 'test' for cell, *_ in r)} in {path}" for r, path in zip(runs, paths, strict=True)
    )
    return f"{TABLE}: {len(rows)} cells from single runs ({counted}), {len(means)} means only"


if __name__ == "__main__":
    print(renew([Path(name) for name in sys.argv[1:]]))
