"""Detection of labels: agreement with the plain AUC, and p-values that are what they claim."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import roc_auc_score

from dual_attention.model_analysis.measures import detect, detection, distance_strata


def planted(strength: float, *, examples=6, n=10, scores=4, seed=0):
    """Labels of objects in classes, and scores of which the third has the label in it."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.randint(0, 3, (examples, n), generator=generator)
    labels = classes[:, :, None] == classes[:, None, :]
    values = torch.randn(examples, n, n, scores, generator=generator)
    values[..., 2] -= strength * labels
    return values, labels, ~torch.eye(n, dtype=torch.bool)


def test_auc_of_all_and_of_each():
    values, labels, mask = planted(1.0)
    found = detect(values, labels, mask)
    counts = mask.expand_as(labels)
    for k in range(4):
        assert found.auc[k].item() == pytest.approx(roc_auc_score(labels[counts], values[..., k][counts]))
        for b in range(6):
            wanted = roc_auc_score(labels[b][mask], values[b, ..., k][mask])
            assert found.by_example[b, k].item() == pytest.approx(wanted)
    assert found.best == 2 and found.auc[2] < 0.3
    assert (found.positives, found.matched) == (int(labels[counts].sum()), 1.0)
    assert found.p.isnan().all() and math.isnan(found.shuffled())
    low, high = found.interval(2)
    wanted = stats.t.interval(0.95, 5, found.by_example[:, 2].mean(), stats.sem(found.by_example[:, 2]))
    assert (low, high) == pytest.approx(wanted)


def test_examples_without_pairs_count_for_nothing():
    values, labels, mask = planted(1.0)
    masks = mask.repeat(6, 1, 1)
    masks[2] = False
    labels = labels.clone()
    labels[4] = False
    found = detect(values, labels, masks, permutations=3)
    assert found.by_example[2].isnan().all() and found.by_example[4].isnan().all()
    assert not found.by_example[[0, 1, 3, 5]].isnan().any()
    others = found.by_example[[0, 1, 3, 5], 2]
    assert sum(found.interval(2)) / 2 == pytest.approx(others.mean().item())


@pytest.mark.parametrize("shuffle", ["objects", "pairs"])
def test_a_planted_label_is_found_and_the_maximum_is_corrected(shuffle):
    values, labels, mask = planted(1.0)
    found = detect(values, labels, mask, distance_strata(10), permutations=99, shuffle=shuffle)
    assert found.p[2].item() == pytest.approx(0.01)
    strength = (found.auc - 0.5).abs()
    for k in range(4):
        above = sum(value >= strength[k] for value in found.null)
        assert found.p[k].item() == pytest.approx((above + 1) / 100)
    assert found.shuffled(0.95) == pytest.approx(np.quantile(found.null.numpy(), 0.95))


def test_shuffles_are_kept_where_the_scores_lie(monkeypatch):
    """The default device is another one here, as the CPU is for scores on a GPU."""
    monkeypatch.setattr(detection, "_permute_objects", lambda labels, *_: labels.roll(1, 0))
    scores = planted(1.0)
    with torch.device("meta"):
        found = detect(*scores, permutations=3)
    assert found.null.device == found.auc.device
    assert found.p.tolist() == [1.0, 1.0, 0.25, 1.0]


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", ["objects", "pairs"])
def test_noise_is_called_a_finding_as_often_as_the_level_says(shuffle):
    """Of the best of four noisy scores, p is below 0.2 in a fifth of all data, not in more."""
    small = [
        float(detect(*planted(0.0, seed=seed, n=7), permutations=29, shuffle=shuffle, seed=seed).p.min()) <= 0.2
        for seed in range(100)
    ]
    assert stats.binomtest(sum(small), 100, 0.2).pvalue > 0.01


@pytest.mark.slow
def test_shuffled_pairs_ignore_that_pairs_share_objects():
    """A score that belongs to objects is called a finding too often when pairs are shuffled, not when objects are."""
    counts = {"objects": 0, "pairs": 0}
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        special = torch.rand(1, 14, generator=generator) < 0.4
        labels = special[:, :, None] & special[:, None, :]
        noise = torch.randn(1, 14, generator=generator)
        values = (noise[:, :, None] + noise[:, None, :])[..., None]
        mask = ~torch.eye(14, dtype=torch.bool)
        if int(labels[:, mask].sum()) > 0:
            for shuffle in counts:
                p = detect(values, labels, mask, permutations=39, shuffle=shuffle, seed=seed).p
                counts[shuffle] += float(p.min()) <= 0.05
    assert counts["objects"] <= 8 < 20 <= counts["pairs"]


def test_shuffling_leaves_generators_alone():
    values, labels, mask = planted(0.0)
    before = torch.get_rng_state()
    one, other = (detect(values, labels, mask, permutations=5, seed=3).null for _ in range(2))
    assert torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)
