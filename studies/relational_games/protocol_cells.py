"""Runs of several lengths of training beside the published ones, cell by cell, and the choice among the lengths.

As ``studies/relational_games/PROTOCOL.md`` announced it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from dat.experiments.relational_games.published import published_rows
from dat.training.metrics import Row
from dual_attention._base.extras import require

LEAST_SD = 1.0
"""Added in quadrature to published standard deviations of accuracies, in points: the error of 2,000 test images."""
LEAST_RELATIVE_SD = 0.1
"""The same for losses, as a share of the loss."""
ROUND = (50, 100)
"""Epochs that are preferred where they are as good."""
DRAWS = 2000
"""Draws of the bootstrap."""

Candidate = tuple[int, int]
"""Size of a batch, epochs."""


@dataclass(frozen=True)
class CellFit:
    """Runs of one cell under one candidate, beside the published ones; accuracies in percent."""

    candidate: Candidate
    task: str
    model: str
    n_train: int
    accuracies: tuple[float, ...]
    losses: tuple[float, ...]
    published: Mapping[str, float]

    @property
    def chosen_on(self) -> bool:
        """Whether the cell is of those that the length is chosen on; the others are held out."""
        return self.n_train in ((250, 1000) if self.task in ("same", "between") else (500,))

    @property
    def difference(self) -> float:
        """Our mean accuracy less the published one."""
        return fmean(self.accuracies) - self.published["accuracy"]

    @property
    def log_ratio(self) -> float:
        """Logarithm of our mean loss over the published one."""
        return math.log(fmean(self.losses) / self.published["loss"])

    @property
    def squares(self) -> tuple[float, float]:
        """Squares of both, in units of the published spread."""
        relative = self.published["loss_sd"] / self.published["loss"]
        return (
            self.difference**2 / (self.published["sd"] ** 2 + LEAST_SD**2),
            self.log_ratio**2 / (relative**2 + LEAST_RELATIVE_SD**2),
        )

    @property
    def outside(self) -> int:
        """Runs outside the range of the published ones."""
        return sum(not self.published["lowest"] <= a <= self.published["highest"] for a in self.accuracies)

    @property
    def expected_outside(self) -> float:
        """Its expectation, were ours and the published ones alike."""
        return 2 * len(self.accuracies) / (self.published["trials"] + 1)


def fit_cells(rows: Sequence[Row]) -> list[CellFit]:
    """The cells of lines of results that are published, for each candidate; the other lines are left out.

    A seed counts once in each, with the last of its lines.
    """
    published = {
        (row["task"], row["model"], row["n_train"]): row
        for row in published_rows()
        if row["object_set"] == "test" and row["sd"] is not None and row["loss_sd"] is not None
    }
    found: dict[tuple[Candidate, tuple[str, str, int]], dict[int, Row]] = {}
    for row in rows:
        cell = row["task"], row["model"], int(row["n_train"])
        if cell in published:
            found.setdefault(((int(row["batch_size"]), int(row["epochs"])), cell), {})[int(row["seed"])] = row
    return [
        CellFit(
            candidate,
            *cell,
            tuple(float(row["test"]) for row in runs.values()),
            tuple(float(row["test_loss"]) for row in runs.values()),
            published[cell],
        )
        for (candidate, cell), runs in sorted(found.items(), key=lambda item: item[0])
    ]


def by_candidate(cells: Sequence[CellFit]) -> dict[Candidate, list[CellFit]]:
    """Cells of each candidate, the largest batches first."""
    order = sorted({cell.candidate for cell in cells}, key=lambda candidate: (-candidate[0], candidate[1]))
    return {candidate: [cell for cell in cells if cell.candidate == candidate] for candidate in order}


def score(cells: Sequence[CellFit]) -> float:
    """Mean over cells of the squared differences of accuracy and of loss, added."""
    return fmean(sum(cell.squares) for cell in cells)


def error_of_difference(cells: Sequence[CellFit], best: Sequence[CellFit], seed: int = 0) -> float:
    """Standard error of the difference of two candidates' scores on the same cells, by a bootstrap over these."""
    numpy = require("numpy", extra="train")
    differences = numpy.array([sum(a.squares) - sum(b.squares) for a, b in zip(cells, best, strict=True)])
    draws = numpy.random.default_rng(seed).integers(len(differences), size=(DRAWS, len(differences)))
    return float(differences[draws].mean(axis=1).std())


def choose(cells: Sequence[CellFit]) -> Candidate:
    """The candidate with the lowest score, or a round one within a standard error of it.

    Candidates that were not run on all cells are left out; ValueError if that leaves none.
    """
    candidates = {candidate: own for candidate, own in by_candidate(cells).items() if covers(own, cells)}
    if not candidates:
        raise ValueError("expected a length of training that every cell was run with, found none")
    best = min(candidates, key=lambda candidate: score(candidates[candidate]))

    def excess(candidate: Candidate) -> float:
        return score(candidates[candidate]) - score(candidates[best])

    as_good = [
        candidate
        for candidate, own in candidates.items()
        if candidate[1] in ROUND and excess(candidate) <= error_of_difference(own, candidates[best])
    ]
    return min(as_good, key=excess, default=best)


def covers(own: Sequence[CellFit], cells: Sequence[CellFit]) -> bool:
    """Whether a candidate was run on every cell that any was run on."""
    return len(own) == len({(cell.task, cell.model, cell.n_train) for cell in cells})


def root_mean_square_sd(cells: Sequence[CellFit]) -> tuple[float, float]:
    """Spread of our accuracies and of the published ones: roots of the mean variances of cells with several runs."""
    several = [cell for cell in cells if len(cell.accuracies) > 1]
    if not several:
        return math.nan, math.nan
    ours = fmean(variance(cell.accuracies) for cell in several)
    return math.sqrt(ours), math.sqrt(fmean(cell.published["sd"] ** 2 for cell in several))
