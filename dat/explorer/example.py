"""The model that the explorer shows if it is given none: trained here on first use, and kept."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from dual_attention._extras import require
from dual_attention._files import cache_folder, make_private, remove_leftovers, sync_folder, temporary_path

from ..experiments.language.config import LanguageConfig, LanguageDataConfig, LanguageOptimConfig
from ..experiments.language.experiment import LanguageModelling
from ..experiments.language.model_keys import LanguageModelKeys
from ..training.configs import OutputConfig, StepLoopConfig
from ..training.interrupt import Interrupted
from ..training.runs import start_run

NAME = "explorer-model-1"
"""Folder of the model; its number changes with what is trained."""

STEPS = 240


def example_config(folder: Path, *, steps: int = STEPS, progress: bool = True) -> LanguageConfig:
    """Configuration of the model: a small DAT on the documentation of Python, with byte pairs learned from it."""
    return LanguageConfig(
        data=LanguageDataConfig(tokenizer="bpe", bpe_vocab_size=1024, val_tokens=8192),
        model=LanguageModelKeys(
            context=256, d_model=64, n_layers=2, n_heads_sa=2, n_heads_ra=2, n_relations=8, n_symbols=32
        ),
        optim=LanguageOptimConfig(lr=6e-3),
        loop=StepLoopConfig(steps=steps, batch_size=16, eval_every=120, checkpoint_every=0),
        output=OutputConfig(folder=str(folder), name=NAME, tensorboard=False, progress=progress),
    )


def example_model(folder: Path | None = None, *, steps: int = STEPS, progress: bool = True) -> Path:
    """The run folder of the model, trained now if it is not there.

    It appears in its folder whole or not at all; of two processes that train it at the same time, one keeps its own.

    Args:
        folder: by default :func:`cache_folder`.
        steps: of training.
        progress: show it.

    Raises:
        ImportError: if the extra ``language`` is not installed.
        OSError: if the folder cannot be written to.
    """
    folder = cache_folder() if folder is None else folder
    kept = folder / NAME
    if kept.is_dir():
        return kept
    require("tiktoken", extra="language")
    require("tokenizers", extra="language")
    make_private(folder)
    remove_leftovers(folder, NAME)
    place = temporary_path(kept)
    place.mkdir()
    try:
        try:
            run = start_run(LanguageModelling(), example_config(place, steps=steps, progress=progress))
        except Interrupted as stop:
            raise type(stop)("the small model is trained from its beginning the next time") from None
        try:
            os.replace(run.path, kept)
        except OSError:
            if not kept.is_dir():  # otherwise another process was faster
                raise
        sync_folder(folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return kept
