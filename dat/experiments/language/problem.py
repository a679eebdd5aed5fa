"""Language modelling as a problem for the training loop."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dual_attention._base.files import read_json_object, write_json
from dual_attention.generation.tokenizer import FOLDER, Tokenizer, load_tokenizer
from dual_attention.language_models import LanguageModel
from dual_attention.language_presets import LanguageModelConfig

from ...training.configs import check
from ...training.deferred import deferred
from ...training.device import check_memory, prepare_device
from ...training.experiment import ORIGIN, Prepared, count_parameters, without_values
from ...training.mup import scale_initial
from ...training.optim import Factors
from ...training.peak import known_peak, measured_peak
from ...training.problem import Batch, Derive, LossFunction, Problem
from ...training.seeding import derive_seed
from ...training.warm_start import source_run
from ..base_width import scaled_from_base
from ..progress import data_progress
from .config import LanguageConfig, LanguageDataConfig
from .data import LanguageData, count_words, load_data, make_tokenizer, same_text

ARGUMENTS = "config.json"
"""File of a run folder with the arguments of the model's class, as folders of the Hugging Face Hub have it."""
TOKENS = "tokens"
"""Folder beside run folders that keeps the tokens of texts, for all runs on them."""


@dataclass(frozen=True)
class PreparedText(Prepared):
    """A run of language modelling, ready to train.

    Attributes:
        tokenizer: of the text.
        data: sequences to train and to validate on.
        model_config: the arguments of the model's class.
        tf32: whether float32 matrix products on a GPU may round their factors to TF32.
    """

    tokenizer: Tokenizer
    data: LanguageData
    model_config: LanguageModelConfig
    tf32: bool

    def write_files(self, folder: Path) -> None:
        arguments = self.model_config.to_dict()
        del arguments["model"]  # it follows from the others
        write_json(folder / ARGUMENTS, arguments)
        self.tokenizer.save(folder / FOLDER)
        super().write_files(folder)

    def arithmetic(self) -> AbstractContextManager[Any]:
        """The precision of float32 matrix products that the configuration asks for; then as it was."""
        return matmul_precision(self.device, tf32=self.tf32)


@contextmanager
def matmul_precision(device: torch.device, *, tf32: bool) -> Iterator[None]:
    """The precision of float32 matrix products on a GPU within the block."""
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def prepare_text(config: LanguageConfig, *, cache: Path, run: Path | None = None) -> PreparedText:
    """Model, data and loss of a run, see :meth:`~dat.training.experiment.Experiment.prepare`."""
    device = prepare_device(config.machine)
    tokenizer = make_tokenizer(config.data) if run is None else load_tokenizer(run / FOLDER)
    if run is None:
        check_same_tokens(config.loop.weights_from, tokenizer)
    model_config = config.model.language_config(tokenizer.vocab_size)
    # Without memory for weights, and before the text is read: the model may be impossible.
    with without_values():
        size = 4 * count_parameters(model_config.build())
    if config.machine.parallel == "replicate":
        check_memory("model", "its weights", size, device)
    begun = None if run is None else read_json_object(run / ORIGIN)
    with data_progress(config.output.progress, tokenized) as report:
        data = load_data(
            config.data,
            tokenizer,
            context=config.model.context,
            vocab_size=model_config.vocab_size,
            seed=config.seed,
            cache=cache / TOKENS,
            device=device,
            report=report,
            begun=begun,
        )
    if begun is not None and not same_text(begun, data.origin):
        raise ValueError(f"{run}: the text is not the one that the run began with, see {ORIGIN} there")
    with_values = config.machine.parallel == "replicate"
    build = partial(build_language_model, model_config, seed=config.seed)
    model, draw = (build(), None) if with_values else deferred(build)
    model.gradient_checkpointing = config.machine.gradient_checkpointing
    vocab_size, calling = tokenizer.vocab_size, (config.machine.autocast, documents_of(config.data, tokenizer))
    factors = scaled_from_base(config, model, lambda keys: keys.language_config(vocab_size).build())
    problem = Problem(
        model=model.to(device) if with_values else model,
        train=data.train,
        loss=language_loss(*calling),
        own_loss=language_loss(*calling, own=True),
        evaluation={"val": data.val},
        derive=derived_numbers(
            config.tokens_per_step,
            data,
            share_of_peak(config, model, device),
            own_objective=config.loop.objective is not None,
        ),
        factors=factors,
        draw=None if draw is None else partial(_draw_scaled, model, draw, factors),
        per_step=taken_by_a_step(config, data, tokenizer),
    )
    tf32 = config.machine.tf32
    return PreparedText(problem, device, tokenizer, data, model_config, tf32, about=data.about, origin=data.origin)


def tokenized(seconds: float, characters: int, tokens: int) -> str:
    """The line that tells of the tokenization of a text so far."""
    speed = f"{characters / max(seconds, 1e-9) / 1e6:.1f}M characters a second"
    return f"tokenized {characters / 1e6:,.0f}M characters: {tokens / 1e6:,.0f}M tokens, {speed}"


def check_same_tokens(weights_from: str | None, tokenizer: Tokenizer) -> None:
    """Raise ``ValueError`` if the weights are of a run whose tokens stand for other text than those of a tokenizer."""
    run = None if weights_from is None else source_run(weights_from)
    if run is None or not (run / FOLDER).is_dir():
        return
    theirs = load_tokenizer(run / FOLDER)
    number = min(theirs.vocab_size, tokenizer.vocab_size)
    alike = theirs.end == tokenizer.end and all(
        theirs.token_bytes(token) == tokenizer.token_bytes(token) for token in range(number)
    )
    expected = "a run with the same tokens (data.tokenizer_folder takes over those that one has learned)"
    check(alike, "loop.weights_from", expected, weights_from)


