"""The table of an experiment's results: what tells runs apart, and how they are compared and drawn."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ..training.metrics import Row
from ..training.tables import RunTable
from .published import Published

Draw: TypeAlias = Callable[[Sequence[Row], Path], None]
"""Draws rows of results into a file, or nothing."""

PERCENT: dict[str, Any] = {"scale": 100.0, "unit": " %", "decimals": 1, "y_title": "accuracy (%)"}
"""Arguments of a table of accuracies in percent."""


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
    """A figure of curves: its title, and the measures that are its rows of panels."""

    title: str
    measures: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ResultTable(RunTable):
    """Names of the results of a sweep, and how they are told apart, compared and drawn."""

    axes: tuple[Axis, ...]
    """Keys that identify a run: (panels of a figure,) curves, horizontal axis."""
    measures: Mapping[str, str]
    """Columns of results that are compared, and their titles; see :meth:`~.experiment.SweptExperiment.row`."""
    tabled: Mapping[str, str] = field(default_factory=dict)
    """Further columns that are compared in tables, with two decimals."""
    provenance: Mapping[str, int | None] = field(default_factory=dict)
    """Numbers of how runs were made, from ``identity``; and those of rows that lack them."""
    digests: tuple[str, ...] = ()
    """Groups of a configuration of which results have a digest, see :mod:`.results`."""
    locations: tuple[str, ...] = ()
    """Keys of where data lies, whose contents have a digest of their own."""
    run_in_words: Callable[[Row], str] | None = None
    """The run of a line of results, in words; None tells its axes and seed."""
    scale: float = 1.0
    """Factor of the measures."""
    unit: str = ""
    """Their unit."""
    decimals: int | None = None
    """Decimals of them in tables; None shows two significant digits of their intervals."""
    caption: str = ""
    """Caption of the table of results; none if it is empty."""
    y_title: str = ""
    """Title of the vertical axis of figures."""
    log_scale: bool = False
    """Whether that is logarithmic."""
    y_range: tuple[float, float] | None = None
    """Its range, unless measures lie below it."""
    chance: float | Callable[[str], float] | None = None
    """Level that guessing reaches, or what says it of a panel."""
    colours: Mapping[str, str] = field(default_factory=dict)
    """Colours of curves, by the value of their axis."""
    looks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Lines of curves that are no solid ones with dots, by the value of their axis."""
    figures: Mapping[str, CurvesFigure | Draw] = field(default_factory=dict)
    """Figures by the names of their files: curves, or functions that draw rows of results."""
    published: Callable[[str, str, str], Sequence[Published]] | None = None
    """Points of the published curve of a measure, a panel and a curve, sorted; empty if there is none."""
    adjusted: str = ""
    """Points that adjusted means of published ones leave out, in words."""
    beside_published: str = ""
    """Remarks on published numbers."""

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

    def chance_in(self, panel: str) -> float | None:
        """The level that guessing reaches in a panel."""
        return self.chance(panel) if callable(self.chance) else self.chance

    def published_curve(self, measure: str, panel: str, curve: str) -> Sequence[Published]:
        """Points of a published curve, sorted; empty if there is none."""
        return self.published(measure, panel, curve) if self.published is not None else []

    def published_points(self, rows: Sequence[Row], measure: str, panel: str, curve: str) -> list[Published]:
        """Points of a published curve as far as the measured ones of its panel go."""
        within = [row for row in rows if self.panel(row) == panel and row.get(measure) is not None]
        largest = max((row[self.point_axis.name] for row in within), default=0)
        return [point for point in self.published_curve(measure, panel, curve) if point.point <= 1.02 * largest]

    def published_beside(self, rows: Sequence[Row], measures: Iterable[str] | None = None) -> Iterator[Published]:
        """The published points of the measured curves; of these measures, or of all."""
        for measure in self.measures if measures is None else measures:
            for panel in self.panels(rows):
                within = [row for row in rows if self.panel(row) == panel and row.get(measure) is not None]
                for curve in self.curve_axis.ordered(within):
                    yield from self.published_points(within, measure, panel, curve)

    def compares_with(self, rows: Sequence[Row], measures: Iterable[str] | None = None) -> bool:
        """Whether there are published numbers beside ``rows``; of these measures, or of any."""
        return any(True for _ in self.published_beside(rows, measures))

    def run_of(self, row: Row) -> str:
        """The run of a line of results, in words."""
        if self.run_in_words is not None:
            return self.run_in_words(row)
        return f"{', '.join(f'{axis.name} {row[axis.name]}' for axis in self.axes)}, seed {row['seed']}"

    def columns_of_run(self, result: Mapping[str, Any]) -> Row:
        """The columns of a line that tell which run it is of, and how that was made."""
        row: Row = {key: result[key] for key in (*(axis.name for axis in self.axes), "seed", "parameters")}
        made = {name: result.get(name, older) for name, older in self.provenance.items()}
        return {**row, **{name: number for name, number in made.items() if number is not None}}
