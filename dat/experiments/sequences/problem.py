"""Synthetic sequence tasks as problems for the training loop, and where the heads of a model look.

Shapes: B sequences, N length, H heads of one kind in a layer.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...data.sequences import UNSCORED
from ...training.problem import Batch

HEAD_SCORES = ("matching", "previous")
"""Scores of heads, see :func:`head_scores`."""
TRACED = 16
"""Sequences whose attention is kept at a time: of heads that attend to pairs it is large."""


def sequence_loss(model: Any, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean cross-entropy of scored positions in nats.

    Its scalars are means over sequences: ``accuracy``, the share of scored positions whose likeliest token is right,
    and ``whole``, whether all are; in evaluation mode also :func:`head_scores`.
    """
    tokens, targets, sources = batch
    logits, value = model(tokens, targets)
    scored = targets != UNSCORED
    right = (logits.detach().argmax(-1) == targets) & scored
    accuracy = right.sum(-1) / scored.sum(-1).clamp(min=1)
    numbers = {"accuracy": accuracy.mean(), "whole": (right == scored).all(-1).float().mean()}
    return value, numbers if model.training else {**numbers, **head_scores(model, tokens, sources)}


def head_scores(model: nn.Module, tokens: Tensor, sources: Tensor) -> dict[str, Tensor]:
    """Attention of every head that tells what it does, ``{"<score>/<layer>/<kind><head>": mean weight}``.

    ``matching`` is the attention of a scored position to the earlier one that holds its answer: for a repeated sequence
    the prefix-matching score of induction heads (Olsson et al. 2022, arXiv 2209.11895). There is none in tasks whose
    answers stand nowhere. ``previous`` is the attention to the token before, of all positions but the first.

    Args:
        tokens, sources: ``(B, N)``, see :class:`~dat.data.sequences.Sequences`.
    """
    sums: dict[str, list[Tensor]] = {}
    scored = (sources != UNSCORED).sum()
    for part, where in zip(tokens.split(TRACED), sources.split(TRACED), strict=True):
        for head, weights in attention_maps(model, part):
            if scored:
                to_source = weights.gather(-1, where.clamp(min=0)[..., None])[..., 0]
                sums.setdefault(f"matching/{head}", []).append((to_source * (where != UNSCORED)).sum() / scored)
            before = weights.diagonal(-1, -2, -1)
            sums.setdefault(f"previous/{head}", []).append(before.mean() * (len(part) / len(tokens)))
    return {name: torch.stack(parts).sum() for name, parts in sums.items()}


def attention_maps(model: Any, tokens: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Names of all heads, ``<layer>/sa<head>`` or ``<layer>/ra<head>``, and their attention weights ``(B, N, N)``."""
    for layer, maps in enumerate(model.trace(tokens).maps):
        if maps is None:  # heads of the user's own may tell none
            continue
        kinds = {"sa": maps} if isinstance(maps, Tensor) else {"sa": maps.sa_weights, "ra": (maps.ra_maps or [None])[0]}
        for kind, weights in kinds.items():
            for head, weight in enumerate([] if weights is None else weights.unbind(1)):
                yield f"{layer}/{kind}{head}", weight


def best_heads(means: Mapping[str, Any]) -> dict[str, float]:
    """The highest score over heads, ``{"<set>_matching": ...}``, from means over sets by head."""
    best: dict[str, float] = {}
    for name, value in means.items():
        prefix, _, score = name.partition("/")[0].rpartition("_")
        if "/" in name and score in HEAD_SCORES:
            best[f"{prefix}_{score}"] = max(best.get(f"{prefix}_{score}", 0.0), value)
    return best


def first_step(rows: list[dict[str, float]], key: str, threshold: float) -> int | None:
    """The step of the first row whose number ``key`` reaches a threshold; None if none does."""
    return next((int(row["step"]) for row in rows if row.get(key, 0.0) >= threshold), None)
