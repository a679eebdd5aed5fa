"""Tests of few trials, and intervals."""

import pytest

from dual_attention._base.intervals import half_width, paired_p


def test_differences_without_spread():
    assert (paired_p([0.0, 0.0]), paired_p([1.0, 1.0])) == (1.0, 0.0)


@pytest.mark.parametrize("wrong", [[1.0], [], [1.0, float("nan")], [1.0, float("inf")]])
def test_they_take_two_finite_numbers(wrong):
    for of in (paired_p, half_width):
        with pytest.raises(ValueError, match=r"expected (at least 2|finite numbers), got"):
            of(wrong)
