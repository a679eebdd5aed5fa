"""Batches of 512 or smaller ones, told by how long the published runs took.

``python -m studies.relational_games.run_times may/relgames_data.csv august/relgames_data.csv`` makes
``results/protocol/run_times.csv`` of the authors' tables (see published_runs.py): for each task and model the median of
the column ``_runtime``, in seconds, by training-set size. Without files it prints the table of PROTOCOL.md.
"""

import sys
from math import ceil
from pathlib import Path

import pandas

from dat.data.relational_games.tasks import TASKS, get_task
from dat.sweeps.results import to_csv
from dual_attention._base.files import write_atomically
from studies._lib.inference import paired_p
from studies._lib.paired import table
from studies._lib.tables import mean_text

from .published_runs import preset_of

RUN_TIMES = Path(__file__).parent / "results" / "protocol" / "run_times.csv"
LARGEST = 2500
"""Training-set sizes rise by 250 images up to this one, on all tasks but match_pattern."""
FIRST = 250
"""Size of the first run of each job, which takes longer: it is left out."""


def write(files: dict[str, Path]) -> None:
    """Write the medians of the authors' tables."""
    official = {get_task(task).official_name: task for task in TASKS}
    rows = []
    for month, path in files.items():
        runs = pandas.read_csv(path).dropna(subset=["test/acc_in_distribution", "_runtime"])
        curves = runs[runs["train_size"] <= LARGEST].groupby(["task", "model_name", "train_size"])["_runtime"]
        for (task, model), seconds in curves.median().round(2).unstack().iterrows():
            rows.append({"month": month, "task": official[task], "model": preset_of(model), **seconds})
    write_atomically(RUN_TIMES, to_csv(rows))


def rises() -> str:
    """By how much the run time rises with 250 images more, where batches of 512 are as many and where they are more."""
    times = pandas.read_csv(RUN_TIMES)
    lines = [["runs of", "curves", "as many batches of 512", "one more", "difference", "p", "greater where one more"]]
    for month, of in times.groupby("month", sort=False):
        curves = of.drop(columns=["month", "task", "model", str(FIRST)]).rename(columns=int)
        found = curves.diff(axis=1).iloc[:, 1:]
        more = [ceil(size / 512) > ceil((size - 250) / 512) for size in found.columns]
        same, after = found.loc[:, [not one for one in more]].mean(axis=1), found.loc[:, more].mean(axis=1)
        texts = [mean_text(rise.tolist(), 2, sign=True).replace("-", "−") for rise in (same, after, after - same)]
        p = paired_p((after - same).tolist())
        lines.append([str(month), str(len(found)), *texts, f"{p:.0e}", str((after > same).sum())])
    return table(lines)


if __name__ == "__main__":
    if sys.argv[1:]:
        write(dict(zip(("May", "August"), map(Path, sys.argv[1:]), strict=True)))
    print(rises())
