"""Dropout that draws few bits."""

import math

import pytest
import torch
import torch.nn.functional as F

from dual_attention._layers.dropout import Dropout
from dual_attention.functional.dropout import LEVELS, drop, kept


@pytest.mark.parametrize("rate", [1e-6, 0.1, 0.5, 0.999999])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_entries_are_dropped_at_the_rate_and_keep_their_mean(rate, dtype):
    torch.manual_seed(0)
    factors = kept(torch.empty(301, 1009, dtype=dtype), rate)
    share = min(max(1, round((1 - rate) * LEVELS)), LEVELS) / LEVELS
    assert abs(share - (1 - rate)) <= 1 / LEVELS
    assert set(factors.unique().tolist()) <= {0.0, torch.tensor(1 / share, dtype=dtype).item()}
    tolerance = 5 * math.sqrt(share * (1 - share) / factors.numel())
    assert (factors != 0).double().mean().item() == pytest.approx(share, abs=tolerance)


def test_entries_are_independent():
    torch.manual_seed(0)
    dropped = kept(torch.empty(400_000), 0.3) == 0
    for lag in range(1, 9):  # four entries share a number that is drawn
        together = (dropped[lag:] & dropped[:-lag]).double().mean().item()
        assert together == pytest.approx(0.09, abs=5 * math.sqrt(0.09 * 0.91 / 400_000))


def test_gradient_and_second_derivative():
    x = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)

    def dropped(x):
        torch.manual_seed(3)
        return drop(x, 0.4) ** 2

    assert torch.autograd.gradcheck(dropped, x)
    assert torch.autograd.gradgradcheck(dropped, x)


def test_seeds_decide():
    x = torch.ones(1000)
    torch.manual_seed(0)
    first, second = drop(x, 0.5), drop(x, 0.5)
    torch.manual_seed(0)
    assert torch.equal(drop(x, 0.5), first)
    assert not torch.equal(first, second)


def test_under_torch_func_it_is_pytorchs():
    x = torch.ones(4, 50)
    torch.manual_seed(0)
    ours = torch.func.vmap(lambda x: drop(x, 0.5), randomness="different")(x)
    torch.manual_seed(0)
    assert torch.equal(ours, torch.func.vmap(lambda x: F.dropout(x, 0.5), randomness="different")(x))


def test_a_default_device_is_not_the_tensors():
    x = torch.ones(100)
    with torch.device("meta"):
        assert drop(x, 0.5).device == x.device and 0 < (drop(x, 0.5) == 0).sum() < 100


def test_module():
    module, x = Dropout(0.5), torch.randn(3, 4)
    assert isinstance(module, torch.nn.Dropout)
    assert repr(module) == repr(torch.nn.Dropout(0.5))
    assert (module(x) == 0).any()
    assert module.eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert drop(torch.empty(0, 3), 0.5).shape == (0, 3)
