"""Training one model on Relational Games, in a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ...training.config_io import commented_yaml, read_config
from ...training.fit import fit
from ...training.loop import Trainer
from ...training.plots import plot_run
from ...training.problem import Problem
from ...training.progress import choose_progress
from ...training.run_folder import RunFolder
from .config import RelationalGamesConfig
from .model import count_parameters
from .problem import build_problem


def start_run(config: RelationalGamesConfig) -> RunFolder:
    """Make the run folder of ``config`` and train in it.

    Raises:
        FileExistsError: if the folder exists.
    """
    path = Path(config.output.folder) / config.run_name
    RunFolder(path).refuse_existing()
    prepared = build_problem(config)  # before the folder is made, since the configuration may be impossible
    folder = RunFolder.create(path, commented_yaml(config))
    run(folder, config, *prepared)
    return folder


def resume_run(path: str | Path) -> RunFolder:
    """Continue the unfinished run in the folder ``path`` with its own configuration.

    Raises:
        FileNotFoundError: if it is no run folder.
        FileExistsError: if the run is finished.
    """
    folder = RunFolder.open(path)
    if folder.finished:
        raise FileExistsError(f"{path}: the run is finished; there is nothing to resume")
    config = read_config(RelationalGamesConfig, folder.config)
    run(folder, config, *build_problem(config))
    return folder


def run(folder: RunFolder, config: RelationalGamesConfig, problem: Problem, device: torch.device) -> dict[str, Any]:
    """Train in ``folder`` from its newest checkpoint, or from the start, to the end; returns the result."""
    trainer, final = fit(
        folder,
        problem,
        config.optim,
        config.loop,
        config.output,
        seed=config.seed,
        device=device,
        progress=choose_progress(config.output.progress),
    )
    title = f"{config.task}, {config.data.n_train:,} examples: {config.model.name}"
    plot_run(folder.metrics, folder.curves, title=title)
    result = summary(config, trainer, final)
    folder.finish(result)
    return result


def summary(config: RelationalGamesConfig, trainer: Trainer, final: dict[str, float]) -> dict[str, Any]:
    """The final numbers of a run: who, how well, how large, how fast."""
    return {
        "task": config.task,
        "model": config.model.name,
        "n_train": config.data.n_train,
        "seed": config.seed,
        "parameters": count_parameters(trainer.problem.model),
        "accuracy": {name: final[f"{name}_accuracy"] for name in trainer.problem.evaluation},
        "loss": {name: final[f"{name}_loss"] for name in trainer.problem.evaluation},
        "steps": trainer.step,
        "seconds": round(trainer.seconds, 3),
        "examples_per_second": round(config.loop.epochs * len(trainer.problem.train) / max(trainer.seconds, 1e-9), 1),
        "device": trainer.device.type,
        "threads": torch.get_num_threads(),
    }
