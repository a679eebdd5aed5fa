"""A permutation without a list: every integer once, random, the same everywhere."""

import itertools
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, norm

from dat.training.permutation import MOST, Permutation
from tests.support.refusals import refused

SEEDS = 200
PINNED = [7, 4, 6, 10, 3, 11, 1, 8, 2, 9, 5, 0]
PINNED_LONG = [738539885614, 59157772, 737304912296]


def whole(n: int, seed: int, *names: object) -> torch.Tensor:
    return Permutation(n, seed, *names)[torch.arange(n)]


@pytest.mark.slow
@given(st.integers(1, 3000), st.integers(-(1 << 63), 1 << 63))
def test_every_integer_comes_once(n, seed):
    assert whole(n, seed).sort().values.tolist() == list(range(n))


@pytest.mark.slow
@given(st.integers(1, 500), st.integers(0, 9), st.data())
def test_an_index_does_not_depend_on_those_beside_it(n, seed, data):
    places = torch.tensor(data.draw(st.lists(st.integers(0, n - 1), max_size=20)), dtype=torch.int64)
    assert Permutation(n, seed)[places].tolist() == whole(n, seed)[places].tolist()


def test_it_is_the_same_on_every_machine():
    assert whole(12, 0).tolist() == PINNED
    assert Permutation(10**12, 1, "pass", 3)[torch.tensor([0, 1, 10**12 - 1])].tolist() == PINNED_LONG


def test_seeds_and_names_decide():
    orders = [whole(50, seed, *names).tolist() for seed in (0, 1) for names in ((), ("a",), ("a", 1))]
    assert len({tuple(order) for order in orders}) == 6
    assert whole(50, 0, "a").tolist() == orders[1]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "trials"), [(2, 300), (3, 600), (4, 900)])
def test_all_orders_are_equally_likely(n, trials):
    counts = Counter(tuple(whole(n, seed).tolist()) for seed in range(trials))
    found = [counts[order] for order in itertools.permutations(range(n))]
    assert chisquare(found).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("n", [17, 1025])
def test_places_and_integers_are_independent(n):
    """Every place takes every integer alike, neighbours are uncorrelated, and few integers stay where they are."""
    orders = torch.stack([whole(n, seed) for seed in range(SEEDS)]).double()
    stays = (orders == torch.arange(n)).sum().item()
    assert abs(stays - SEEDS) < 5 * SEEDS**0.5  # one in each, on average
    for column in (0, n // 2, n - 1):
        parts = torch.histc(orders[:, column], bins=8, min=0, max=n - 1)
        sizes = torch.histc(torch.arange(n).double(), bins=8, min=0, max=n - 1)
        assert chisquare(parts.numpy(), (SEEDS * sizes / n).numpy()).pvalue > 1e-3
    centred = orders - orders.mean(1, keepdim=True)
    correlation = (centred[:, 1:] * centred[:, :-1]).sum() / centred.square().sum()
    assert 2 * norm.sf(abs(correlation.item() + 1 / n) * (SEEDS * n) ** 0.5) > 1e-3


def test_it_is_as_random_as_it_is_long():
    """Of 10**15, the integers at neighbouring places lie anywhere."""
    n = 10**15
    found = Permutation(n, 5)[torch.arange(100_000)]
    assert len(found.unique()) == 100_000
    assert chisquare(torch.histc(found.double(), bins=64, min=0, max=n).numpy()).pvalue > 1e-3
    bits = torch.stack([(found >> bit) & 1 for bit in range(32)]).double()
    assert (bits.mean(1) - 0.5).abs().max() < 5 * 0.5 / 100_000**0.5


test_what_is_refused = refused(
    *((lambda n=n: Permutation(n, 0), r"n: expected an integer from 1 to 2\*\*62") for n in (0, -1, MOST + 1)),
    *((lambda place=place: Permutation(7, 0)[torch.tensor([0, place])], IndexError, "expected integers from 0 to 6")
      for place in (-1, 7)),
)  # fmt: skip


def test_the_longest():
    found = Permutation(MOST, 0)[torch.tensor([0, 1, MOST - 1])]
    assert len(found.unique()) == 3 and int(found.min()) >= 0 and int(found.max()) < MOST


def test_no_places():
    assert Permutation(7, 0)[torch.arange(0)].tolist() == []
