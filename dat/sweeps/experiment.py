"""An experiment that sweeps can run: its grid, the lines of its table, and the cost of its runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, TypeAlias

from torch import Tensor

from ..training.configs import StepLoopConfig
from ..training.experiment import AnyExperiment, Config, Experiment, Ready
from ..training.metrics import Row
from ..training.problem import Problem
from .table import ResultTable


@dataclass(frozen=True)
class Cost:
    """The work of a run, and a problem on which its steps are timed."""

    work: float
    """Examples that the run trains on; those that it evaluates may be added, as a third of one each."""
    problem: Callable[[], Problem] | None = None
    """Makes a problem on which its steps are timed: as costly a step, but quick to prepare; None prepares the run."""
    example_work: float = 1.0
    """Work of training on one example of that problem."""
    inputs: tuple[Tensor, ...] = ()
    """Inputs of its model, where only the experiment knows them: for ``dat info`` and ``dat estimate``."""


class SweptExperiment(Experiment[Config, Ready]):
    """An experiment with a grid of runs, whose results become a table and figures of curves."""

    Grid: ClassVar[Any]  # dataclass of a sweep's configuration, a dat.sweeps.grid.GridConfig
    scales: ClassVar[Mapping[str, Any]] = {}  # grids for everyone, by name
    table: ClassVar[ResultTable]  # pyright: ignore[reportIncompatibleVariableOverride]

    def identity(self, config: Config) -> dict[str, Any]:
        return {axis.name: reduce(getattr, axis.key.split("."), config) for axis in self.table.axes}

    def row(self, result: Mapping[str, Any]) -> Row:
        """A line of a table of results from the numbers of one run; here its measures are named as evaluation sets.

        Of further metrics there is a column ``<set>_<metric>`` for each set.
        """
        table = self.table
        first, *others = table.metrics
        row, values = table.columns_of_run(result), result[first]
        names = [*(name for name in table.measures if name in values), *(n for n in values if n not in table.measures)]
        row.update({name: round(table.scale * values[name], 3) for name in names})
        for metric in (metric for metric in others if metric in result):
            scale, digits = (table.scale, 3) if metric in table.shares else (1.0, 5)
            row.update({f"{name}_{metric}": round(scale * result[metric][name], digits) for name in names})
        return {**row, "steps": result["steps"], "seconds": result["seconds"]}

    def cost(self, config: Config) -> Cost:
        """Work of a run, told without its data."""
        loop = config.loop
        return Cost(loop.steps * loop.batch_size if isinstance(loop, StepLoopConfig) else loop.epochs)

    def __reduce__(self) -> Any:
        """The experiment without what a study adds: the configuration of a cell holds its model."""
        return type(self), ()


AnySwept: TypeAlias = SweptExperiment[Any, Any]


def swept(experiment: AnyExperiment) -> AnySwept:
    """``experiment`` itself; ``ValueError`` if it has no grid."""
    if not isinstance(experiment, SweptExperiment):
        raise ValueError(f"{experiment.name}: expected an experiment with a grid")
    return experiment
