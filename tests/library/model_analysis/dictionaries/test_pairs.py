"""The largest pairs and the stratified sample: what a sort of everything gives, in any order of reading."""

from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st

from dual_attention.model_analysis.dictionaries import pairs


def columns(places: list[pairs.Place]) -> pairs.Places:
    return pairs.Places(*torch.tensor(places).reshape(-1, 5).T)


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(1, 40),
    st.randoms(use_true_random=False),
)
def test_the_largest_are_those_of_a_sort(rows, size, per_tokens, batch, random):
    everything = [pairs.Found(float(value), pairs.Place(n, 0, 0, a, b)) for n, (value, a, b) in enumerate(rows)]
    wanted, seen = [], Counter()
    for one in sorted(everything, key=lambda one: (-one.value, one.place.document)):
        seen[one.place[3:]] += 1
        if seen[one.place[3:]] <= per_tokens:
            wanted.append(one)
    parts = [everything[n : n + batch] for n in range(0, len(everything), batch)]
    random.shuffle(parts)
    largest = pairs.LargestPairs(size, per_tokens)
    for part in parts:
        largest.add(torch.tensor([one.value for one in part]), columns([one.place for one in part]))
    assert largest.found == wanted[:size]


def test_the_sample_is_the_same_in_any_order_and_even():
    places = [pairs.Place(d, i, j, 7, 8) for d in range(20) for i in range(6) for j in range(i)]
    values, strata = torch.arange(len(places))[:, None].float(), torch.tensor([place.receiver for place in places])

    def sample(order, batch, seed):
        found = pairs.StratifiedSample(3, seed)
        for part in order.split(batch):
            found.add(values[part], columns([places[n] for n in part.tolist()]), strata[part])
        return found.drawn

    whole = sample(torch.arange(len(places)), len(places), 0)
    assert whole == sample(torch.randperm(len(places)), 7, 0)
    assert {stratum: len(drawn) for stratum, drawn in whole.items()} == dict.fromkeys(range(1, 6), 3)
    for stratum, drawn in whole.items():
        assert all(one.place.receiver == stratum for one in drawn)
        assert all(one.values == (pairs.rounded(torch.tensor(float(places.index(one.place)))).item(),) for one in drawn)
    counts = Counter(one.place.document for seed in range(200) for one in sample(torch.arange(300), 300, seed)[5])
    assert len(counts) == 20 and max(counts.values()) < 60  # 600 draws from 20 documents


def test_rounding_keeps_four_digits():
    values = torch.randn(1000) * torch.logspace(-20, 20, 1000)
    assert ((pairs.rounded(values) / values.double() - 1).abs() <= 2**-12).all()
    torch.testing.assert_close(pairs.rounded(values * (1 + 1e-7)), pairs.rounded(values), rtol=2**-11, atol=0)
    assert pairs.rounded(-values).equal(-pairs.rounded(values))
    assert pairs.rounded(torch.tensor([0.0, 1.0, -3.0])).tolist() == [0.0, 1.0, -3.0]
