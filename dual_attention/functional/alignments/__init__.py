"""Alignments: from scores and a mask to weights.

Every alignment takes scores and a boolean mask that broadcasts to them (True = may be attended; scores of minus
infinity are masked too), and normalises, if it does, over the axis ``dim`` of the keys. A masked weight is exactly
zero, and so is a row with nothing to attend, with finite gradients. float16 and bfloat16 are aligned in float32.

Local and reinforced alignment choose a subset first, by functions that return a mask.
"""

from ._common import Alignment
from .elementwise import masked_activation, sigmoid_alignment
from .hard import Estimator, hard_alignment, reinforce_loss
from .local import local_window, log_gaussian, monotonic_centre, predicted_position
from .soft import masked_softmax, uniform_alignment
from .sparse import entmax, sparsemax
from .subset import bernoulli_subset

__all__ = [
    "Alignment",
    "Estimator",
    "bernoulli_subset",
    "entmax",
    "hard_alignment",
    "local_window",
    "log_gaussian",
    "masked_activation",
    "masked_softmax",
    "monotonic_centre",
    "predicted_position",
    "reinforce_loss",
    "sigmoid_alignment",
    "sparsemax",
    "uniform_alignment",
]
