"""Strata and matched negatives."""

from collections import Counter

import torch

from dual_attention.model_analysis import measures


def test_distances():
    assert measures.distance_strata(4)[0].tolist() == [0, 1, 2, 3]
    assert measures.distance_strata(4)[2].tolist() == [2, 1, 0, 1]
    assert measures.distance_strata(10, (1, 2, 4, 8))[0].tolist() == [0, 1, 2, 2, 3, 3, 3, 3, 4, 4]


def test_counts_and_frequencies():
    documents = [torch.tensor([0, 1, 1]), torch.tensor([1, 3])]
    counts = measures.count_tokens(documents, 5)
    assert counts.tolist() == [1, 3, 0, 1, 0]
    assert measures.frequency_bins(torch.tensor([[0, 1, 2, 3]]), counts).tolist() == [[1, 2, 0, 1]]
    strata = measures.frequency_strata(torch.tensor([[0, 1, 2, 3]]), counts)
    assert strata[0, 0, 1] == strata[0, 3, 1] != strata[0, 1, 0]
    assert strata.unique().numel() == 9


def test_identity_and_receivers():
    tokens = torch.tensor([[4, 2, 4]])
    assert measures.identity_strata(tokens)[0].tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    assert measures.receiver_strata(tokens)[0].tolist() == [[4] * 3, [2] * 3, [4] * 3]


def test_combined_strata_agree_exactly_where_all_do():
    one, other = torch.randint(-3, 3, (2, 5, 5)), torch.randint(0, 4, (5, 5)) * 10**12
    combined = measures.combine_strata(one, other)
    pairs = list(zip(one.flatten().tolist(), other.expand(2, 5, 5).flatten().tolist(), strict=True))
    names = combined.flatten().tolist()
    assert len(set(zip(pairs, names, strict=True))) == len(set(pairs)) == len(set(names)) == max(names) + 1


def test_matched_negatives_have_the_strata_of_the_positives():
    labels, mask = torch.rand(3, 12, 12) < 0.2, torch.rand(3, 12, 12) < 0.7
    strata = measures.distance_strata(12)
    positives, negatives = measures.matched_negatives(labels, mask, strata, seed=1)
    assert (positives <= (labels & mask)).all() and (negatives <= (~labels & mask)).all()
    for b in range(3):
        ones, others = (Counter(strata[chosen[b]].tolist()) for chosen in (positives, negatives))
        assert ones == others
        available = Counter(strata[(labels & mask)[b]].tolist()), Counter(strata[(~labels & mask)[b]].tolist())
        assert ones == available[0] & available[1]
    again = measures.matched_negatives(labels, mask, strata, seed=1)
    assert torch.equal(again[1], negatives)
    assert not torch.equal(measures.matched_negatives(labels, mask, strata, seed=2)[1], negatives)


def test_no_pairs_have_no_negatives():
    nothing = torch.zeros(1, 3, 3, dtype=torch.bool)
    for chosen in measures.matched_negatives(nothing, nothing):
        assert not chosen.any()
