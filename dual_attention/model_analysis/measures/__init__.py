"""Measures of trained relations, and the controls without which they mean little.

===============  ====================================================================================================
``records``      measures of captures: of each layer, and three readings of its relations
``relations``    share of relations in messages, their rank and asymmetry, what a relation of a pair contributes
``auc``          area under the ROC curve, also among pairs that are alike in other respects
``matching``     those respects: distance, frequency and identity; negatives that match positives
``detection``    AUC of many scores for a label, with intervals over examples and the maximum corrected by permutation
``controls``     attention, cosines, random projections, an untrained model; their comparison with relations
``selectivity``  effect of an intervention at pairs with a label, less that at matched pairs without
===============  ====================================================================================================

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
