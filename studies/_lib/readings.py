"""Differences paired by seed that are decided by flips of signs, and their words."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from .inference import equivalence_p, half_width, holm, sign_flip_p


class Compared(NamedTuple):
    """Differences by seed; p of their sign flips, after Holm; the bound below which they are small, and p of that."""

    values: Sequence[float]
    p: float
    bound: float
    within: float

    @property
    def mean(self) -> float:
        return fmean(self.values)

    def verdict(self) -> str:
        """``ahead`` or ``behind`` by the bound with p < 0.05, ``within`` it, or ``undecided``."""
        if self.p < 0.05 and abs(self.mean) >= self.bound:
            return "ahead" if self.mean > 0 else "behind"
        return "within" if self.within < 0.05 else "undecided"

    def reading(self, seeds: int) -> str:
        """The verdict, if there are as many seeds as were announced."""
        return self.verdict() if len(self.values) == seeds else "undecided, so far"


def compared(values: Mapping[str, Sequence[float]], bound: float) -> dict[str, Compared]:
    """Comparisons of a family, corrected by Holm."""
    adjusted = holm([sign_flip_p(some) for some in values.values()])
    return {
        name: Compared(some, p, bound, equivalence_p(some, bound))
        for (name, some), p in zip(values.items(), adjusted, strict=True)
    }


def interval(values: Sequence[float], *, sign: bool = True) -> str:
    """Mean ± half of its 95 % t-interval."""
    return f"{fmean(values):{'+' if sign else ''}.1f} ± {half_width(values):.1f}".replace("-", "−")


def p_text(p: float) -> str:
    """A probability, to three decimals if it is small."""
    return f"{p:.3f}" if p < 0.1 else f"{p:.2f}"
