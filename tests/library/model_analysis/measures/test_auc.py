"""AUC, plain and matched, against scikit-learn and against a loop over pairs."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from dual_attention.model_analysis.measures import RankedScores, area_under_curve


def test_area_under_curve_is_the_share_of_ordered_pairs():
    scores = torch.tensor([0.1, 0.4, 0.4, 0.8, 0.8, 0.9])
    positive = torch.tensor([False, True, False, False, True, True])
    pairs = [
        float(a > b) + 0.5 * float(a == b)
        for a, p in zip(scores, positive, strict=True)
        if p
        for b, q in zip(scores, positive, strict=True)
        if not q
    ]
    assert area_under_curve(scores, positive) == pytest.approx(sum(pairs) / len(pairs))


ROW = st.tuples(st.integers(-4, 4), st.integers(-3, 3), st.booleans(), st.integers(0, 3))


@given(st.lists(ROW, min_size=1, max_size=60))
def test_matched_auc_is_the_mean_over_positives_of_the_auc_of_their_strata(rows):
    scores = torch.tensor([[a, b] for a, b, *_ in rows]).double()
    positive = torch.tensor([p for *_, p, _ in rows])
    strata = torch.tensor([s for *_, s in rows])
    found = RankedScores(scores, 7 * strata - 3).auc(positive)  # any integers do
    total, count = np.zeros(2), 0
    for stratum in strata.unique():
        own = strata == stratum
        if own[positive].any() or positive[own].any():
            if positive[own].all() or not positive[own].any():
                continue
            n = int(positive[own].sum())
            total += n * np.array([roc_auc_score(positive[own], scores[own, k]) for k in range(2)])
            count += n
    assert found.positives == count
    if count:
        np.testing.assert_allclose(found.auc.numpy(), total / count)
        assert found.matched == pytest.approx(count / int(positive.sum()))
    else:
        assert found.auc.isnan().all()


def test_nothing_to_compare_is_no_number():
    for n, strata in ((0, None), (2, torch.tensor([0, 1]))):
        found = RankedScores(torch.zeros(n, 3), strata).auc(torch.ones(n, dtype=torch.bool))
        assert found.auc.shape == (3,) and found.auc.isnan().all() and found.positives == 0
