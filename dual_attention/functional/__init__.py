"""The mathematics: pure functions on tensors, without parameters or configuration."""

from . import reference
from .activations import ACTIVATIONS, activation_function
from .attention import attention
from .masks import causal_mask, combine_masks, padding_mask
from .relational import RelationalAttentionOutput, relational_attention
from .rotary import apply_rotary, rotary_tables
from .symbols import RelativeSymbols

__all__ = [
    "ACTIVATIONS",
    "RelationalAttentionOutput",
    "RelativeSymbols",
    "activation_function",
    "apply_rotary",
    "attention",
    "causal_mask",
    "combine_masks",
    "padding_mask",
    "reference",
    "relational_attention",
    "rotary_tables",
]
