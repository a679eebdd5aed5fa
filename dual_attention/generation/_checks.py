"""Checks of the arguments of generation."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from .._layers.inputs import check_padding


def check_number(name: str, value: Any, expected: str, *, low: float, high: float = math.inf, open_low: bool) -> float:
    """The value as a float from ``low`` (above it with ``open_low``) to ``high``; infinity and NaN are refused."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: expected {expected}, got {type(value).__name__}")
    number = float(value)
    inside = low < number if open_low else low <= number
    if not (inside and number <= high and math.isfinite(number)):
        raise ValueError(f"{name}: expected {expected}, got {value}")
    return number


def check_integer(name: str, value: Any, *, low: int) -> int:
    """The value as an int of at least ``low``."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: expected an integer, got {type(value).__name__}")
    integer = operator.index(value)
    if integer < low:
        raise ValueError(f"{name}: expected an integer of at least {low}, got {integer}")
    return integer


def check_prompts(tokens: Tensor, vocab_size: int | None, name: str = "idx") -> Tensor:
    """Token ids ``(B, L)`` of prompts as int64."""
    if not isinstance(tokens, Tensor):
        raise TypeError(
            f"{name}: expected a tensor of token ids (left_pad makes one of lists), got {type(tokens).__name__}"
        )
    if tokens.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise TypeError(f"{name}: expected integer token ids, got dtype {tokens.dtype}")
    if tokens.dim() != 2:
        raise ValueError(f"{name}: expected shape (batch, length), got {tuple(tokens.shape)}")
    if tokens.shape[1] == 0:
        raise ValueError(f"{name}: expected at least one token in each prompt, got shape {tuple(tokens.shape)}")
    if tokens.is_meta:
        raise ValueError(f"{name}: expected token ids with values, got a tensor on meta")
    if vocab_size is not None and tokens.numel():
        low, high = int(tokens.min()), int(tokens.max())
        if low < 0 or high >= vocab_size:
            raise ValueError(f"{name}: expected token ids from 0 to {vocab_size - 1}, got {low} to {high}")
    return tokens.long()


def check_left_padding(padding_mask: Tensor, tokens: Tensor) -> Tensor:
    """The mask ``(B, L)``, False then True in each row, on the device of the tokens."""
    check_padding("padding_mask", padding_mask, *tokens.shape)
    if not padding_mask.any(dim=1).all():
        empty = (~padding_mask.any(dim=1)).nonzero().flatten().tolist()
        raise ValueError(f"padding_mask: expected at least one real token in each row, got none in rows {empty}")
    if (padding_mask[:, :-1] & ~padding_mask[:, 1:]).any():
        raise ValueError("padding_mask: expected left padding (False, then True to the end), got False after True")
    return padding_mask.to(tokens.device)


def check_ending(
    stop_tokens: int | Sequence[int] | Tensor | None, pad_token: int | None, vocab_size: int, name: str = "stop_tokens"
) -> tuple[tuple[int, ...], int]:
    """Stop tokens as a tuple, and the token that a finished row emits, by default the first stop token."""
    if isinstance(stop_tokens, Tensor):
        stop_tokens = stop_tokens.flatten().tolist()
    if stop_tokens is None:
        listed: list[Any] = []
    elif isinstance(stop_tokens, Iterable) and not isinstance(stop_tokens, str):
        listed = list(stop_tokens)
    else:
        listed = [stop_tokens]
    stops = tuple(_check_token(name, token, vocab_size) for token in listed)
    if pad_token is not None:
        return stops, _check_token("pad_token", pad_token, vocab_size)
    return stops, stops[0] if stops else 0


def _check_token(name: str, token: Any, vocab_size: int) -> int:
    token = check_integer(name, token, low=0)
    if token >= vocab_size:
        raise ValueError(f"{name}: expected token ids from 0 to {vocab_size - 1}, got {token}")
    return token


def check_logits(logits: Tensor) -> None:
    """Raise ``ValueError`` if a row of logits ``(B, V)`` has NaN or infinity, or leaves no token to choose."""
    best = logits.amax(dim=-1)
    if not best.isfinite().all():
        got = best[~best.isfinite()][0].item()
        raise ValueError(f"logits: expected finite ones, got {got} (has training diverged? are all tokens excluded?)")
