"""Whether two sides agree, and that nothing is said of one that does not."""

from __future__ import annotations

import math

import pytest
import torch

from benchmarks.comparing import TOLERANCES, difference
from benchmarks.results import Row, SideResult


def values(**tensors: torch.Tensor) -> dict[str, torch.Tensor]:
    return {name.replace("gradient_of_", "gradient of "): tensor for name, tensor in tensors.items()}


def test_equal_results():
    results = values(output=torch.randn(3, 4), gradient_of_x=torch.randn(3))
    assert difference(results, results).size == 0.0


def test_the_largest_difference_is_named():
    expected = values(output=torch.tensor([1.0, -4.0]), gradient_of_x=torch.tensor([10.0, 0.0]))
    results = values(output=torch.tensor([1.0, -4.1]), gradient_of_x=torch.tensor([10.0, 1.0]))
    found = difference(results, expected)
    assert found.where == "gradient of x"
    assert found.size == pytest.approx(0.1)


def test_one_wrong_entry_among_many_is_seen():
    expected = values(output=torch.ones(1000, 1000))
    results = values(output=expected["output"].clone())
    results["output"][3, 5] += 0.01
    assert difference(results, expected).size > TOLERANCES["float32"]


@pytest.mark.parametrize(
    "results",
    [
        values(output=torch.tensor([1.0, math.nan])),
        values(output=torch.tensor([1.0, math.inf])),
        values(output=torch.ones(3)),
        values(other=torch.ones(2)),
        values(output=torch.ones(2), other=torch.ones(2)),
    ],
)
def test_what_is_missing_or_not_finite_never_agrees(results: dict[str, torch.Tensor]):
    assert difference(results, values(output=torch.ones(2))).size == math.inf


def test_an_expected_value_that_is_not_finite_never_agrees():
    assert difference(values(output=torch.ones(1)), values(output=torch.tensor([math.nan]))).size == math.inf


def test_a_gradient_of_rounding_is_held_against_the_others():
    """Without biases the key's own gradient is zero but for rounding, which no two sides share."""
    expected = values(gradient_of_w=torch.ones(3), gradient_of_b=torch.full((3,), 1e-9))
    results = values(gradient_of_w=torch.ones(3), gradient_of_b=torch.full((3,), -1e-9))
    assert difference(results, expected).size < 1e-5


def test_small_results_are_not_excused_by_large_gradients():
    expected = values(output=torch.full((3,), 1e-9), gradient_of_w=torch.ones(3))
    results = values(output=torch.full((3,), -1e-9), gradient_of_w=torch.ones(3))
    assert difference(results, expected).size == pytest.approx(2.0)


def test_tokens_agree_exactly_or_not():
    expected = {"tokens": torch.tensor([1, 2, 3, 4])}
    assert difference({"tokens": torch.tensor([1, 2, 3, 5])}, expected).size == 0.25


def row(*sides: SideResult) -> Row:
    related = Row("step", "label", 16, "step", False, 1e-4, list(sides))
    related.relate()
    return related


def side(name: str, seconds: float, agrees: bool | None = True) -> SideResult:
    compared = {} if agrees is None else {"yardstick": "reference", "difference": 0.0 if agrees else 0.5}
    return SideResult(name, "dual", "measured", agrees=agrees, samples=[seconds], **compared)


def test_ratios():
    sides = row(side("ours", 2.0), side("published", 8.0), side("plain", 1.0, agrees=None)).sides
    assert [s.ratio for s in sides] == [1.0, 4.0, 0.5]


def test_a_wrong_side_is_refused():
    ours, published, plain = row(side("ours", 2.0), side("published", 8.0, False), side("plain", 1.0, None)).sides
    assert published.ratio is None
    assert "differs from reference by 5.0e-01" in published.refused
    assert ours.ratio == 1.0
    assert plain.ratio == 0.5


def test_nothing_is_said_if_ours_is_wrong():
    related = row(side("ours", 2.0, False), side("published", 8.0), side("plain", 1.0, None))
    assert [s.ratio for s in related.sides] == [None, None, None]
    assert all("ours differs from reference" in s.refused for s in related.sides)
    assert [s.name for s in related.disagreements] == ["ours"]
