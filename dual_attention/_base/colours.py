"""Colours of numbers, the same in every figure and page: orange above zero, blue below it.

They are told apart with every common kind of colour blindness. Numbers without a sign rise in one hue.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from .extras import require

HIDDEN = "#d9d9d9"
"""Colour of pairs that may not be attended."""

INK, MUTED, GREY, PALE = "#303030", "#606060", "#8c8c8c", "#e4e4e4"
"""Text in a picture; its notes and reference lines; a baseline; what lies behind data."""

BLUE, LIGHT_BLUE, RED, ORANGE, GREEN = "#1f6fb4", "#63b0e8", "#d1495b", "#e8833a", "#2e8b57"
"""Curves and marks; blue is the relational model wherever a baseline stands beside it."""


@cache
def colour_stops() -> dict[str, dict[str, list[str]]]:
    """Colours of the scales: for ``light`` and ``dark``, those of ``diverging`` and of ``rising`` values."""
    return json.loads((Path(__file__).parent / "colours.json").read_text(encoding="utf-8"))


def colour_map(*, signed: bool) -> Any:
    """The colours on light ground as a map of matplotlib."""
    stops = colour_stops()["light"]["diverging" if signed else "rising"]
    return require("matplotlib.colors", extra="train").LinearSegmentedColormap.from_list("numbers", stops)


def colour_bar(axis: Any, image: Any, **options: Any) -> None:
    """Draw the scale of an image beside its panel: its ends, and zero."""
    low, high = image.get_clim()
    bar = axis.figure.colorbar(image, ax=axis, fraction=0.05, pad=0.03, **options)
    ticks = sorted({low, 0.0, high})
    bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
    bar.ax.tick_params(labelsize=7, length=0, pad=2)
    bar.outline.set_visible(False)
