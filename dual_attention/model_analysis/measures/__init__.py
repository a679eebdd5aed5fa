"""Measures of trained relations, and the controls without which they mean little.

Shapes and dtypes that do not fit are a ``ValueError`` or ``TypeError``.
"""

from .auc import MatchedAuc, RankedScores, area_under_curve
from .controls import (
    Compared,
    attention_scores,
    compare,
    comparison_table,
    cosine_scores,
    random_relations,
    untrained_twin,
)
from .detection import Detection, Shuffle, detect
from .matching import (
    combine_strata,
    count_tokens,
    distance_strata,
    frequency_bins,
    frequency_strata,
    identity_strata,
    matched_negatives,
    receiver_strata,
)
from .records import LayerMeasures, RelationReadings, measure_layers, read_relations, written_by
from .relations import message_share, relation_asymmetry, relation_contributions, relation_rank
from .selectivity import Selectivity, measure_selectivity, selectivity

__all__ = [
    "Compared",
    "Detection",
    "LayerMeasures",
    "MatchedAuc",
    "RankedScores",
    "RelationReadings",
    "Selectivity",
    "Shuffle",
    "area_under_curve",
    "attention_scores",
    "combine_strata",
    "compare",
    "comparison_table",
    "cosine_scores",
    "count_tokens",
    "detect",
    "distance_strata",
    "frequency_bins",
    "frequency_strata",
    "identity_strata",
    "matched_negatives",
    "measure_layers",
    "measure_selectivity",
    "message_share",
    "random_relations",
    "read_relations",
    "receiver_strata",
    "relation_asymmetry",
    "relation_contributions",
    "relation_rank",
    "selectivity",
    "untrained_twin",
    "written_by",
]
