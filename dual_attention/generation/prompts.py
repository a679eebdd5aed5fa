"""Prompts of different lengths as one batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ._checks import check_integer


def left_pad(
    prompts: Sequence[Sequence[int] | Tensor], pad_token: int = 0, *, device: torch.device | str | None = None
) -> tuple[Tensor, Tensor]:
    """Pad prompts on the left, so that each ends where generation begins.

    Args:
        prompts: one or more lists or vectors of token ids, none of them empty.
        pad_token: stands where there is no token; the mask hides it, so any id of the vocabulary will do.
        device: of the result; by default that of the first prompt if it is a tensor, otherwise the CPU.

    Returns:
        Integers ``(B, longest)``, and their padding mask, boolean ``(B, longest)``; True = a real token.

    >>> tokens, mask = left_pad([[5, 17, 3], [8]])
    >>> tokens, mask
    (tensor([[ 5, 17,  3],
            [ 0,  0,  8]]), tensor([[ True,  True,  True],
            [False, False,  True]]))
    """
    if isinstance(prompts, str | bytes) or not isinstance(prompts, Sequence | Tensor):
        raise TypeError(f"prompts: expected a list of lists or vectors of token ids, got {type(prompts).__name__}")
    if not len(prompts):
        raise ValueError("prompts: expected at least one, got none")
    pad_token = check_integer("pad_token", pad_token, low=0)
    rows = [_vector(f"prompts[{i}]", prompt) for i, prompt in enumerate(prompts)]
    rows = [row.to(rows[0].device if device is None else device) for row in rows]
    real = [torch.ones_like(row, dtype=torch.bool) for row in rows]
    tokens = pad_sequence(rows, batch_first=True, padding_value=pad_token, padding_side="left")
    return tokens, pad_sequence(real, batch_first=True, padding_side="left")


def _vector(name: str, prompt: Sequence[int] | Tensor) -> Tensor:
    if isinstance(prompt, str | bytes):
        raise TypeError(f"{name}: expected token ids, got {type(prompt).__name__} (encode text first)")
    try:
        row = torch.as_tensor(prompt)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name}: expected token ids, got {type(prompt).__name__} ({error})") from None
    if row.dim() != 1 or not len(row):
        raise ValueError(f"{name}: expected a vector of at least one token id, got shape {tuple(row.shape)}")
    if row.is_floating_point() or row.is_complex() or row.dtype == torch.bool:
        raise TypeError(f"{name}: expected integer token ids, got dtype {row.dtype}")
    return row.long()
