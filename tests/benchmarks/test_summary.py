"""What is said of repeated measurements."""

from __future__ import annotations

import pytest

from benchmarks.summary import Summary, growth, growth_exponent, summarise


def test_summary_of_known_samples():
    assert summarise([5.0, 1.0, 2.0, 4.0, 3.0]) == Summary(3.0, 1.0, 2.0, 4.0)


def test_one_slow_sample_leaves_the_median():
    assert summarise([1.0, 1.0, 1.0, 1.0, 100.0]).median == 1.0


def test_summary_of_one_sample():
    assert summarise([2.5]) == Summary(2.5, 2.5, 2.5, 2.5)


@pytest.mark.parametrize(("power", "name"), [(1, "linear"), (2, "quadratic"), (1.5, "neither linear nor quadratic")])
def test_growth(power: float, name: str):
    lengths = [256, 512, 1024, 4096]
    exponent = growth_exponent(lengths, [3.0 * n**power for n in lengths])
    assert exponent == pytest.approx(power)
    assert growth(exponent) == name


def test_growth_with_a_constant_beside():
    lengths = [1024, 2048, 4096, 8192]
    assert growth(growth_exponent(lengths, [n + 300.0 for n in lengths])) == "linear"
