"""One run of any experiment, in a run folder: started, resumed, evaluated, shown."""

import inspect
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from dual_attention.checkpoints.weights import filled

from .._native import use_native
from .._own_code import files_named
from .._terminal import tell
from .branch import resolved
from .callbacks import Callbacks, RunView, callbacks_of, made
from .config_io import commented_yaml, read_config
from .configs import MachineConfig, ParallelMachineConfig, RunConfig, check_parts_given, own_names
from .distributed import ALONE, Workers
from .experiment import AnyExperiment, Prepared
from .interrupt import Interrupted, StopOnSignal, Terminated
from .loop import Trainer
from .measuring import mean_measures
from .metrics import MetricsLog
from .objective import ATTRIBUTE, try_objective, without_objective
from .online import NOTHING, Said, check_said, network_names
from .optim import build_optimizer
from .placement import check_divisible, place_model
from .plan import make_plan
from .plots import plot_run
from .progress import choose_progress
from .run_folder import RunFolder
from .saved_weights import weights_of_run
from .tables import show
from .together import locked_by_first, prepare_together
from .trackers import check_trackers, trackers_of, wandb_id
from .warm_start import rows_taken, weights_named
from .weights_file import load_weights, save_weights


def start_run(experiment: AnyExperiment, config: RunConfig, workers: Workers = ALONE) -> RunFolder:
    """Make the run folder of ``config`` and train in it.

    Args:
        workers: the processes that do so together, each of which calls this with the same arguments.

    Raises:
        FileExistsError: if the folder exists.
        FileNotFoundError: if not all processes see it, or the run that it is to go on from is not there.
        ValueError: if examples, batches or the model cannot be divided among them, or training cannot go on from there.
    """
    if experiment.source:
        config = replace(config, experiment=experiment.source)  # pyright: ignore[reportArgumentType]
    path = Path(config.output.folder) / config.run_name
    folder = RunFolder(path)
    if workers.first:
        folder.refuse_existing()
    config, source = workers.from_first(resolved(experiment.Config, config) if workers.first else (config, None))
    check_divisible(config.loop, config.machine, workers)
    kept = None if source is None else source.path
    # Prepare first: if the run is impossible, no folder is left behind.
    check_trackers(config.output)
    callbacks_of(config.output)
    prepared = prepare_together(experiment, config, workers, cache=path.parent, run=kept)
    warmup, steps = config.optim.warmup_steps, make_plan(config, prepared.problem).total_steps
    if prepared.problem.draw is None:
        build_optimizer(prepared.problem.model, config.optim, prepared.problem.factors)
    try_objective(prepared.problem)
    if config.loop.weights_from is not None:
        with workers.first_first():
            rows_taken(prepared.problem.model, weights_named(config.loop.weights_from, meta=True))
    if workers.first and warmup >= steps:
        tell(
            f"the warm-up of {warmup:,} steps (optim.warmup_steps) is not shorter than the training of {steps:,}: the "
            "learning rate rises to its very end"
        )
    if workers.first:
        folder = RunFolder.create(
            path, commented_yaml(config), lambda new: write_beginning(experiment, config, prepared, new)
        )
    with locked_by_first(folder, workers):
        train_run(experiment, folder, config, prepared, workers)
    return folder


def write_beginning(experiment: AnyExperiment, config: RunConfig, prepared: Prepared, folder: Path) -> None:
    """Write what a run folder holds beside its configuration, copies of the user's own files among it."""
    prepared.write_files(folder)
    for file in own_files(experiment, config):
        shutil.copy(file, folder)


def own_files(experiment: AnyExperiment, config: RunConfig) -> list[Path]:
    """The user's own Python files of a run: of its experiment and of what its configuration names.

    Raises:
        ValueError: if two of them have the same name.
    """
    ours = [Path(inspect.getfile(type(experiment)))] if experiment.source else []
    return files_named(own_names(config), *ours)


def resume_run(
    experiment: AnyExperiment, path: str | Path, workers: Workers = ALONE, *, online: Said = NOTHING
) -> RunFolder:
    """Continue the unfinished run in the folder ``path`` with its own configuration.

    Args:
        workers: the processes that do so together; they may be others than those that began the run.
        online: what it may ask for on the network, as :func:`.online.network_names` gives it; None: all that it names.

    Raises:
        FileNotFoundError: if it is not a run folder, or not for all processes.
        FileExistsError: if the run is finished.
        InUse: if another process trains in the folder.
        ValueError: if it is a run of another experiment, its data have changed, a file is damaged, or it would ask for
            something else on the network; or as :func:`start_run`.
    """
    folder = RunFolder.open(path)
    with locked_by_first(folder, workers):
        if folder.finished:
            raise FileExistsError(f"{path}: the run is finished; there is nothing to resume")
        folder.check_beginning()
        config = read_config(experiment.Config, folder.config)
        check_said(folder, network_names(experiment, config, begun=folder.checkpoints.latest() is not None), online)
        wandb_id(folder.path)
        check_divisible(config.loop, config.machine, workers)
        check_trackers(config.output)
        callbacks_of(config.output, source=folder.path)
        check_parts_given(config, folder.path)
        cache = folder.path.resolve().parent
        prepared = prepare_together(experiment, config, workers, cache=cache, run=folder.path)
        train_run(experiment, folder, config, prepared, workers)
    return folder


@contextmanager
def shared_for_reading(experiment: AnyExperiment, folder: RunFolder) -> Iterator[Path]:
    """A temporary folder that holds what the runs beside this one share; what is added to it does not stay."""
    with tempfile.TemporaryDirectory() as place:
        for name in experiment.table.cached:
            shared = folder.path.resolve().parent / name
            if shared.is_dir():
                (Path(place) / name).mkdir()
                for entry in shared.iterdir():
                    (Path(place) / name / entry.name).symlink_to(entry)
        yield Path(place)


