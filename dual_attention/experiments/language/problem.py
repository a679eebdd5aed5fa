"""Language modelling as a problem for the training loop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...data.text.tokenizer import Tokenizer
from ...language_models import LanguageModel
from ...language_presets import LanguageModelConfig
from ...training.device import prepare_device
from ...training.problem import Batch, Derive, LossFunction, Problem
from ...training.seeding import derive_seed
from .config import LanguageConfig
from .data import LanguageData, load_data, make_tokenizer

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16}


class Prepared(NamedTuple):
    """All that a run needs.

    Attributes:
        model_config: the arguments of the model's class.
        vocabulary: of the tokenizer.
    """

    problem: Problem
    device: torch.device
    tokenizer: Tokenizer
    data: LanguageData
    model_config: LanguageModelConfig


def prepare(config: LanguageConfig, *, cache: Path, tokenizer: Tokenizer | None = None) -> Prepared:
    """Model, data and loss of a run, on its device.

    Args:
        cache: folder that keeps the tokens of texts.
        tokenizer: of a run that exists; by default the one that the configuration names.
    """
    device = prepare_device(config.machine)
    tokenizer = make_tokenizer(config.data) if tokenizer is None else tokenizer
    model_config = config.model.language_config(tokenizer.vocab_size)
    model = build_model(model_config, seed=config.seed)  # first: it may be impossible, which takes no reading to know
    model.gradient_checkpointing = config.machine.gradient_checkpointing
    data = load_data(
        config.data,
        tokenizer,
        context=config.model.context,
        vocab_size=model_config.vocab_size,
        seed=config.seed,
        cache=cache,
        device=device,
    )
    problem = Problem(
        model=model.to(device),
        train=data.train,
        loss=language_loss(PRECISIONS[config.machine.precision]),
        evaluation={"val": data.val},
        derive=derived_numbers(config.tokens_per_step, data),
    )
    return Prepared(problem, device, tokenizer, data, model_config)


def build_model(config: LanguageModelConfig, *, seed: int) -> LanguageModel:
    """The model with initial weights that depend on ``seed`` alone; the global generators are left seeded by it."""
    torch.manual_seed(derive_seed(seed, "weights"))
    return config.build()


def language_loss(autocast: torch.dtype | None = None) -> LossFunction:
    """Mean cross-entropy of the next token in nats, with matrix products in another precision if one is given."""

    def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        tokens, targets = batch
        with torch.autocast(tokens.device.type, dtype=autocast, enabled=autocast is not None):
            value = model(tokens, targets, loss_only=True)[1]
        return value, {}

    return loss


def bits_per_byte(loss: float, data: LanguageData) -> float | None:
    """A mean loss in nats over the validated tokens as bits for each byte of their text; None if they have no text."""
    n_tokens = len(data.val) * data.val.length
    return loss * n_tokens / data.val_bytes / math.log(2) if data.val_bytes else None


def perplexity(loss: float) -> float:
    """exp of a mean loss in nats; infinite where that overflows."""
    return math.exp(loss) if loss < 700 else math.inf


def derived_numbers(tokens_per_step: int, data: LanguageData) -> Derive:
    """Perplexity, bits per byte of the validation text, tokens so far and how many a second."""

    def derive(row: Mapping[str, Any]) -> dict[str, float]:
        numbers: dict[str, float] = {}
        for split in ("train", "val"):
            if f"{split}_loss" in row:
                numbers[f"{split}_perplexity"] = perplexity(row[f"{split}_loss"])
        if "val_loss" in row and data.val_bytes:
            numbers["val_bits_per_byte"] = bits_per_byte(row["val_loss"], data) or 0.0
        numbers["tokens"] = row["step"] * tokens_per_step
        numbers["tokens_per_second"] = numbers["tokens"] / max(row["seconds"], 1e-9)
        return numbers

    return derive
