"""Names of the numbers of a run, and those of a finished one as a table on the screen."""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dual_attention._base.extras import require
from dual_attention._base.words import printable

from .._terminal import at_words


@dataclass(frozen=True)
class RunTable:
    """Names of the numbers of an experiment's runs, and how they are shown."""

    metrics: tuple[str, ...] = ("accuracy", "loss")
    """Metrics of each evaluation set, the most important one first."""
    shares: tuple[str, ...] = ("accuracy",)
    """Those of them that are shown in percent."""
    set_title: str = "data"
    """Heading of the evaluation sets."""
    set_names: Mapping[str, str] = field(default_factory=dict)
    """Names of evaluation sets in words."""
    counted: str = "examples"
    """Unit that an evaluation set is counted in; of a speed in other units a run has ``<counted>_per_second``."""
    run_curves: tuple[str, str] = ("loss", "accuracy")
    """The metrics of a run's plot."""
    hint: str = ""
    """Further line about a finished run, such as a command to go on with; ``{run}`` is its folder."""
    cached: tuple[str, ...] = ()
    """Folders that runs share, beside theirs."""


def numbers_table(
    title: str,
    set_title: str,
    columns: Sequence[str],
    numbers: Mapping[str, Mapping[str, Any]],
    shares: Collection[str] = ("accuracy",),
) -> Any:
    """A rich table of the numbers of each evaluation set: a share in percent, a count, or a mean."""
    escape = require("rich.markup", extra="train").escape
    table = require("rich.table", extra="train").Table(title=escape(printable(title)) or None, title_justify="left")
    table.add_column(set_title)
    for column in columns:
        table.add_column(column, justify="right")
    for name, values in numbers.items():
        table.add_row(escape(printable(name)), *(_in_words(values[column], column in shares) for column in columns))
    return table


def _in_words(value: float | None, share: bool) -> str:
    if value is None:  # in JSON, for a number that is not finite
        return "not finite"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{100 * value:.1f} %" if share else f"{value:.3f}"


def show(text: Any) -> None:
    """Print a text, without what a terminal would obey, or a rich table, on standard output.

    A terminal too narrow for a table breaks its lines; no number is left out.
    """
    if isinstance(text, str):
        print(at_words(printable(text), sys.stdout))
        return
    console = require("rich.console", extra="train").Console()
    console.width = max(console.width, console.measure(text, options=console.options.update(width=10_000)).maximum)
    console.print(text)
