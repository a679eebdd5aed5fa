"""Objectives for language models in place of the next token alone.

dat train language --loop.objective examples/objectives.py:NextLatent
dat train language --loop.objective examples/objectives.py:Distillation --loop.objective_options '{teacher: runs/large}'

Shapes: B sequences, N tokens, d = the width of the model, V = the size of the vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dat.checkpoints import open_checkpoint
from dat.training.objective import Objective


def mean(values: Tensor, where: Tensor | None) -> Tensor:
    """Mean of values ``(B, M)`` over all positions or those ``where`` is true; 0 where there are none."""
    return values.mean() if where is None else (values * where).sum() / where.sum().clamp(min=1)


def same_document(segments: Tensor | None, apart: int) -> Tensor | None:
    """Whether a token and the one so far after it are of one document, ``(B, N - apart)``; None: there is only one."""
    return None if segments is None else segments[:, apart:] == segments[:, :-apart]


class NextToken(Objective):
    """The default, as an objective: cross-entropy of the next token."""

    def __call__(self, model, *inputs, **arguments):
        tokens, targets = inputs
        return model(tokens, targets, loss_only=True, **arguments).loss, {}


@dataclass
class NextLatent(Objective):
    """The next token, and by a small head the hidden state of the next position, which gets no gradient."""

    weight: float = 1.0

    def begin(self, model, device):
        width = model.d_model
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        return self.head

    def __call__(self, model, *inputs, **arguments):
        tokens, targets = inputs
        hidden = model.hidden(tokens, **arguments)
        next_token = model.loss_from_hidden(hidden, targets)
        predicted, following = self.head(hidden[:, :-1]), hidden[:, 1:].detach()
        shape = following.shape[-1:]
        errors = F.smooth_l1_loss(F.layer_norm(predicted, shape), F.layer_norm(following, shape), reduction="none")
        latent = mean(errors.mean(-1), same_document(arguments.get("segments"), 1))
        return next_token + self.weight * latent, {"next_token": next_token, "next_latent": latent}


@dataclass
class SeveralTokens(Objective):
    """The next ``k`` tokens: a linear map for each one after the first, before the output layer of the model."""

    k: int = 3

    def begin(self, model, device):
        if not 2 <= self.k < model.block_size:
            raise ValueError(f"k: expected an integer from 2 to {model.block_size - 1}, got {self.k}")
        self.heads = nn.ModuleList(nn.Linear(model.d_model, model.d_model) for _ in range(1, self.k))
        return self.heads

    def __call__(self, model, *inputs, **arguments):
        tokens, targets = inputs
        hidden = model.hidden(tokens, **arguments)
        losses = [model.loss_from_hidden(hidden, targets)]
        for apart, head in enumerate(self.heads, start=1):
            later, same = targets[:, apart:], same_document(arguments.get("segments"), apart)
            later = later if same is None else later.masked_fill(~same, -1)
            losses.append(model.loss_from_hidden(head(hidden[:, :-apart]), later))
        return torch.stack(losses).mean(), {f"token_{number}": loss for number, loss in enumerate(losses, start=1)}


@dataclass
class Distillation(Objective):
    """The next token, and the distribution that a trained model with the same tokens gives it.

    Math: (1 - weight) CE + weight T^2 KL(teacher || model), both distributions at the temperature T (Hinton et al.
    2015, arXiv 1503.02531).
    """

    teacher: str
    temperature: float = 2.0
    weight: float = 0.5

    def begin(self, model, device):
        if not self.temperature > 0:
            raise ValueError(f"temperature: expected a positive number, got {self.temperature}")
        self.other = open_checkpoint(self.teacher, device=device).model.requires_grad_(False)
        if self.other.vocab_size != model.vocab_size:
            raise ValueError(f"teacher: expected {model.vocab_size} tokens, got {self.other.vocab_size}")

    def __call__(self, model, *inputs, **arguments):
        tokens, targets = inputs
        logits, next_token = model(tokens, targets, **arguments)
        with torch.no_grad():
            wanted = F.log_softmax(self.other(tokens, **arguments).logits.float() / self.temperature, -1)
        given = F.log_softmax(logits.float() / self.temperature, -1)
        divergence = F.kl_div(given, wanted, reduction="none", log_target=True).sum(-1)
        distilled = self.temperature**2 * mean(divergence, targets != -1)
        loss = (1 - self.weight) * next_token + self.weight * distilled
        return loss, {"next_token": next_token, "teacher": distilled}
