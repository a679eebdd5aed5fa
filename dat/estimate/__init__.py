"""Costs of a model: parameters, arithmetic, activation and cache memory, time, without computing anything.

:func:`estimate` runs a copy of any module on fake tensors, which have shapes, dtypes and lifetimes and nothing else,
and measures what would happen. Arithmetic is that of matrix products (a multiply-add is two operations), as PyTorch's
counter has it: fused attention counts all pairs, masked ones too, and what is computed again in the backward pass
counts again. Elementwise work, norms, softmax, rotary embedding, look-ups and the optimiser's step are left out.

======================================  ===========================================================================
parameters, caches                      exact
arithmetic, tensors kept                exact for the device whose kernels were traced, :attr:`Estimate.traced_on`
transient and inference activations     most bytes of tensors alive at a time, as an allocator without rounding or
                                        fragmentation would hand them out
with ``device="cuda"`` and no GPU       a CPU is traced; :attr:`Estimate.notes` says what is approximate
======================================  ===========================================================================

:func:`register_flop_formulas` lets PyTorch's counter count the library's own operations.
"""

from .counter import counter_formulas, register_flop_formulas
from .estimation import estimate
from .parallel import ParallelEstimate, parallel_estimate
from .result import Estimate, Part

__all__ = [
    "Estimate",
    "ParallelEstimate",
    "Part",
    "counter_formulas",
    "estimate",
    "parallel_estimate",
    "register_flop_formulas",
]
