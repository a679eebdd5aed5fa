"""Selectivity, as arithmetic and of interventions on a model."""

import pytest
import torch
from scipy import stats

from dual_attention.model_analysis.interventions import Ablate, Target, intervene
from dual_attention.model_analysis.labels import same_token
from dual_attention.model_analysis.measures import distance_strata, matched_negatives, measure_selectivity, selectivity
from tests.support import language


def test_selectivity_is_a_paired_difference():
    one, other = [0.5, 0.7, 0.6, 0.9], [0.1, 0.2, 0.4, 0.2]
    found = selectivity(one, other)
    assert (found.with_label, found.without) == pytest.approx((0.675, 0.225))
    assert found.difference == pytest.approx(0.45)
    test = stats.ttest_rel(one, other)
    assert found.p == pytest.approx(test.pvalue)
    interval = test.confidence_interval(0.95)
    assert found.half == pytest.approx((interval.high - interval.low) / 2)


def losses(model, documents):
    with torch.no_grad():
        logits = model(documents[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.mT, documents[:, 1:], reduction="none").mean(1)


def test_selectivity_of_ablations():
    """By hand: the loss with the relation zeroed at the pairs of one kind, and at those of the other."""
    model = language.lm("symbolic_attention")
    documents = torch.randint(0, 4, (5, 8))
    documents[3] = torch.arange(8)  # no token twice
    labels, mask = same_token(documents), torch.ones(8, 8, dtype=torch.bool).tril(-1).expand(5, 8, 8)

    def ablate(pairs):
        return Ablate(Target("relation", layers=1, relations=0, pairs=pairs))

    found = measure_selectivity(model, documents, labels, mask, distance_strata(8), intervention=ablate, seed=2)
    inside = mask.clone()
    inside[:, 7] = False
    chosen = matched_negatives(labels, inside, distance_strata(8), seed=2)
    wanted = []
    for kind in chosen:
        values = []
        for n in (0, 1, 2, 4):
            with intervene(model, ablate([tuple(pair) for pair in kind[n].nonzero().tolist()])):
                after = losses(model, documents[n : n + 1])
            values.append((after - losses(model, documents[n : n + 1])).item())
        wanted.append(values)
    assert (found.with_label, found.without) == pytest.approx((sum(wanted[0]) / 4, sum(wanted[1]) / 4))
    assert found.difference == pytest.approx(selectivity(*wanted).difference)
    assert found.documents == 4 and found.with_label != 0 != found.without

    nothing = measure_selectivity(
        model, documents, labels, mask, intervention=lambda pairs: Ablate(ablate(pairs).target, strength=0.0)
    )
    # Not to the bit: the loss is compared with one of a whole batch, whose sums a processor may order otherwise.
    assert (nothing.with_label, nothing.without) == pytest.approx((0, 0), abs=1e-6)


def test_what_fills_up_documents_does_not_count():
    model, documents = language.lm("symbolic_attention"), torch.randint(0, 4, (5, 8))
    lengths = torch.tensor([8, 6, 8, 7, 8])
    full = documents.clone()
    for row, length in zip(full, lengths, strict=True):
        row[length:] = 4
    how = {"intervention": lambda pairs: Ablate(Target("relation", layers=1, relations=0, pairs=pairs))}
    found = [
        measure_selectivity(model, padded, same_token(padded), mask, lengths=lengths, **how)
        for padded in (documents, full, torch.nn.functional.pad(full, (0, 1)))
        for mask in [torch.ones(5, padded.shape[1], padded.shape[1], dtype=torch.bool).tril(-1)]
    ]
    assert found[0].with_label != 0
    for other in found[1:]:
        assert other.difference == pytest.approx(found[0].difference)
        assert other.with_label == pytest.approx(found[0].with_label)
