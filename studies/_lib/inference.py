"""Tests and intervals of differences that are paired by seed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import DescrStatsW

from dual_attention._base import intervals

MOST_FLIPPED = 17
"""Most differences of which all flips of signs are tried; as many flips of more are drawn from a fixed seed."""


def half_width(values: Sequence[float], level: float = 0.95) -> float:
    """Half of the t-interval of the mean of two or more independent values."""
    return float(stats.sem(_finite(values)) * stats.t.ppf((1 + level) / 2, len(values) - 1))


def paired_p(differences: Sequence[float]) -> float:
    """p of the two-sided t-test that the mean of two or more differences is zero; 0 or 1 where they do not vary."""
    return intervals.paired_p(_finite(differences).tolist())


def sign_flip_p(differences: Sequence[float]) -> float:
    """p of the exact two-sided permutation test that differences are symmetric around zero: their signs flip."""
    values = _finite(differences)
    found = stats.permutation_test((values,), np.sum, permutation_type="samples", n_resamples=2**MOST_FLIPPED, rng=0)
    return float(found.pvalue)


def mcnemar_p(first: Sequence[bool], second: Sequence[bool]) -> float:
    """p of McNemar's exact two-sided test that two paired outcomes, such as learning a task, are equally likely."""
    if len(first) != len(second):
        raise ValueError(f"second: expected as many outcomes as first, {len(first)}, got {len(second)}")
    only = [sum(a and not b for a, b in zip(*pair, strict=True)) for pair in ((first, second), (second, first))]
    return float(stats.binomtest(only[0], sum(only)).pvalue) if any(only) else 1.0


def equivalence_p(differences: Sequence[float], bound: float) -> float:
    """p of the two one-sided t-tests that the mean of differences lies between -bound and bound (Schuirmann 1987).

    It is below a level alpha if and only if the t-interval of level 1 - 2 alpha lies within the bounds.
    """
    return float(DescrStatsW(_finite(differences)).ttost_mean(-bound, bound)[0])


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: rejecting those below a level makes any error with at most that probability."""
    if not p:
        return []
    _, adjusted, *_ = multipletests(p, method="holm")
    return np.asarray(adjusted).tolist()


def _finite(values: Sequence[float]) -> Any:
    found = np.asarray(values, dtype=float)
    if found.size < 2 or not np.isfinite(found).all():
        raise ValueError(f"values: expected two or more finite numbers, got {list(values)}")
    return found
