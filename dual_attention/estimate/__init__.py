"""What a model costs, from closed formulas: parameters, arithmetic, activation and cache memory, time.

:func:`estimate` calls a copy of the model on the meta device, where tensors have shapes and nothing else. Each layer
that is called has a formula in the sizes of the call, and a layer without one is an error. Arithmetic is that of matrix
products (a multiply-add is two operations), as it is run: fused attention counts all pairs, masked ones too, and what
is computed again in the backward pass counts again, both as PyTorch's counter does. Elementwise work, norms, softmax,
rotary embedding, look-ups and the optimiser's step are left out.

======================================  ===========================================================================
parameters, arithmetic, caches          exact, as PyTorch's counter and real caches have it
:attr:`Estimate.activation_bytes`       exact, as autograd keeps tensors on a CPU; for CUDA from the same formulas, with
                                        what its kernels keep instead
transient and inference activations     approximations, within a tenth or so of a profiler's peak on a CPU
allocators                              what they add by rounding and fragmentation is left out
======================================  ===========================================================================

:func:`register` gives layers of one's own a formula. :func:`register_flop_formulas` lets PyTorch's counter count the
library's own operations.
"""

from .counter import counter_formulas, register_flop_formulas
from .estimation import estimate
from .registry import Call, register, register_container
from .result import Estimate, Part

__all__ = [
    "Call",
    "Estimate",
    "Part",
    "counter_formulas",
    "estimate",
    "register",
    "register_container",
    "register_flop_formulas",
]
