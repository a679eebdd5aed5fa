"""``dat estimate`` with the models of experiments beside those of the library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ..data.text.tokenizer import ByteTokenizer
from ..estimate.command import LIBRARY, Source, run
from ..estimate.models import Builder
from ..experiments.language.config import LanguageConfig
from ..experiments.relational_games.config import RelationalGamesConfig
from ..experiments.relational_games.model import empty_model
from ..experiments.relational_games.presets import PRESETS
from ..hf.loading import model_from_config
from ..training.config_io import read_config

VOCABULARIES = {"bytes": ByteTokenizer.vocab_size, "gpt2": 50257}
"""Sizes of the vocabularies of tokenizers by name."""


def games_presets() -> Mapping[str, Builder]:
    """The models of Relational Games by name."""
    return {name: lambda config=config: empty_model(config, "same") for name, config in PRESETS.items()}


def read_run(path: Path, values: Mapping[str, Any]) -> tuple[str, nn.Module] | None:
    """The model of a run's configuration, whose key ``model`` holds the model's own keys, or of transformers'."""
    if "model_type" in values:
        model = model_from_config(values, source=str(path))[1]
        return type(model).__name__, model
    if not isinstance(values.get("model"), Mapping):
        return None
    if "task" in values:
        config = read_config(RelationalGamesConfig, path)
        return config.model.name, empty_model(config.model, config.task)
    config = read_config(LanguageConfig, path)
    vocabulary = VOCABULARIES[config.data.tokenizer]
    return config.model.name, config.model.language_config(vocabulary).build(device="meta")


EXPERIMENTS = Source(games_presets, read_run)
"""The models of Relational Games by name, and those of runs of every kind."""


def estimate(prog: str, arguments: Sequence[str]) -> int:
    """``dat estimate``."""
    return run(prog, arguments, (EXPERIMENTS, LIBRARY))
