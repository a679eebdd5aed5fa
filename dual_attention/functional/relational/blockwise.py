"""Relational attention with activated relations, a block of receivers at a time.

An activation keeps the sum over senders from moving inside the relation, so relations must be built: here for a block
of receivers, contracted with that block's weights at once, and built again in the backward pass (checkpointing). Memory
grows with the length of a block times M times R.

Shapes: as in :mod:`.reference`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .. import reference
from ..activations import Activation
from ..attention import narrow
from ..masks import MaskPattern
from ..symbols import RelativeSymbols
from .shared_symbols import attend_to_symbols

BLOCK = 128
"""Receivers in a block."""


def blockwise_relational_attention(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    symbols: Tensor | RelativeSymbols,
    *,
    scale: float,
    rel_scale: float,
    rel_activation: str | Activation,
    pattern: MaskPattern,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    block: int = BLOCK,
) -> tuple[Tensor, Tensor]:
    """Attended symbols ``(B, H, N, d_h)`` and attended relations ``(B, H, N, R)``; arguments as :func:`linear`'s."""
    table = symbols.library if isinstance(symbols, RelativeSymbols) else symbols

    def attend(rows: slice, q: Tensor, k: Tensor, u: Tensor, w: Tensor, table: Tensor, bias: Tensor | None):
        columns = slice(*pattern.senders(rows.start, rows.stop))
        masks: dict[str, Tensor | None] = {
            "mask": pattern.block(rows, columns, q.device),
            "bias": None if bias is None else narrow(bias, rows, columns),
        }
        alpha = F.dropout(reference.attention_weights(q[:, :, rows], k[:, :, columns], scale=scale, **masks), dropout)
        r = reference.relations(u[:, rows], w[:, columns], scale=rel_scale, activation=rel_activation, **masks)
        if isinstance(symbols, RelativeSymbols):
            here: Tensor | RelativeSymbols = RelativeSymbols(table, symbols.index_of(rows, columns))
        else:
            here = table[:, :, columns]
        attended_symbols = attend_to_symbols(alpha, here, for_each_pair=False)  # the caller has looked at the whole
        return attended_symbols, torch.einsum("bhnm,bnmr->bhnr", alpha, r)

    blocks = [
        checkpoint(attend, slice(start, min(start + block, q.shape[2])), q, k, u, w, table, bias, use_reentrant=False)
        for start in range(0, max(q.shape[2], 1), block)  # without receivers there is an empty block
    ]
    attended = [torch.cat(parts, dim=2) for parts in zip(*blocks, strict=True)]
    return attended[0], attended[1]