def train_run(
    experiment: AnyExperiment, folder: RunFolder, config: RunConfig, prepared: Prepared, workers: Workers = ALONE
) -> None:
    """Train in ``folder`` from its newest checkpoint, or from the start, to the end.

    Raises:
        Interrupted: after a checkpoint, if a process was asked to stop; Terminated, if that was by SIGTERM.
        Diverged: if the loss, a weight or the loss of an evaluation set is no longer finite.
    """
    use_native(prepared.problem.model, lambda: workers.first and config.output.progress)
    with prepared.arithmetic(), StopOnSignal() as stop:
        placement = place_model(prepared.problem, prepared.device, config.machine, workers)
        trainer = Trainer(
            prepared.problem,
            config,
            placement=placement,
            checkpoints=folder.checkpoints,
            progress=choose_progress(config.output.progress and workers.first),
            stop=stop,
        )
        trainer.resume()
        if trainer.jump is not None and workers.first:
            tell(trainer.jump)
        log = callbacks = None
        if workers.first:
            epoch, unit, mark = trainer.epoch, trainer.plan.unit, trainer.metrics_mark
            log = MetricsLog(folder.metrics, epochs_done=epoch, unit=unit, mark=mark)
            named = [
                *trackers_of(config.output, folder.tensorboard, log.last_step),
                *made(callbacks_of(config.output, source=folder.path)),
            ]
            callbacks = Callbacks(named, RunView(folder.path, config))
        try:
            final = trainer.fit(log, callbacks)
        except Interrupted as error:
            raise (Terminated if workers.any(stop.terminated) else Interrupted)(*error.args) from None
    weights = placement.weights()
    if workers.first:
        save_weights(without_objective(weights), folder.weights)
        if hasattr(prepared.problem.model, ATTRIBUTE):
            delattr(prepared.problem.model, ATTRIBUTE)  # it is not counted
        _finish(experiment, folder, prepared, trainer, final)
    workers.barrier()


def _finish(
    experiment: AnyExperiment, folder: RunFolder, prepared: Prepared, trainer: Trainer, final: dict[str, float]
) -> None:
    """Write the plot and the numbers of a run that has ended."""
    result = experiment.summary(trainer.config, prepared, trainer, final)
    if trainer.workers.size > 1:
        result["processes"] = trainer.workers.size
    modules = prepared.problem.model.modules()
    plot_run(
        folder.metrics,
        folder.curves,
        title=experiment.headline(result),
        over="epoch" if trainer.plan.unit == "epoch" else "step",
        names=experiment.table.run_curves,
        dropout=any(module.p > 0 for module in modules if isinstance(module, nn.Dropout)),
        chance=prepared.chance,
    )
    folder.finish(result)


def evaluate_run(
    experiment: AnyExperiment, path: str | Path, machine: MachineConfig | None = None, *, online: Said = NOTHING
) -> dict[str, dict[str, Any]]:
    """Numbers of a run, or of one of its checkpoints, for each evaluation set, computed from its weights.

    Those of a run that is not finished are of its newest checkpoint.

    The data are made again from the configuration, so they are those that training kept apart. Nothing is written,
    neither in the folder nor beside it.

    Args:
        path: of the run, or ``RUN/checkpoints/NAME``.
        machine: takes the place of these keys of the run's own configuration.
        online: as of :func:`resume_run`.

    Raises:
        FileNotFoundError: if there is no run or checkpoint, or the run has no weights yet.
        ValueError: if it is a run of another experiment, its data have changed, a file is damaged, or its data are on
            the network and nobody named them.
    """
    folder, checkpoint = RunFolder.at(path)
    if checkpoint is None:
        folder = RunFolder.open(path)
    ended = checkpoint is None and folder.check_ended()
    if not ended:
        folder.check_beginning()
    config = read_config(experiment.Config, folder.config)
    check_said(folder, experiment.online(config), online)
    check_parts_given(config, folder.path)
    changes: dict[str, Any] = {} if machine is None else vars(machine)
    if isinstance(config.machine, ParallelMachineConfig):
        changes = {**changes, "parallel": "replicate", "shard_size": None, "context_parallel": 1}
    machine, output = replace(config.machine, **changes), replace(config.output, progress=False)
    config = replace(config, machine=machine, output=output)
    numbers = {}
    with shared_for_reading(experiment, folder) as cache:
        prepared = experiment.prepare(config, cache=cache, run=folder.path)
        problem = prepared.problem
        if ended:
            load_weights(problem.model, folder.weights)
        else:
            weights = weights_of_run(folder, checkpoint)[0]
            filled(problem.model, weights, source=str(weights.files[0]), device=prepared.device)
        use_native(problem.model)
        with prepared.arithmetic():
            for name, examples in problem.evaluation.items():
                size, weights = config.loop.eval_batch_size, problem.weights
                means = mean_measures(problem.model, examples, problem.loss, batch_size=size, weights=weights)
                named = {f"{name}_{metric}": mean for metric, mean in means.items()}
                numbers[name] = experiment.evaluation(prepared, name, named)
    return numbers


def show_run(experiment: AnyExperiment, folder: RunFolder) -> None:
    """Print the numbers of a finished run and where its files are."""
    result, table = folder.read_result(), experiment.table
    show(experiment.describe(result))
    own = f"{table.counted}_per_second"
    speed = result[own if own in result else "examples_per_second"]
    show(
        f"{result['parameters']:,} parameters, {result['steps']:,} steps, {result['seconds']:.0f} s of training "
        f"({speed:,.0f} {table.counted} a second)\nrun folder: {folder.path}"
    )
    if table.hint:
        print(table.hint.format(run=shlex.quote(str(folder.path))))
