"""Training one language model, in a run folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..._files import read_json, write_json
from ...data.text.tokenizer import FOLDER, load_tokenizer
from ...training.config_io import commented_yaml, read_config
from ...training.fit import fit
from ...training.loop import Trainer
from ...training.plots import plot_run
from ...training.progress import choose_progress
from ...training.run_folder import RunFolder
from .config import LanguageConfig
from .problem import Prepared, bits_per_byte, perplexity, prepare

ARGUMENTS = "config.json"
"""File of a run folder with the arguments of the model's class, as folders of the Hugging Face Hub have it."""
TOKENS = "tokens"
"""Folder beside run folders that keeps the tokens of texts, for all runs on them."""
ORIGIN = "data.json"
"""File of a run folder that says what its tokens were made of."""


def start_run(config: LanguageConfig) -> RunFolder:
    """Make the run folder of ``config`` and train in it.

    Raises:
        FileExistsError: if the folder exists.
    """
    path = Path(config.output.folder) / config.run_name
    RunFolder(path).refuse_existing()
    # Before the folder is made, since the configuration may be impossible.
    prepared = prepare(config, cache=path.parent / TOKENS)

    def write(folder: Path) -> None:
        write_json(folder / ARGUMENTS, arguments(prepared))
        prepared.tokenizer.save(folder / FOLDER)
        write_json(folder / ORIGIN, prepared.data.origin)

    folder = RunFolder.create(path, commented_yaml(config), write)
    run(folder, config, prepared)
    return folder


def arguments(prepared: Prepared) -> dict[str, Any]:
    """The arguments of the model's class, as JSON; the class follows from them."""
    values = prepared.model_config.to_dict()
    del values["model"]
    return values


def resume_run(path: str | Path) -> RunFolder:
    """Continue the unfinished run in the folder ``path`` with its own configuration and tokenizer.

    Raises:
        FileNotFoundError: if it is no run folder.
        FileExistsError: if the run is finished.
        ValueError: if it is a run of something else, or its text has changed.
    """
    folder = RunFolder.open(path)
    if folder.finished:
        raise FileExistsError(f"{path}: the run is finished; there is nothing to resume")
    config, prepared = reopen(folder)
    run(folder, config, prepared)
    return folder


def reopen(folder: RunFolder, config: LanguageConfig | None = None) -> tuple[LanguageConfig, Prepared]:
    """What an existing run is made of, checked to be what it was.

    Args:
        config: by default that of the run.

    Raises:
        ValueError: if it is a run of something else, or its text has changed.
    """
    if folder.kind() != "language":
        raise ValueError(f"{folder.path}: a run of {folder.kind()}, not of language")
    config = read_config(LanguageConfig, folder.config) if config is None else config
    cache = folder.path.resolve().parent / TOKENS
    prepared = prepare(config, cache=cache, tokenizer=load_tokenizer(folder.path / FOLDER))
    if read_json(folder.path / ORIGIN) != prepared.data.origin:
        raise ValueError(f"{folder.path}: the text is not the one that the run began with, see {ORIGIN} there")
    return config, prepared


@contextmanager
def matmul_precision(config: LanguageConfig, device: torch.device) -> Iterator[None]:
    """The precision of float32 matrix products that a configuration asks for; then as it was."""
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if config.machine.tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def run(folder: RunFolder, config: LanguageConfig, prepared: Prepared) -> dict[str, Any]:
    """Train in ``folder`` from its newest checkpoint, or from the start, to the end; returns the result."""
    with matmul_precision(config, prepared.device):
        trainer, final = fit(
            folder,
            prepared.problem,
            config.optim,
            config.loop,
            config.output,
            seed=config.seed,
            device=prepared.device,
            progress=choose_progress(config.output.progress),
        )
    result = summary(config, prepared, trainer, final)
    plot_run(
        folder.metrics,
        folder.curves,
        title=f"{config.model.name}, {result['tokens']:,} tokens",
        over="step",
        names=("loss", "perplexity"),
        dropout=config.model.dropout_rate > 0,
    )
    folder.finish(result)
    return result


def summary(config: LanguageConfig, prepared: Prepared, trainer: Trainer, final: dict[str, float]) -> dict[str, Any]:
    """The final numbers of a run: who, how well, how large, how fast."""
    loss, data = final["val_loss"], prepared.data
    model = prepared.problem.model
    tokens = trainer.step * config.tokens_per_step
    return {
        "model": config.model.name,
        "seed": config.seed,
        "tokenizer": prepared.tokenizer.kind,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "trained_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "loss": {"val": loss},
        "perplexity": {"val": perplexity(loss)},
        "bits_per_byte": {"val": bits_per_byte(loss, data)},
        "val_tokens": len(data.val) * data.val.length,
        "train_tokens": data.origin["train_tokens"],
        "tokens": tokens,
        "steps": trainer.step,
        "seconds": round(trainer.seconds, 3),
        "tokens_per_second": round(tokens / max(trainer.seconds, 1e-9), 1),
        "device": trainer.device.type,
        "precision": config.machine.precision,
        "threads": torch.get_num_threads(),
    }
