"""An experiment that sweeps can run: what tells its runs apart, and how their results are compared and drawn."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from ..training.configs import StepLoopConfig, check_names
from ..training.experiment import AnyExperiment, Config, Experiment, Ready
from ..training.metrics import Row
from ..training.problem import Problem
from .published import Published


@dataclass(frozen=True)
class Axis:
    """A column of results that says, with the other axes and the seed, which run a row belongs to."""

    name: str  # of the column
    key: str  # dotted key of a run's configuration that holds the value
    title: str  # in figures
    plural: str  # of its values
    number: bool = False  # whether the values are integers; they are texts otherwise
    prefix: str = ""  # before the value in names of cells
    order: tuple[str, ...] = ()  # of the values in tables and figures; others follow, sorted
    labels: Mapping[str, str] = field(default_factory=dict)  # of values, in tables and figures

    def label(self, value: str) -> str:
        """Text of a value in tables and figures."""
        return self.labels.get(value, value)

    def ordered(self, rows: Sequence[Row]) -> list[Any]:
        """Values that occur in ``rows``, in order."""
        order = self.order
        values = {row[self.name] for row in rows}
        return sorted(values, key=lambda value: (order.index(value) if value in order else len(order), value))


@dataclass(frozen=True)
class CurvesFigure:
    """A figure of curves: its file, its title, and the measures that are its rows of panels."""

    file: str
    title: str
    measures: tuple[str, ...]


class SweptExperiment(Experiment[Config, Ready]):
    """An experiment with a grid of runs, whose results become a table and figures of curves."""

    about_reproduce: ClassVar[str] = ""  # descriptions of the commands
    about_plot: ClassVar[str] = ""
    Grid: ClassVar[Any]  # dataclass of a sweep's configuration, a dat.sweeps.grid.GridConfig
    scales: ClassVar[Mapping[str, Any]] = {}  # grids for everyone, by name
    axes: ClassVar[tuple[Axis, ...]]  # what identifies a run: (panels of a figure,) curves, horizontal axis

    provenance: ClassVar[
        Mapping[str, int | None]
    ] = {}  # numbers of how runs were made, from `identity`; of rows without
    digests: ClassVar[tuple[str, ...]] = ()  # groups of a configuration of which results have a digest, see `protocol`
    locations: ClassVar[tuple[str, ...]] = ()  # keys of where data lies, whose contents have a digest of their own

    measures: ClassVar[Mapping[str, str]] = {}  # columns of results that are compared, and their titles; see `row`
    tabled: ClassVar[Mapping[str, str]] = {}  # further columns that are compared in tables, with two decimals
    scale: ClassVar[float] = 1.0  # factor of the measures
    unit: ClassVar[str] = ""  # their unit
    decimals: ClassVar[int] = 1  # of them in tables
    y_title: ClassVar[str] = ""  # the vertical axis of figures
    log_scale: ClassVar[bool] = False  # its scale
    chance: ClassVar[float | None] = None  # the level that guessing reaches
    y_range: ClassVar[tuple[float, float] | None] = None  # of the vertical axis, unless measures lie below it
    caption: ClassVar[str] = ""  # of the table of results
    colours: ClassVar[Mapping[str, str]] = {}  # of curves, by the value of their axis
    figures: ClassVar[tuple[CurvesFigure, ...]] = ()  # drawn from the results of a sweep
    compares: ClassVar[bool] = False  # whether there are published numbers
    adjusted: ClassVar[str] = ""  # what adjusted means of published points are less, in words
    beside_published: ClassVar[str] = ""  # what else is to be known of published numbers, in words

    def grid_named(self, name: str) -> Any:
        """The grid of that name; ``ValueError`` naming the known ones, if there is none."""
        check_names("scale", [name], self.scales)
        return self.scales[name]

    @property
    def curve_axis(self) -> Axis:
        """The axis whose values are the curves of a figure."""
        return self.axes[-2]

    @property
    def point_axis(self) -> Axis:
        """The horizontal axis of a figure."""
        return self.axes[-1]

    def panel(self, row: Row) -> str:
        """The panel of figures that a row belongs to; an empty text if there is one only."""
        return row[self.axes[-3].name] if len(self.axes) > 2 else ""

    def panels(self, rows: Sequence[Row]) -> list[str]:
        """Panels that occur in ``rows``, in order."""
        return self.axes[-3].ordered(rows) if len(self.axes) > 2 else [""]

    def identity(self, config: Config) -> dict[str, Any]:
        return {axis.name: reduce(getattr, axis.key.split("."), config) for axis in self.axes}

    def row(self, result: Mapping[str, Any]) -> Row:
        """A line of a table of results from the numbers of one run; here its measures are named as evaluation sets.

        Of further metrics there is a column ``<set>_<metric>`` for each set.
        """
        row = self.columns_of_run(result)
        values = result[self.metrics[0]]
        names = [*(name for name in self.measures if name in values), *(n for n in values if n not in self.measures)]
        row.update({name: round(self.scale * values[name], 3) for name in names})
        for metric in self.metrics[1:]:
            row.update({f"{name}_{metric}": round(result[metric][name], 5) for name in names if metric in result})
        return {**row, "steps": result["steps"], "seconds": result["seconds"]}

    def columns_of_run(self, result: Mapping[str, Any]) -> Row:
        """The columns of a line that tell which run it is of, and how that was made."""
        row: Row = {key: result[key] for key in (*(axis.name for axis in self.axes), "seed", "parameters")}
        made = {name: result.get(name, older) for name, older in self.provenance.items()}
        return {**row, **{name: number for name, number in made.items() if number is not None}}

    def rows_on_the_way(self, result: Mapping[str, Any]) -> list[Row]:
        """The lines that shorter runs would have, one for each epoch after which the run was measured.

        Their seconds are those of the whole run, and metrics that only its end was measured by are left out.
        """
        rest = {name: value for name, value in result.items() if name not in self.metrics}
        return [self.row({**rest, **measured}) for measured in result.get("measured", [])]

    def describe_run(self, row: Row) -> str:
        """The run of a line of results, in words."""
        return f"{', '.join(f'{axis.name} {row[axis.name]}' for axis in self.axes)}, seed {row['seed']}"

    def work(self, config: Config) -> float:
        """Examples that a run trains on; those that it evaluates may be added, as a third of one each."""
        loop = config.loop
        return loop.steps * loop.batch_size if isinstance(loop, StepLoopConfig) else loop.epochs

    def example_work(self, config: Config) -> float:
        """Work, in the unit of :meth:`work`, of training on one example of :meth:`timing_problem`."""
        return 1.0

    def timing_problem(self, config: Config) -> Problem:
        """A problem on which the steps of a run are timed: as costly a step, but quick to prepare."""
        with tempfile.TemporaryDirectory() as folder:
            return self.prepare(config, cache=Path(folder)).problem

    def chance_in(self, panel: str) -> float | None:
        """The level that guessing reaches in a panel."""
        return self.chance

    def published(self, measure: str, panel: str, curve: str) -> Sequence[Published]:
        """Points of a published curve, sorted; empty if there is none."""
        return []

    def compares_with(self, rows: Sequence[Row]) -> bool:
        """Whether there are published numbers of any curve in ``rows``."""
        curves = self.curve_axis.ordered(rows) if self.compares else []
        panels = self.panels(rows)
        return any(self.published(name, panel, curve) for name in self.measures for panel in panels for curve in curves)

    def extra_figures(self) -> Mapping[str, Callable[[Sequence[Row], Path], None]]:
        """Further figures: names of files, and functions that draw the rows into a file, or nothing."""
        return {}


AnySwept: TypeAlias = SweptExperiment[Any, Any]


def swept(experiment: AnyExperiment) -> AnySwept:
    """``experiment`` itself; ``ValueError`` if it has no grid."""
    if not isinstance(experiment, SweptExperiment):
        raise ValueError(f"{experiment.name}: expected an experiment with a grid")
    return experiment
