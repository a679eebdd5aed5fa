"""Tests of few trials, and intervals."""

from __future__ import annotations

import pytest
from scipy import stats

from dual_attention.model_analysis.measures.intervals import half_width, paired_p

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
