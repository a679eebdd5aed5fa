"""One run of any experiment, in a run folder: started, resumed, evaluated, shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .checkpoint import load_weights, save_weights
from .config_io import commented_yaml, read_config
from .configs import MachineConfig, StepLoopConfig
from .experiment import AnyExperiment, Prepared, RunConfig
from .interrupt import StopOnSignal
from .loop import Trainer, evaluate
from .metrics import MetricsLog
from .plots import plot_run
from .progress import choose_progress
from .run_folder import RunFolder
from .seeding import derive_seed
from .tables import show


def start_run(experiment: AnyExperiment, config: RunConfig) -> RunFolder:
    """Make the run folder of ``config`` and train in it.

    Raises:
        FileExistsError: if the folder exists.
    """
    path = Path(config.output.folder) / config.run_name
    RunFolder(path).refuse_existing()
    prepared = experiment.prepare(config, cache=path.parent)  # before the folder is made: it may be impossible
    folder = RunFolder.create(path, commented_yaml(config), prepared.write)
    train_run(experiment, folder, config, prepared)
    return folder


def resume_run(experiment: AnyExperiment, path: str | Path) -> RunFolder:
    """Continue the unfinished run in the folder ``path`` with its own configuration.

    Raises:
        FileNotFoundError: if it is not a run folder.
        FileExistsError: if the run is finished.
        ValueError: if it is a run of another experiment, or its data have changed.
    """
    folder = RunFolder.open(path)
    if folder.finished:
        raise FileExistsError(f"{path}: the run is finished; there is nothing to resume")
    config = read_config(experiment.Config, folder.config)
    train_run(experiment, folder, config, reopen(experiment, folder, config))
    return folder


def reopen(experiment: AnyExperiment, folder: RunFolder, config: RunConfig) -> Prepared:
    """Prepare a run again from its folder."""
    return experiment.prepare(config, cache=folder.path.resolve().parent, run=folder.path)


def train_run(experiment: AnyExperiment, folder: RunFolder, config: RunConfig, prepared: Prepared) -> None:
    """Train in ``folder`` from its newest checkpoint, or from the start, to the end.

    Raises:
        Interrupted: after a checkpoint, if the process was asked to stop.
        Diverged: if the loss is no longer finite.
    """
    with prepared.arithmetic(), StopOnSignal() as stop:
        torch.manual_seed(derive_seed(config.seed, "dropout"))
        trainer = Trainer(
            prepared.problem,
            config.optim,
            config.loop,
            seed=config.seed,
            device=prepared.device,
            checkpoints=folder.checkpoints,
            progress=choose_progress(config.output.progress),
            stop=stop,
        )
        trainer.resume()
        tensorboard = folder.tensorboard if config.output.tensorboard else None
        log = MetricsLog(folder.metrics, tensorboard=tensorboard, epochs_done=trainer.epoch, unit=trainer.plan.unit)
        try:
            final = trainer.fit(log)
        finally:
            log.close()
    save_weights(prepared.problem.model, folder.weights)
    result = experiment.summary(config, prepared, trainer, final)
    dropout = any(module.p > 0 for module in prepared.problem.model.modules() if isinstance(module, nn.Dropout))
    plot_run(
        folder.metrics,
        folder.curves,
        title=experiment.headline(result),
        over="step" if isinstance(config.loop, StepLoopConfig) else "epoch",
        names=experiment.run_curves,
        dropout=dropout,
    )
    folder.finish(result)


def evaluate_run(
    experiment: AnyExperiment, path: str | Path, machine: MachineConfig | None = None
) -> dict[str, dict[str, Any]]:
    """Numbers of a finished run for each evaluation set, computed from its weights.

    The data are made again from the configuration, so they are those that training kept apart.

    Args:
        machine: takes the place of these keys of the run's own configuration.

    Raises:
        FileNotFoundError: if there is no run or it is not finished.
        ValueError: if it is a run of another experiment, or its data have changed.
    """
    folder = RunFolder.open(path)
    folder.read_result()
    config = read_config(experiment.Config, folder.config)
    if machine is not None:
        config = replace(config, machine=replace(config.machine, **vars(machine)))
    prepared = reopen(experiment, folder, config)
    problem = prepared.problem
    load_weights(problem.model, folder.weights)
    numbers = {}
    with prepared.arithmetic():
        for name, examples in problem.evaluation.items():
            means = evaluate(problem.model, examples, problem.loss, batch_size=config.loop.eval_batch_size)
            numbers[name] = experiment.evaluation(prepared, name, means)
    return numbers


def show_run(experiment: AnyExperiment, folder: RunFolder) -> None:
    """Print the numbers of a finished run and where its files are."""
    result = folder.read_result()
    show(experiment.describe(result))
    print(
        f"{result['parameters']:,} parameters, {result['steps']:,} steps, {result['seconds']:.0f} s of training "
        f"({experiment.speed(result)})\nrun folder: {folder.path}"
    )
    if hint := experiment.hint(folder.path):
        print(hint)
