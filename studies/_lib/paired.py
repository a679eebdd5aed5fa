"""Differences of arms from a reference, paired by seed, with p-values after Holm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from scipy import stats


class Difference(NamedTuple):
    """Mean of paired differences, half of its 95 % t-interval, and p of the two-sided t-test after Holm."""

    mean: float
    half: float
    holm: float

    def words(self, decimals: int = 1) -> str:
        """``mean ± half`` with its sign."""
        return f"{self.mean:+.{decimals}f} ± {self.half:.{decimals}f}".replace("-", "−")


def paired_differences(trials: Any, reference: str, arms: Sequence[str]) -> dict[str, Difference]:
    """Differences of arms from the reference.

    Args:
        trials: a series of pandas with the levels model and seed.
    """
    found: dict[str, tuple[float, float, float]] = {}
    for arm in arms:
        values = trials[arm] - trials[reference]
        half = stats.t.ppf(0.975, len(values) - 1) * values.sem()
        test: Any = stats.ttest_1samp(values, 0)
        found[arm] = float(values.mean()), float(half), float(test.pvalue)
    holm, least = {}, 0.0
    for rank, arm in enumerate(sorted(arms, key=lambda arm: found[arm][2])):
        holm[arm] = least = max(least, min(1.0, (len(arms) - rank) * found[arm][2]))
    return {arm: Difference(*found[arm][:2], holm[arm]) for arm in arms}


def table(lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first line is its head."""
    head, *body = lines
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *body))
