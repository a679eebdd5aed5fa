"""Numbers of a finished run as a table on the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._extras import require


def numbers_table(
    numbers: Mapping[str, Mapping[str, Any]],
    title: str,
    *,
    metrics: Sequence[str],
    counted: str,
    set_title: str,
    set_names: Mapping[str, str],
) -> Any:
    """A rich table of the numbers of each evaluation set; its size is shown if it is given for every set."""
    table = require("rich.table", extra="train").Table(title=title, title_justify="left")
    table.add_column(set_title)
    columns = [*metrics, *([counted] if all(counted in values for values in numbers.values()) else [])]
    for column in columns:
        table.add_column(column, justify="right")
    for name, values in numbers.items():
        cells = [number_text(column, values[column], counted) for column in columns]
        table.add_row(set_names.get(name, name), *cells)
    return table


def number_text(metric: str, value: float, counted: str) -> str:
    """A number in a table: an accuracy in percent, a count, or a mean."""
    if metric == counted:
        return f"{value:,.0f}"
    return f"{100 * value:.1f} %" if metric == "accuracy" else f"{value:.3f}"


def show(text: Any) -> None:
    """Print a text, or a rich table, on standard output."""
    if isinstance(text, str):
        print(text)
    else:
        require("rich.console", extra="train").Console().print(text)
