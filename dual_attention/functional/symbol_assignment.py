"""Symbols by features: under weights of templates that all objects share.

By fused attention, or by matmuls of some objects at a time where that was measured faster.

Shapes: H heads, N objects of all examples, K symbols.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .attention import attend_to_values, attention
from .checks import is_autocast, is_readable, leaves_pytorch
from .mask_patterns import MaskPattern
from .relational.tiles import multiplies_bfloat16_in_vectors
from .relational.whole import attention_weights

WEIGHTS_OF_BLOCK = 2**21
"""Weights in a block of matmuls: 4 MiB of bfloat16."""
SMALLEST_BLOCK = 64
"""Fewest objects in a block."""
FEWEST_WEIGHTS = 2**19
"""Fewest weights for blocked matmuls (a decoding step has fewer)."""
NARROWEST_IN_BLOCKS = 64
"""Narrowest head for blocked matmuls; narrower heads were up to twice as slow."""


def assign_symbols(q: Tensor, templates: Tensor, library: Tensor, *, scale: float, dropout: float) -> Tensor:
    """Symbols ``(1, H, N, width)`` of objects with queries ``q``, by templates and a library ``(1, H, K, width)``.

    ``TypeError`` if types differ, unless autocast casts them.
    """
    if suits_blocks(q, templates, library):
        return attend_in_blocks(q, templates, library, scale, dropout)
    if not q.dtype == templates.dtype == library.dtype:
        return attention(q, templates, library, scale=scale, dropout=dropout)[0]
    everything = MaskPattern(q.shape[2], templates.shape[2])
    return attend_to_values(q, templates, library, scale=scale, mask=everything, dropout=dropout)[0]


def suits_blocks(q: Tensor, templates: Tensor, library: Tensor) -> bool:
    """True if blocked matmuls beat SDPA: bfloat16, AVX-512 without AMX, large enough."""
    if q.dtype != torch.bfloat16 or not (multiplies_bfloat16_in_vectors(q) and is_readable(q)) or leaves_pytorch():
        return False
    alike = q.dtype == templates.dtype == library.dtype or is_autocast(q)
    (_, heads, n, width), n_symbols = q.shape, templates.shape[2]
    large = n >= SMALLEST_BLOCK and width >= NARROWEST_IN_BLOCKS and heads * n * n_symbols >= FEWEST_WEIGHTS
    return alike and large


def attend_in_blocks(q: Tensor, templates: Tensor, library: Tensor, scale: float, dropout: float) -> Tensor:
    """Symbols ``(1, H, N, width)`` by matmuls, some objects at a time; weights are built again backward."""
    templates, library = (x.to(q.dtype).contiguous() for x in (templates, library))

    def block(q: Tensor, templates: Tensor, library: Tensor) -> Tensor:
        return F.dropout(attention_weights(q, templates, scale=scale), dropout) @ library

    rows = max(SMALLEST_BLOCK, WEIGHTS_OF_BLOCK // (templates.shape[1] * templates.shape[2]))
    if q.shape[2] <= rows:
        return block(q, templates, library)
    parts = [checkpoint(block, part, templates, library, use_reentrant=False) for part in q.split(rows, dim=2)]
    return torch.cat(parts, dim=2)
