"""The mathematics: pure functions on tensors, without parameters or configuration."""

from . import reference
from .activations import ACTIVATIONS, activation_function
from .attention import attention
from .cross_entropy import cross_entropy, linear_cross_entropy
from .masks import (
    MaskPattern,
    causal_mask,
    combine_masks,
    mask_pattern,
    padding_mask,
    positions_from_padding,
    positions_from_segments,
    segments_from_lengths,
)
from .relational import RelationalAttentionOutput, relational_attention
from .relational_cross import disentangled_relational_cross_attention, relational_cross_attention
from .rotary import apply_rotary, rotary_tables
from .symbols import OffsetSymbols, RelativeSymbols

__all__ = [
    "ACTIVATIONS",
    "MaskPattern",
    "OffsetSymbols",
    "RelationalAttentionOutput",
    "RelativeSymbols",
    "activation_function",
    "apply_rotary",
    "attention",
    "causal_mask",
    "combine_masks",
    "cross_entropy",
    "disentangled_relational_cross_attention",
    "linear_cross_entropy",
    "mask_pattern",
    "padding_mask",
    "positions_from_padding",
    "positions_from_segments",
    "reference",
    "relational_attention",
    "relational_cross_attention",
    "rotary_tables",
    "segments_from_lengths",
]
