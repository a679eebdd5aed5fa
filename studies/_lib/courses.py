"""Numbers of a row of results that form a course, over steps or lengths, as lines of a figure."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from dat.training.metrics import Row


def draw_course(axis: Any, rows: Sequence[Row], prefix: str, colour: str, **look: Any) -> Any:
    """Draw the numbers of one model in the columns ``<prefix><place>``: single rows thin, their means thick.

    Returns:
        The line of the means; None if there is nothing to draw.
    """
    courses = [
        {int(key.removeprefix(prefix)): float(row[key]) for key in row if key.startswith(prefix)} for row in rows
    ]
    places = sorted(set.intersection(*(set(course) for course in courses))) if courses else []
    if not places:
        return None
    for course in courses if len(courses) > 1 else []:
        axis.plot(places, [course[place] for place in places], color=colour, linewidth=0.7, alpha=0.4)
    means = [fmean(course[place] for course in courses) for place in places]
    return axis.plot(places, means, color=colour, zorder=3, **look)[0]
