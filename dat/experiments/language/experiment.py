"""Language modelling as an experiment: its runs, and perplexity by length of training."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from ...sweeps.durations import EVALUATION_SHARE
from ...sweeps.experiment import Cost, SweptExperiment
from ...sweeps.table import Axis, CurvesFigure, ResultTable
from ...training.experiment import without_values
from ...training.loop import Trainer
from ...training.metrics import Row
from ...training.problem import Problem
from ..base_width import scaled_from_base
from .config import LanguageConfig
from .corpus import Corpus
from .data import TextSequences, text_digest
from .grid import SCALES, LanguageGrid
from .presets import PRESETS
from .problem import TOKENS, PreparedText, build_language_model, language_loss, prepare_text, validated
from .published import published_perplexity


class LanguageModelling(SweptExperiment[LanguageConfig, PreparedText]):
    """Section 4.4 of arXiv 2405.16727."""

    name = "language"
    title = "language modelling"
    about: ClassVar = {
        "train": "Train a language model on text, in a new run folder. Without options: a tiny model on the "
        "documentation of Python, byte by byte, in a few minutes.",
        "reproduce": "Perplexity of small language models by length of training, a DAT beside a Transformer. The "
        "defaults are 12 runs, about a quarter of an hour of one core (--dry_run says how long here); --scale table-5 "
        "is the published grid, for a GPU.",
        "data": "Make one clean file of text, for data.path, of the texts in folders: of packages that you have "
        "downloaded and unpacked, for instance, or of a corpus of BabyLM (--layout babylm). Spaces at the ends of "
        "lines and empty lines are tidied, and what is there twice is written once.",
    }
    Config = LanguageConfig
    Grid = LanguageGrid
    Sheet = Corpus
    presets = PRESETS
    scales = SCALES
    table = ResultTable(
        metrics=("loss", "perplexity", "bits_per_byte"),
        counted="tokens",
        run_curves=("loss", "perplexity"),
        hint='it continues a text:  dat generate {run} "..."',
        cached=(TOKENS,),
        axes=(
            Axis("model", "model.name", "model", "models", order=tuple(PRESETS)),
            Axis("steps", "loop.steps", "steps of training", "steps of training", number=True, prefix="steps"),
        ),
        measures={"perplexity": "perplexity", "bits_per_byte": "bits per byte"},
        digests=("text", "data", "loop", "optim"),
        locations=("data.path", "data.val_path", "data.dataset", "data.streamed", "data.tokenizer_folder"),
        decimals=3,
        caption="Perplexity and bits per byte of the validation text after the last step",
        y_title="validation",
        log_scale=True,
        colours={"DAT-tiny": "#1f6fb4", "T-tiny": "#8c8c8c"},
        figures={
            "perplexity.png": CurvesFigure("Language modelling: perplexity by length of training", ("perplexity",))
        },
        published=lambda measure, panel, curve: published_perplexity(curve) if measure == "perplexity" else [],
        beside_published=(
            "those of Tiny Stories are of the tokens of another tokenizer, Llama 2's, and so not like ours"
        ),
    )

    def prepare(self, config: LanguageConfig, *, cache: Path, run: Path | None = None) -> PreparedText:
        return prepare_text(config, cache=cache, run=run)

    def empty_model(self, config: LanguageConfig) -> nn.Module:
        with without_values():
            return config.model.language_config(config.data.vocab_size).build()

    def online(self, config: LanguageConfig) -> Mapping[str, str]:
        name = config.data.dataset  # a folder of that name may name files elsewhere
        return {} if name is None else {"data.dataset": name}

    def headline(self, result: Mapping[str, Any]) -> str:
        return f"{result['model']}, {result['tokens']:,} tokens"

    def summary(
        self, config: LanguageConfig, prepared: PreparedText, trainer: Trainer, final: Mapping[str, float]
    ) -> dict[str, Any]:
        tokens, data = trainer.step * config.tokens_per_step, prepared.data
        parameters = prepared.problem.model.parameters()
        return {
            **super().summary(config, prepared, trainer, final),
            "tokenizer": prepared.tokenizer.kind,
            "text_digest": text_digest(data.origin),
            "trained_parameters": sum(p.numel() for p in parameters if p.requires_grad),
            "val_tokens": len(data.val) * data.val.length,
            "train_tokens": data.train.size,
            "tokens": tokens,
            "tokens_per_second": round(tokens / max(trainer.seconds, 1e-9), 1),
            "precision": config.machine.precision,
        }

    def evaluation(self, prepared: PreparedText, name: str, means: Mapping[str, float]) -> dict[str, Any]:
        return validated(means[f"{name}_loss"], prepared.data)

    def describe(self, result: Mapping[str, Any], numbers: Mapping[str, Mapping[str, Any]] | None = None) -> str:
        if numbers is not None:
            return validation_text(numbers["val"])
        own = {name: result[name]["val"] for name in self.table.metrics}
        return f"{self.headline(result)}: {validation_text({**own, 'tokens': result['val_tokens']})}"

    def row(self, result: Mapping[str, Any]) -> Row:
        row: Row = {name: result[name] for name in ("model", "steps", "seed", "parameters", "tokens")}
        row.update({name: result[name]["val"] for name in ("perplexity", "loss", "bits_per_byte")})
        return {**row, "seconds": result["seconds"]}

    def cost(self, config: LanguageConfig) -> Cost:
        evaluated = config.data.val_tokens / config.model.context
        work = config.loop.steps * config.loop.batch_size + EVALUATION_SHARE * evaluated
        return Cost(work, lambda: timed_text(config))


def timed_text(config: LanguageConfig) -> Problem:
    """A batch of noise."""
    size, length = config.data.vocab_size, config.model.context
    tokens = torch.randint(size, (config.loop.batch_size * length + 1,)).numpy()
    model_config = config.model.language_config(size)
    sequences = TextSequences([tokens], length, vocab_size=model_config.vocab_size)
    model = build_language_model(model_config, seed=0)
    factors = scaled_from_base(config, model, lambda keys: keys.language_config(size).build())
    per_step = {name: config.tokens_per_step for name in ("tokens", "words")}  # words are not counted for this
    return Problem(model, sequences, language_loss(), factors=factors, per_step=per_step)


def validation_text(numbers: Mapping[str, Any]) -> str:
    """The numbers of a validation in words."""
    return f"validation {numbers_in_words(numbers)}"


def numbers_in_words(numbers: Mapping[str, Any]) -> str:
    """The numbers of a text in words; JSON has null for those that are not finite."""
    loss, perplexity = (math.inf if numbers[name] is None else numbers[name] for name in ("loss", "perplexity"))
    words = f"loss {loss:.4f}, perplexity {perplexity:.2f}"
    if numbers["bits_per_byte"] is not None:
        words += f", {numbers['bits_per_byte']:.3f} bits per byte"
    return f"{words} ({numbers['tokens']:,} tokens)"
