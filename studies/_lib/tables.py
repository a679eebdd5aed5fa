"""Results of sweeps as data frames, their differences paired by seed, and tables in Markdown."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from .inference import equivalence_p, half_width, holm, paired_p

Frame: TypeAlias = Any
"""A pandas.DataFrame, whose own annotations leave open whether a selection is one."""
FAILED = 60.0
"""Accuracy in percent below which a run on two classes has failed: ten points above chance."""


def read_results(*files: Path) -> Frame:
    """The rows of some ``results.csv``."""
    return pd.concat([pd.read_csv(file) for file in files], ignore_index=True)


def by_seed(rows: Frame, arm: str, measure: str, *, points: Sequence[str] = ()) -> Frame:
    """A measure with a line for each seed and a column for each value of the column ``arm``.

    Args:
        points: columns over whose cells a mean is taken; seeds that want a cell of an arm have none there, and an arm
            that lacks one for all seeds has none at all.
    """
    table = rows.pivot_table(measure, "seed", [arm, *points], aggfunc="first")
    if not points:
        return table
    cells = rows[[*points]].drop_duplicates()
    every = pd.MultiIndex.from_frame(rows[[arm]].drop_duplicates().sort_values(arm).merge(cells, how="cross"))
    return table.reindex(columns=every).T.groupby(level=arm, sort=False).agg(lambda x: x.mean(skipna=False)).T


def mean_text(values: Sequence[float], digits: int = 1, *, sign: bool = False) -> str:
    """``mean ± half of the 95 % t-interval``."""
    plus = "+" if sign else ""
    mean = sum(values) / len(values)
    return f"{mean:{plus}.{digits}f}" + (f" ± {half_width(values):.{digits}f}" if len(values) > 1 else "")


def failed(values: Sequence[float], bound: float = FAILED) -> str:
    """How many runs have failed, ``2 of 10``."""
    return f"{sum(value < bound for value in values)} of {len(values)}"


def differences(
    table: Frame,
    pairs: Sequence[tuple[str, str]],
    *,
    bound: float | None = None,
    test: Callable[[Sequence[float]], float] = paired_p,
) -> Frame:
    """Differences of pairs of columns of :func:`by_seed`, with their tests, corrected by Holm over these pairs.

    Args:
        bound: of equivalence, whose p is not corrected.
    """
    found = []
    for arm, against in pairs:
        values = (table[arm] - table[against]).dropna().tolist()
        line = {"arm": arm, "against": against, "pairs": len(values), "mean": sum(values) / len(values)}
        line |= {"half": half_width(values), "p": test(values)}
        found.append(line | ({} if bound is None else {"equivalence": equivalence_p(values, bound)}))
    frame = pd.DataFrame(found)
    return frame.assign(holm=holm(frame["p"].tolist()))


def markdown(frame: Frame, *, align: str = "") -> str:
    """A data frame as a table in Markdown; its texts as they are.

    Args:
        align: a letter for each column, ``l`` or ``r``; by default none is aligned.
    """
    rules = {"l": ":---", "r": "---:"}
    lines = [list(frame.columns), [rules.get(letter, "---") for letter in align.ljust(len(frame.columns))]]
    lines += [[str(value) for value in row] for row in frame.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
