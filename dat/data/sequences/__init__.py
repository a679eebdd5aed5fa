"""Synthetic sequence tasks for causal models: what to recall, to copy, to track, to sort and to solve.

Every function draws ``n`` sequences from a generator, and its sequences depend on that and on its arguments only.
"""

from .associations import mqar
from .common import UNSCORED, Sequences
from .copying import in_context_copying, selective_copying
from .equations import linear_equation
from .order import argsort
from .state import parity, permutation_products, permutation_states

__all__ = [
    "UNSCORED",
    "Sequences",
    "argsort",
    "in_context_copying",
    "linear_equation",
    "mqar",
    "parity",
    "permutation_products",
    "permutation_states",
    "selective_copying",
]