def taken_by_a_step(config: LanguageConfig, data: LanguageData, tokenizer: Tokenizer) -> dict[str, float]:
    """Tokens that a step predicts and, if milestones ask for them, the words that these are on average."""
    found: dict[str, float] = {"tokens": config.tokens_per_step}
    if config.loop.milestone_words:
        found["words"] = config.tokens_per_step * count_words(data.train, tokenizer) / data.train.size
    return found


def build_language_model(config: LanguageModelConfig, *, seed: int) -> LanguageModel:
    """The model with initial weights that depend on ``seed`` only; the global generators are left seeded by it."""
    torch.manual_seed(derive_seed(seed, "weights"))
    return config.build()


def _draw_scaled(model: nn.Module, draw: Callable[[], None], factors: Mapping[str, Factors] | None) -> None:
    """Draw the values of a model that was made without any, and scale them by muP if there are factors."""
    draw()
    if factors is not None:
        scale_initial(model, factors)


class DocumentMask(NamedTuple):
    """The rule that keeps the documents of a sequence apart.

    Attributes:
        end: the token before each document, which is its first.
        restart: whether positions begin again with each.
    """

    end: int
    restart: bool = True

    def arguments(self, tokens: Tensor) -> dict[str, Tensor]:
        """Arguments of a language model with which tokens ``(B, T)`` attend to those of their own document only."""
        segments = (tokens == self.end).cumsum(-1)
        if self.restart:
            return {"segments": segments}
        return {"segments": segments, "positions": torch.arange(tokens.shape[1], device=tokens.device)[None]}


def documents_of(config: LanguageDataConfig, tokenizer: Tokenizer) -> DocumentMask | None:
    """The rule of a run that keeps documents apart; None if it has none."""
    return DocumentMask(tokenizer.end, config.document_positions == "restart") if config.document_mask else None


def language_loss(
    autocast: torch.dtype | None = None, documents: DocumentMask | None = None, *, own: bool = False
) -> LossFunction:
    """Mean cross-entropy of the next token in nats.

    Args:
        autocast: precision of matrix products, if it is another.
        documents: how documents of a sequence are kept apart; None: tokens attend to all before them.
        own: the loss is that of an objective of the user's instead, which takes the place of the model, and is called
            with tokens, targets and what keeps documents apart.
    """

    def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        tokens, targets = batch
        apart = {} if documents is None else documents.arguments(tokens)
        with torch.autocast(tokens.device.type, dtype=autocast, enabled=autocast is not None):
            if own:
                return model(tokens, targets, **apart)
            return model(tokens, targets, loss_only=True, **apart)[1], {}

    return loss


def numbers_of_text(loss: float, tokens: int, n_bytes: int) -> dict[str, Any]:
    """A mean loss in nats over tokens, its perplexity, and bits for each byte of their text; None if they have none."""
    bits = loss * tokens / n_bytes / math.log(2) if n_bytes else None
    return {"loss": loss, "perplexity": perplexity(loss), "bits_per_byte": bits, "tokens": tokens}


def validated(loss: float, data: LanguageData) -> dict[str, Any]:
    """The numbers of the validation text of a run, from its mean loss."""
    return numbers_of_text(loss, len(data.val) * data.val.length, data.val_bytes)


def perplexity(loss: float) -> float:
    """exp of a mean loss in nats; infinite where that overflows."""
    return math.exp(loss) if loss < 700 else math.inf


def share_of_peak(config: LanguageConfig, model: nn.Module, device: torch.device) -> float | None:
    """Share of a device's most operations a second that training takes for each token a second; None if unknown.

    Operations are those of a forward and a backward pass, by :func:`dat.estimate.estimate`; what
    ``machine.gradient_checkpointing`` computes again does not count. That takes seconds, so it is done only where the
    peak is known.
    """
    machine = config.machine
    peak: float | str | None = machine.peak_flops
    if peak == "measured":
        with matmul_precision(device, tf32=machine.tf32):
            peak = measured_peak(device, machine.autocast or torch.float32)
    elif peak is None and device.type == "cuda":
        tf32 = "tf32" if machine.tf32 else "float32"
        peak = known_peak(torch.cuda.get_device_name(device), tf32 if machine.autocast is None else machine.precision)
    if not isinstance(peak, float):
        return None
    from ...estimate import estimate

    dtypes: dict[str, Any] = {"dtype": machine.autocast or torch.float32, "param_dtype": torch.float32}
    kernels: Any = device.type
    costs = estimate(model, length=config.model.context, device=kernels, checkpointing=False, **dtypes)
    return costs.step_flops / costs.tokens / peak


def derived_numbers(
    tokens_per_step: int, data: LanguageData, share: float | None = None, *, own_objective: bool = False
) -> Derive:
    """Perplexity, bits per byte of the validation text, tokens so far, how many a second, and MFU.

    Args:
        share: see :func:`share_of_peak`.
        own_objective: whether the loss of training is that of an objective of the user's, which has no perplexity.
    """

    splits = ("val",) if own_objective else ("train", "val")

    def derive(row: Mapping[str, Any]) -> dict[str, float | None]:
        losses = {split: row[f"{split}_loss"] for split in splits if f"{split}_loss" in row}
        numbers: dict[str, float | None] = {f"{split}_perplexity": perplexity(loss) for split, loss in losses.items()}
        if "val" in losses and (bits := validated(losses["val"], data)["bits_per_byte"]) is not None:
            numbers["val_bits_per_byte"] = bits
        tokens = row["step"] * tokens_per_step
        rate = tokens / max(row["seconds"], 1e-9)
        numbers.update(tokens=tokens, tokens_per_second=rate)
        numbers["mfu"] = None if share is None else share * rate / row["processes"]
        return numbers

    return derive
