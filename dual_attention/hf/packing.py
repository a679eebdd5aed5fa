"""Sequences packed into rows, as transformers' collators and trainers describe them to any model.

Shapes: B batch, N length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from .._layers.inputs import is_integer


class MoreInputs(TypedDict, total=False):
    """Inputs that trainers and collators may hand to any language model for transformers.

    The boundaries of packed sequences, as ``DataCollatorWithFlattening`` gives them, may be described in either way or
    in both; sequences do not see each other.

    Attributes:
        seq_idx: integers ``(B or 1, N)``, the number of each token's sequence.
        cu_seq_lens_q, cu_seq_lens_k: equal integers ``(S + 1,)`` for a single row: where each of the S sequences in it
            begins, and its length.
        max_length_q, max_length_k: not needed.
        cache_position: not needed, since the cache knows what it has seen.
        output_router_logits: only False, there are no routers.
    """

    seq_idx: Tensor | None
    cu_seq_lens_q: Tensor | None
    cu_seq_lens_k: Tensor | None
    max_length_q: int | Tensor | None
    max_length_k: int | Tensor | None
    cache_position: Tensor | None
    output_router_logits: bool | None


class CausalInputs(MoreInputs, total=False):
    """Those of a model that predicts the next token.

    Attributes:
        shift_labels: ``(B, N)``, the label of the prediction at each position, instead of ``labels``. It is no argument
            of its own, since the Trainer waits for every argument with "label" in its name.
    """

    shift_labels: Tensor | None


def segments_from(more: Mapping[str, Any], tokens: Tensor) -> Tensor | None:
    """Number ``(B or 1, N)`` of the sequence of each of the tokens ``(B, N)``; None if these inputs name none.

    Raises:
        TypeError: if one of the inputs has another name than in :class:`MoreInputs`.
        ValueError: if they do not describe rows of this shape, or ask for routers.
    """
    unknown = [name for name in more if name not in MoreInputs.__annotations__]
    if unknown:
        raise TypeError(f"forward() got an unexpected keyword argument {unknown[0]!r}")
    if more.get("output_router_logits"):
        raise ValueError("output_router_logits: expected False, since this model has no routers, got True")
    seq_idx, starts, others = (more.get(name) for name in ("seq_idx", "cu_seq_lens_q", "cu_seq_lens_k"))
    found = [] if seq_idx is None else [seq_idx.to(tokens.device)]
    if starts is not None and others is not None and not (others is starts or torch.equal(others, starts)):
        raise ValueError("cu_seq_lens_k: expected the same as cu_seq_lens_q")
    starts = others if starts is None else starts
    if starts is not None:
        found.append(_segments_between(starts, tokens))
    if len(found) == 2 and not torch.equal(*((part.diff() != 0).expand(len(tokens), -1) for part in found)):
        raise ValueError("seq_idx, cu_seq_lens_q: expected the same sequences")
    return found[0].long() if found else None


def _segments_between(starts: Tensor, tokens: Tensor) -> Tensor:
    """Number ``(1, N)`` of the sequence of each token of the only row, from where sequences begin and the last ends."""
    if not isinstance(starts, Tensor) or not is_integer(starts) or starts.dim() != 1 or len(starts) < 2:
        got = tuple(starts.shape) if isinstance(starts, Tensor) else type(starts).__name__
        raise ValueError(f"cu_seq_lens_q: expected integers of shape (sequences + 1,), got {got}")
    length = tokens.shape[1]
    if len(tokens) != 1:
        raise ValueError(f"cu_seq_lens_q: describes a single row of packed sequences, got a batch of {len(tokens)}")
    if not torch.compiler.is_compiling():
        lengths = starts.diff()
        if int(starts[0]) != 0 or int(starts[-1]) != length or bool((lengths < 0).any()):
            raise ValueError(f"cu_seq_lens_q: expected to rise from 0 to the length {length}, got {starts.tolist()}")
    places = torch.arange(length, device=tokens.device)
    return torch.bucketize(places, starts[1:-1].to(tokens.device), right=True)[None]


def packed_segments(position_ids: Tensor) -> Tensor | None:
    """Number ``(B, N)`` of each token's sequence among those packed into a row; None if each row has one."""
    if position_ids.dim() != 2:
        raise ValueError(f"position_ids: expected shape (B or 1, N), got {tuple(position_ids.shape)}")
    begins = position_ids[:, 1:] != position_ids[:, :-1] + 1
    if not torch.compiler.is_compiling() and not bool(begins.any()):
        return None
    return nn.functional.pad(begins.long().cumsum(dim=1), (1, 0))
