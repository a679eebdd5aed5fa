"""Masking of tokens for masked language modelling (BERT, Devlin et al. 2019, arXiv 1810.04805, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["mask_tokens"]


def mask_tokens(
    tokens: Tensor,
    *,
    mask_token: int,
    vocab_size: int,
    special_tokens: Sequence[int] = (),
    padding_mask: Tensor | None = None,
    probability: float = 0.15,
    mask_share: float = 0.8,
    random_share: float = 0.1,
    ignore_index: int = -100,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Choose tokens to predict, and hide most of them.

    Each token is chosen with the same probability. Of the chosen, by default, 80 % become the mask token, 10 % a random
    token, and 10 % stay what they are, so that a model must doubt every token.

    Args:
        tokens: integers, any shape.
        mask_token: the id that hides a token.
        vocab_size: ids are below it.
        special_tokens: ids never chosen, nor drawn as random tokens; so is ``mask_token``.
        padding_mask: boolean, of the shape of ``tokens``; True = a real token, and only those are chosen.
        probability: with which a token is chosen.
        mask_share, random_share: of the chosen tokens, how many become the mask token and how many a random one.
        ignore_index: target of a token that was not chosen.
        generator: of the random numbers, which are drawn on its device; by default the global one of ``tokens``.

    Returns:
        ``(inputs, targets)``, integers of the shape of ``tokens``.

    Raises:
        TypeError: if tokens are not integers, or the mask is not boolean.
        ValueError: if a share is not in [0, 1] or they exceed 1 together, an id is out of range, no token is left to
            draw, or the mask has another shape.
    """
    _check_tensors(tokens, padding_mask)
    _check_shares(probability, mask_share, random_share)
    _check_ids(mask_token, special_tokens, vocab_size)
    device = tokens.device if generator is None else generator.device
    ordinary = torch.ones(vocab_size, dtype=torch.bool)
    ordinary[[mask_token, *special_tokens]] = False
    ordinary = ordinary.nonzero().flatten()
    if random_share and not len(ordinary):
        raise ValueError("special_tokens: expected some token to be neither special nor the mask token, got none")

    special = torch.tensor([mask_token, *special_tokens], device=tokens.device)
    eligible = ~torch.isin(tokens, special)
    if padding_mask is not None:
        eligible &= padding_mask

    def uniform() -> Tensor:
        return torch.rand(tokens.shape, generator=generator, device=device).to(tokens.device)

    chosen = eligible & (uniform() < probability)
    fate = uniform()
    inputs = tokens.masked_fill(chosen & (fate < mask_share), mask_token)
    if random_share:
        draw = torch.randint(len(ordinary), tokens.shape, generator=generator, device=device).to(tokens.device)
        random = ordinary.to(tokens.device)[draw].to(tokens.dtype)
        becomes_random = (mask_share <= fate) & (fate < mask_share + random_share)
        inputs = torch.where(chosen & becomes_random, random, inputs)
    return inputs, tokens.masked_fill(~chosen, ignore_index)


def _check_tensors(tokens: Tensor, padding_mask: Tensor | None) -> None:
    if tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise TypeError(f"tokens: expected integers, got dtype {tokens.dtype}")
    if padding_mask is None:
        return
    if padding_mask.dtype != torch.bool:
        raise TypeError(f"padding_mask: expected a boolean tensor, got dtype {padding_mask.dtype}")
    if padding_mask.shape != tokens.shape:
        raise ValueError(f"padding_mask: expected shape {tuple(tokens.shape)}, got {tuple(padding_mask.shape)}")


def _check_shares(probability: float, mask_share: float, random_share: float) -> None:
    for name, share in (("probability", probability), ("mask_share", mask_share), ("random_share", random_share)):
        if not 0 <= share <= 1:
            raise ValueError(f"{name}: expected a number in [0, 1], got {share}")
    if mask_share + random_share > 1 + 1e-9:
        raise ValueError(f"mask_share, random_share: expected a sum of at most 1, got {mask_share + random_share}")


def _check_ids(mask_token: int, special_tokens: Sequence[int], vocab_size: int) -> None:
    for name, ids in (("mask_token", (mask_token,)), ("special_tokens", special_tokens)):
        if not all(0 <= token < vocab_size for token in ids):
            raise ValueError(f"{name}: expected ids from 0 to {vocab_size - 1}, got {ids}")
