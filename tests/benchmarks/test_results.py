"""What is said of repeated measurements."""

import pytest

from benchmarks.results import Summary, growth, growth_exponent, summarise


def test_summary_of_known_samples():
    assert summarise([5.0, 1.0, 2.0, 4.0, 3.0]) == Summary(3.0, 1.0, 2.0, 4.0)


def test_summary_of_one_sample():
    assert summarise([2.5]) == Summary(2.5, 2.5, 2.5, 2.5)


@pytest.mark.parametrize("power", [1, 2, 1.5])
def test_growth_exponent(power: float):
    lengths = [256, 512, 1024, 4096]
    assert growth_exponent(lengths, [3.0 * n**power for n in lengths]) == pytest.approx(power, abs=0.02)


@pytest.mark.parametrize(
    ("exponent", "name"),
    [
        (0.7, "less than linear"),
        (1.1, "linear"),
        (1.5, "between linear and quadratic"),
        (1.9, "quadratic"),
        (3.0, "more than quadratic"),
    ],
)
def test_growth_in_words(exponent: float, name: str):
    assert growth(exponent) == name


@pytest.mark.parametrize("power", [1, 2])
def test_growth_with_a_constant_beside(power: int):
    lengths = [1024, 4096, 2048, 8192]
    amounts = [5.0 * n**power + 7.0 * 4096**power for n in lengths]
    assert growth_exponent(lengths, amounts) == pytest.approx(power)


def test_growth_from_two_lengths():
    assert growth_exponent([100, 200], [3.0, 12.0]) == pytest.approx(2.0)


def test_what_shrinks_grows_with_a_negative_power():
    assert growth_exponent([1, 2, 4], [4.0, 2.0, 1.0]) == pytest.approx(-1.0)
