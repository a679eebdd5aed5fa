"""What is said of repeated measurements."""

import pytest

from benchmarks.report import spreads
from benchmarks.results import Row, SideResult, Summary, growth, growth_exponent, summarise


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


def side(name: str, *samples: float) -> SideResult:
    return SideResult(name, "dual", "measured", samples=list(samples))


def row(suite: str, label: str, length: int, *sides: SideResult) -> Row:
    return Row(suite, label, length, "step", False, 1e-4, list(sides))


def test_spread_of_one_run():
    rows = [row("step", "a", n, side("ours", 1, 2, 3), side("plain", 1, 1, 1)) for n in (16, 32)]
    rows.append(row("step", "b", 16, side("ours", 10, 10, 11), side("plain", 1, 2, 3)))
    assert spreads(rows) == [
        "spread, step, a: quartiles of ours 50% apart, of any side at most 50%",
        "spread, step, b: quartiles of ours 5% apart, of any side at most 50%",
    ]


def test_spread_between_runs():
    runs = [[row("step", "a", 16, side("ours", seconds), side("plain", 1.0))] for seconds in (1.0, 1.1, 0.9)]
    other = [row("step", "a", 16, side("ours", 1.0, 3.0))]
    other[0].label = "b"
    (of_runs, of_one) = spreads([*runs[0], *other], runs[1:])
    assert of_runs == "spread, step, a: medians of 3 runs of ours 20% apart, of any side at most 20%"
    assert of_one == "spread, step, b: quartiles of ours 50% apart, of any side at most 50%"


def test_spread_after_a_run_with_fewer_sides():
    before, now = ([row("step", "a", 16, side("ours", 1.0), *more)] for more in ([], [side("ours+native", 2.0)]))
    assert spreads(now, [before]) == ["spread, step, a: medians of 2 runs of ours 0% apart, of any side at most 0%"]


def test_memory_has_no_spread():
    assert spreads([Row("memory", "a", 16, "step", True, 1e-4, [SideResult("ours", "dual", "measured")])]) == []
