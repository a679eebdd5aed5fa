"""Tests of few trials, their intervals and their correction."""

from __future__ import annotations

from itertools import combinations

import pytest
from scipy import stats

from dual_attention.model_analysis.measures.intervals import half_width, holm, paired_p

VALUES = [0.3, 0.7, 0.1, 0.6, 0.2]


def test_the_t_test_and_its_interval():
    test = stats.ttest_1samp(VALUES, 0)
    assert paired_p(VALUES) == pytest.approx(test.pvalue)
    for level in (0.9, 0.95):
        low, high = test.confidence_interval(level)
        assert half_width(VALUES, level=level) == pytest.approx((high - low) / 2)


def test_differences_without_spread():
    assert (paired_p([0.0, 0.0]), paired_p([1.0, 1.0])) == (1.0, 0.0)


@pytest.mark.parametrize("wrong", [[1.0], [], [1.0, float("nan")], [1.0, float("inf")]])
def test_they_take_two_finite_numbers(wrong):
    for of in (paired_p, half_width):
        with pytest.raises(ValueError, match=r"expected (at least 2|finite numbers), got"):
            of(wrong)


def test_holm():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


def test_holm_is_bonferroni_on_every_family_that_holds_a_hypothesis():
    """The closed testing procedure, of which Holm's is a shortcut."""
    p = [0.012, 0.3, 0.004, 0.02, 0.02]
    families = [family for n in range(1, 6) for family in combinations(range(5), n)]
    adjusted = [
        max(min(1.0, len(family) * min(p[j] for j in family)) for family in families if i in family) for i in range(5)
    ]
    assert holm(p) == pytest.approx(adjusted)
