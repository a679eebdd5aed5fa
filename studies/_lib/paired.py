"""Differences of arms from a reference, paired by seed, with p-values after Holm."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from .inference import half_width, holm, paired_p


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
    values = {arm: trials[arm] - trials[reference] for arm in arms}
    adjusted = holm([paired_p(found) for found in values.values()])
    return {
        arm: Difference(float(found.mean()), half_width(found), p)
        for (arm, found), p in zip(values.items(), adjusted, strict=True)
    }


def table(lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first line is its head."""
    head, *body = lines
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *body))
