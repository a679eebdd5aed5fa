"""Training a problem in a run folder, whatever the experiment is."""

from __future__ import annotations

import torch

from .checkpoint import save_weights
from .configs import LoopConfig, OptimConfig, OutputConfig, StepLoopConfig
from .interrupt import StopOnSignal
from .loop import Trainer
from .metrics import MetricsLog
from .problem import Problem
from .progress import Progress
from .run_folder import RunFolder
from .seeding import derive_seed


def fit(
    folder: RunFolder,
    problem: Problem,
    optim: OptimConfig,
    loop: LoopConfig | StepLoopConfig,
    output: OutputConfig,
    *,
    seed: int,
    device: torch.device,
    progress: Progress,
) -> tuple[Trainer, dict[str, float]]:
    """Train from the newest checkpoint of ``folder``, or from the start, to the end, and write the weights.

    Returns:
        The trainer, and the means over all evaluation sets, see :meth:`~.loop.Trainer.fit`.

    Raises:
        Interrupted: after a checkpoint, if the process was asked to stop.
        Diverged: if the loss is no longer finite.
    """
    with StopOnSignal() as stop:
        torch.manual_seed(derive_seed(seed, "dropout"))
        trainer = Trainer(
            problem,
            optim,
            loop,
            seed=seed,
            device=device,
            checkpoints=folder.checkpoints,
            progress=progress,
            stop=stop,
        )
        trainer.resume()
        tensorboard = folder.tensorboard if output.tensorboard else None
        unit = trainer.plan.unit
        log = MetricsLog(folder.metrics, tensorboard=tensorboard, epochs_done=trainer.epoch, unit=unit)
        try:
            final = trainer.fit(log)
        finally:
            log.close()
    save_weights(problem.model, folder.weights)
    return trainer, final
