"""The mathematics: pure functions on tensors, without parameters or configuration."""

from . import reference
from .activations import ACTIVATIONS, activation_function
from .alignments.common import Alignment
from .alignments.elementwise import masked_activation, sigmoid_alignment
from .alignments.hard import bernoulli_subset, hard_alignment, reinforce_loss
from .alignments.local import local_window, log_gaussian, monotonic_centre, predicted_position
from .alignments.soft import masked_softmax, uniform_alignment
from .alignments.sparse import entmax, sparsemax
from .alignments.stick import stick_breaking
from .attention import attention
from .combination import combine, masked_mean
from .losses import cross_entropy, linear_cross_entropy
from .masks import MaskPattern, causal_mask, combine_masks, directional_mask, mask_pattern, padding_mask
from .measures import (
    attention_correctness,
    attention_entropy,
    structured_attention_penalty,
)
from .positions import positions_from_padding, positions_from_segments, segments_from_cu_seqlens, segments_from_lengths
from .relational.api import explain_relational_attention, relational_attention
from .relational.choice import Choice
from .relational.inputs import RelationalAttentionOutput
from .relational.workspace import free_workspace
from .relational_cross import disentangled_relational_cross_attention, relational_cross_attention
from .rotary import apply_rotary, rotary_tables
from .scores import (
    additive_score,
    cosine_score,
    dot_score,
    euclidean_score,
    general_score,
    key_score,
    location_features,
    location_score,
    product_score,
    squared_distance_keys,
    squared_distance_queries,
    trilinear_score,
)
from .symbols import OffsetSymbols, RelativeSymbols

__all__ = [
    "ACTIVATIONS",
    "Alignment",
    "Choice",
    "MaskPattern",
    "OffsetSymbols",
    "RelationalAttentionOutput",
    "RelativeSymbols",
    "activation_function",
    "additive_score",
    "apply_rotary",
    "attention",
    "attention_correctness",
    "attention_entropy",
    "bernoulli_subset",
    "causal_mask",
    "combine",
    "combine_masks",
    "cosine_score",
    "cross_entropy",
    "directional_mask",
    "disentangled_relational_cross_attention",
    "dot_score",
    "entmax",
    "euclidean_score",
    "explain_relational_attention",
    "free_workspace",
    "general_score",
    "hard_alignment",
    "key_score",
    "linear_cross_entropy",
    "local_window",
    "location_features",
    "location_score",
    "log_gaussian",
    "mask_pattern",
    "masked_activation",
    "masked_mean",
    "masked_softmax",
    "monotonic_centre",
    "padding_mask",
    "positions_from_padding",
    "positions_from_segments",
    "predicted_position",
    "product_score",
    "reference",
    "reinforce_loss",
    "relational_attention",
    "relational_cross_attention",
    "rotary_tables",
    "segments_from_cu_seqlens",
    "segments_from_lengths",
    "sigmoid_alignment",
    "sparsemax",
    "squared_distance_keys",
    "squared_distance_queries",
    "stick_breaking",
    "structured_attention_penalty",
    "trilinear_score",
    "uniform_alignment",
]
