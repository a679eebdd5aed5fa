"""Whether two sides agree."""

import math

import pytest
import torch

from benchmarks.comparing import TOLERANCES, difference


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
