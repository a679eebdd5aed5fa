"""Relational attention with activated relations, a block of receivers at a time.

An activation keeps the sum over senders from moving inside the relation, so relations must be built: here for a block
of receivers, contracted with that block's weights at once, and built again in the backward pass (checkpointing). Memory
grows with the length of a block times M times R.

Shapes: as in :mod:`..reference`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .. import reference
from ..mask_patterns import block_of
from ..symbols import symbol_table
from .inputs import RelationalAttentionOutput, RelationalInputs, obstacle_to_blocks
from .table import UNSUITED, Implementation, Verdict, register_implementation
from .tiles import slices
from .whole import attend, attention_weights, symbols_of_block

BLOCK = 128
"""Receivers in a block."""


def blockwise_relational_attention(x: RelationalInputs) -> RelationalAttentionOutput:
    """Relational attention without maps; the backward pass computes each block again."""

    def block(rows: slice, q: Tensor, k: Tensor, u: Tensor, w: Tensor, table: Tensor, bias: Tensor | None):
        columns = slice(*x.pattern.senders(rows.start, rows.stop))
        masks: dict[str, Any] = {
            "mask": x.pattern.block(rows, columns, q.device),
            "bias": None if bias is None else block_of(bias, rows, columns),
        }
        weights = attention_weights(q[:, :, rows], k[:, :, columns], scale=x.scale, **masks)
        alpha = F.dropout(weights, x.dropout)
        u, w = u[:, rows], w[:, columns]
        factors = map(reference.not_half, (u, w))
        relate = partial(reference.relations, *factors, scale=x.rel_scale, activation=x.rel_activation, **masks)
        symbols = symbols_of_block(x.symbols, table, rows, columns)
        # The choice has looked at the whole: no library here has a row for each pair.
        return attend(alpha, u, w, symbols, rel_scale=x.rel_scale, relate=relate, symbol_per_pair=False)[:2]

    tensors = (x.q, x.k, x.u, x.w, symbol_table(x.symbols), x.bias)
    # Without receivers there is an empty block.
    blocks = [checkpoint(block, rows, *tensors, use_reentrant=False) for rows in slices(x.n(), BLOCK) or [slice(0, 0)]]
    attended_symbols, attended_relations = (torch.cat(parts, dim=2) for parts in zip(*blocks, strict=True))
    return x.output(attended_symbols, attended_relations)


def _suits(x: RelationalInputs) -> Verdict:
    if not x.activated():
        return UNSUITED
    return Verdict(True, "activated relations of so many pairs are built a block at a time")


register_implementation(
    Implementation("blockwise", blockwise_relational_attention, obstacle_to_blocks, _suits, priority=20)
)
