"""Measures refuse what they cannot compute from."""

import torch

from dual_attention.model_analysis.interventions import Ablate, Target
from dual_attention.model_analysis.labels import same_token
from dual_attention.model_analysis.measures import (
    RankedScores,
    area_under_curve,
    attention_scores,
    compare,
    detect,
    distance_strata,
    frequency_bins,
    measure_selectivity,
    message_share,
    random_relations,
    relation_asymmetry,
    relation_contributions,
    relation_rank,
    selectivity,
)
from tests.support import language
from tests.support.refusals import refused

from .test_detection import planted

VALUES, LABELS, MASK = planted(0.0)
SCORES, NANS, WIDE = torch.zeros(3, 1), torch.tensor([[0.0], [float("nan")]]), torch.randn(2, 5, 16)
RELATIONS, ATTENTION = torch.zeros(1, 3, 3, 2), torch.zeros(1, 4, 3, 3)
SQUARE = torch.ones(40, 40, dtype=torch.bool)


def of_documents(documents, mask=MASK[:8, :8], **options):
    """Selectivity of a relation on documents ``(B, 8)``."""
    options = {"intervention": lambda pairs: Ablate(Target("relation", pairs=pairs)), **options}
    mask = mask.expand(len(documents), 8, 8)
    return measure_selectivity(language.lm("symbolic_attention"), documents, same_token(documents), mask, **options)


test_bad_input = refused(
    (lambda: area_under_curve(torch.rand(6), torch.ones(6, dtype=torch.bool)), "expected both kinds"),
    (lambda: RankedScores(torch.zeros(3)), r"scores: expected shape \(pairs, scores\), got \(3,\)"),
    (lambda: RankedScores(NANS), "scores: expected finite"),
    (lambda: RankedScores(SCORES, torch.zeros(3)), TypeError, "strata: expected integers, got dtype torch.float32"),
    (lambda: RankedScores(SCORES, torch.zeros(4).long()), "strata: expected a shape broadcastable"),
    (lambda: RankedScores(SCORES.long()), TypeError, "scores: expected a floating-point tensor"),
    (lambda: RankedScores(SCORES).auc(torch.zeros(3)), TypeError, "positive"),
    (lambda: RankedScores(SCORES).auc(SQUARE[0, :4]), r"positive: expected shape \(3,\), got \(4,\)"),
    (lambda: attention_scores(torch.rand(6, 3, 4)), r"weights: expected shape \(B, H, N, M\)"),
    (lambda: random_relations(WIDE, 4, 3, rel_score="cosine"), "rel_score: .* 'squared_distance', got 'cosine'"),
    (lambda: compare({"relations": VALUES}, LABELS, MASK, chosen_on=torch.arange(6)),
     r"chosen_on: expected booleans \(6,\), got torch.int64 \(6,\)"),
    (lambda: detect(VALUES[:, :, :9], LABELS, MASK), r"scores: expected shape \(B, N, N, R\), got \(6, 10, 9, 4\)"),
    (lambda: detect(VALUES, LABELS.float(), MASK), TypeError, "labels"),
    (lambda: detect(VALUES, LABELS[:, :9, :9], MASK), r"labels: .* broadcastable to \(6, 10, 10\), got \(6, 9, 9\)"),
    (lambda: detect(VALUES, LABELS & False, MASK), "labels: expected both kinds in one stratum"),
    (lambda: detect(VALUES, LABELS, MASK, shuffle="rows"), "shuffle: .*'objects' or 'pairs', got 'rows'"),
    (lambda: distance_strata(4, (2, 2)), r"edges: expected ascending distances, got \[2, 2\]"),
    (lambda: frequency_bins(torch.tensor([5]), torch.ones(5, dtype=torch.long)),
     "tokens: expected ids from 0 to 4, of which counts are given, got 5 to 5"),
    (lambda: message_share(torch.zeros(3, 2), torch.zeros(1, 2)), r"symbolic: expected shape \(3, 2\), got \(1, 2\)"),
    (lambda: relation_rank(VALUES, LABELS & False), "at least two pairs"),
    (lambda: relation_asymmetry(torch.randn(3, 40, 40, 4), SQUARE.tril(-1)), "in both directions"),
    (lambda: relation_asymmetry(torch.zeros(1, 3, 4, 2)), r"relations: .* \(B, N, N, R\), got \(1, 3, 4, 2\)"),
    (lambda: relation_contributions(RELATIONS, torch.zeros(1, 2, 3, 4), torch.zeros(2, 2, 8)),
     r"attention: expected \(1, heads, 3, 3\), got \(1, 2, 3, 4\)"),
    (lambda: relation_contributions(RELATIONS, ATTENTION, torch.zeros(2, 4, 8)), r"written: .*4, 2, d\), got \(2, "),
    (lambda: relation_contributions(RELATIONS.long(), ATTENTION, torch.zeros(4, 2, 8)), TypeError,
     "relations: expected a floating-point tensor"),
    (lambda: selectivity([0.0] * 4, [0.0] * 3), "without: expected 4 effects, as with_label has, got 3"),
    (lambda: selectivity([1.0], [2.0]), "at least two documents, got 1"),
    (lambda: of_documents(torch.arange(8).expand(3, 8)), "two or more documents with matched pairs"),
    *(
        (lambda n=n: of_documents(torch.zeros(5, 8).long(), lengths=n), "lengths: expected 5 integers from 0 to 8, got")
        for n in (torch.full((4,), 8), torch.full((5,), 9), torch.full((5,), 8.0).double())
    ),
)  # fmt: skip
