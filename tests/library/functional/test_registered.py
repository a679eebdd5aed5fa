"""Functions registered as operations without a gradient, seen from compiled code."""

import pytest
import torch
from torch import Tensor

from dual_attention.functional.registered import without_gradient

SCHEMA = "(Tensor x, float factor, Tensor? more) -> Tensor"


def _like(x: Tensor, factor: float, more: Tensor | None) -> Tensor:
    return torch.empty_like(x)


def function(x: Tensor, factor: float, more: Tensor | None) -> Tensor:
    if float(x.sum()) < 0:  # which a compiler could not follow
        raise ValueError("x: expected a sum of at least 0")
    return x * factor if more is None else x * factor + more


def another(x: Tensor, factor: float, more: Tensor | None) -> Tensor:
    return x + 2 * factor


scaled = without_gradient("test_of_registered", SCHEMA, _like)(function)


@pytest.mark.parametrize("more", [None, torch.ones(3)])
def test_it_computes_what_the_function_does(more):
    x = torch.arange(3.0)
    torch.testing.assert_close(scaled(x, 2.0, more), x * 2 + (0 if more is None else more))
    torch.library.opcheck(scaled, (x, 2.0, more))


def test_compiled_code_calls_it_as_one_and_hears_its_errors():
    call = torch.compile(lambda x: scaled(x + 1, 2.0, None).relu(), backend="aot_eager", fullgraph=True, dynamic=True)
    with torch.no_grad():
        for length in (3, 4, 5):
            torch.testing.assert_close(call(torch.arange(float(length))), (torch.arange(float(length)) + 1) * 2)
        with pytest.raises(ValueError, match="expected a sum of at least 0"):
            call(torch.full((3,), -5.0))


def test_a_gradient_is_refused():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="test_of_registered: has no gradient"):
        scaled(x, 2.0, None)
    with torch.no_grad():
        assert not scaled(x, 2.0, None).requires_grad


def test_a_module_may_be_loaded_again():
    x = torch.ones(2)
    first = without_gradient("test_of_registered_again", SCHEMA, _like)(function)
    torch.testing.assert_close(first(x, 2.0, None), 2 * x)
    second = without_gradient("test_of_registered_again", SCHEMA, _like)(another)
    torch.testing.assert_close(second(x, 2.0, None), 5 * x)
