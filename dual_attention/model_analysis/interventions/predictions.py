"""Predictions of a model, and the measures by which interventions on it are judged.

Shapes: B documents of a batch, ``...`` places in them (none for a classifier), V classes or tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...functional import cross_entropy

NOT_SCORED = -1


@dataclass(frozen=True)
class Prediction:
    """Predictions of a model for a batch of documents, and the right answers.

    Attributes:
        logits: ``(B, ..., V)``.
        targets: right answers, integers ``(B, ...)``; -1 where nothing is scored.
        foils: wrong answers to compare them with, likewise; None without.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> prediction = predict_next_tokens(lm, torch.randint(50, (2, 9)))
    >>> prediction.logits.shape, prediction.targets.shape
    (torch.Size([2, 8, 50]), torch.Size([2, 8]))
    """

    logits: Tensor
    targets: Tensor
    foils: Tensor | None = None

    def __post_init__(self) -> None:
        for name, answers in (("targets", self.targets), ("foils", self.foils)):
            if answers is not None and answers.shape != self.logits.shape[:-1]:
                expected, got = tuple(self.logits.shape[:-1]), tuple(answers.shape)
                raise ValueError(f"{name}: expected shape {expected}, as logits have, got {got}")


Predict = Callable[[nn.Module, Any], Prediction]
"""A function that calls a model with a document, or a batch of them."""


def predict_next_tokens(model: nn.Module, document: Tensor) -> Prediction:
    """Predictions of a language model, ours or one for transformers, for each next token of ``document`` ``(B, N)``.

    Raises:
        TypeError: if the output of the model has no logits.
        ValueError: if a document has fewer than two tokens.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> predict_next_tokens(lm, torch.randint(50, (2, 9))).targets.shape
    torch.Size([2, 8])
    """
    if document.dim() != 2 or document.shape[1] < 2:
        raise ValueError(
            f"document: expected token ids (B, N) of two tokens or more, got shape {tuple(document.shape)}"
        )
    output = model(document[:, :-1])
    if not isinstance(getattr(output, "logits", None), Tensor):
        raise TypeError(
            f"model: expected a language model, whose output has logits, got {type(output).__name__} from "
            f"{type(model).__name__}; name a function that predicts with it, predict=..."
        )
    return Prediction(output.logits, document[:, 1:])


def checked_tokens(name: str, given: Any, examples: int, size: int, device: torch.device) -> Tensor:
    """Token ids, one for all examples or one for each, as an integer tensor ``()`` or ``(B,)``, after checking them.

    Args:
        given: what the argument ``name`` was.
        size: of the vocabulary.
    """
    ids = torch.as_tensor(given, device=device)
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool or ids.shape not in ((), (examples,)):
        raise TypeError(f"{name}: expected a token id, or integers ({examples},), got {given!r}")
    if not ((ids >= 0) & (ids < size)).all():
        raise ValueError(f"{name}: expected token ids from 0 to {size - 1}, got {given!r}")
    return ids.long()


def check_place(place: Any, length: int) -> None:
    """Raise ``ValueError`` unless a place is one of so many tokens, counted from either end."""
    if isinstance(place, bool) or not isinstance(place, int) or not -length <= place < length:
        raise ValueError(f"place: expected a number from {-length} to {length - 1}, got {place!r}")


def document_losses(prediction: Prediction) -> Tensor:
    """Mean cross-entropy of each document in nats, ``(B,)``."""
    losses = cross_entropy(prediction.logits, prediction.targets, ignore_index=NOT_SCORED, reduction="none")
    return _mean_of_scored(losses, prediction.targets != NOT_SCORED)


def logit_differences(prediction: Prediction) -> Tensor:
    """Mean difference of the logits of targets and foils, which it needs, in each document, ``(B,)``."""
    if prediction.foils is None:
        raise ValueError("foils: a logit difference needs wrong answers, got None")
    scored = (prediction.targets != NOT_SCORED) & (prediction.foils != NOT_SCORED)
    wide = torch.promote_types(prediction.logits.dtype, torch.float32)
    right, wrong = (
        prediction.logits.gather(-1, answers.clamp_min(0)[..., None])[..., 0].to(wide)
        for answers in (prediction.targets, prediction.foils)
    )
    return _mean_of_scored(right - wrong, scored)


def divergences(before: Prediction, after: Prediction) -> Tensor:
    """Mean Kullback-Leibler divergence KL(before || after) of each document in nats, over what is scored, ``(B,)``."""
    wide = torch.promote_types(before.logits.dtype, torch.float32)
    old, new = (prediction.logits.to(wide).log_softmax(-1) for prediction in (before, after))
    terms = torch.where(old > -torch.inf, old.exp() * (old - new), 0.0)  # a class that was impossible adds nothing
    return _mean_of_scored(terms.sum(-1), before.targets != NOT_SCORED)


MEASURES: dict[str, Callable[[Prediction], Tensor]] = {"loss": document_losses, "logit_difference": logit_differences}
"""Measures of one prediction; the effect of an intervention is the change of them."""

METRICS = (*MEASURES, "kl")


def change_of(metric: str, before: Prediction, after: Prediction) -> Tensor:
    """The effect on each document, ``(B,)``, by a metric of :data:`METRICS`."""
    if metric == "kl":
        return divergences(before, after)
    return MEASURES[metric](after) - MEASURES[metric](before)


def _mean_of_scored(values: Tensor, scored: Tensor) -> Tensor:
    values, scored = values.reshape(len(values), -1), scored.reshape(len(scored), -1)
    if not scored.any(1).all():
        raise ValueError("targets: expected something that is scored in each document, got one without")
    return values.where(scored, 0.0).sum(1) / scored.sum(1)
