"""Cells of a grid run in parallel processes, each with one CPU thread."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing.synchronize import Event
from pathlib import Path

import torch

from .._files import write_json
from ..training.checkpoint import save_weights
from ..training.experiment import AnyExperiment, RunConfig
from ..training.interrupt import Interrupted
from ..training.loop import Trainer, never
from ..training.run_folder import versions
from ..training.seeding import derive_seed
from .grid import Cell, GridConfig, GridFolder

_stop: Event | None = None


def start_worker(stop: Event) -> None:
    """Prepare a worker: one thread, no Ctrl-C of its own, and no life after its parent."""
    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """End this process as soon as the one that started it has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def run_cell(
    experiment: AnyExperiment, config: RunConfig, path: Path, weights: Path | None = None, *, cache: Path
) -> float:
    """Train and measure one cell, write its result to ``path`` and return the seconds it took.

    The final weights go to ``weights``, if that is not None.

    Raises:
        Interrupted: if the grid is being stopped; nothing is written.
    """
    started = time.perf_counter()
    stop = _stop.is_set if _stop is not None else never
    if stop():
        raise Interrupted
    prepared = experiment.prepare(config, cache=cache)
    torch.manual_seed(derive_seed(config.seed, "dropout"))
    with prepared.arithmetic():
        trainer = Trainer(
            prepared.problem, config.optim, config.loop, seed=config.seed, device=prepared.device, stop=stop
        )
        result = experiment.summary(config, prepared, trainer, trainer.fit())
    if weights is not None:
        save_weights(prepared.problem.model, weights)
    result["seconds_in_all"] = round(time.perf_counter() - started, 3)
    write_json(path, {**result, "versions": versions()})
    return result["seconds_in_all"]


def run_cells(
    todo: Iterable[Cell],
    grid: GridConfig,
    folder: GridFolder,
    workers: int,
    stop: Callable[[], bool],
) -> Iterator[tuple[Cell, float]]:
    """Run the cells, ``workers`` at a time, yielding each with its seconds as it is done.

    When ``stop()`` becomes true, the cells being run end within a step, nothing of them is kept, and no more start.

    Raises:
        Exception: what a cell raised, after the other cells being run have been stopped.
    """
    context = multiprocessing.get_context("spawn")
    event = context.Event()
    executor = ProcessPoolExecutor(workers, mp_context=context, initializer=start_worker, initargs=(event,))
    queue = iter(todo)
    running: dict[Future[float], Cell] = {}
    try:
        while not stop():
            while len(running) <= workers and (cell := next(queue, None)) is not None:
                weights = folder.weights_of(cell) if grid.keep_weights else None
                arguments = (folder.experiment, grid.config(cell), folder.path_of(cell), weights)
                running[executor.submit(run_cell, *arguments, cache=folder.path)] = cell
            if not running:
                return
            for future in wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done:
                cell = running.pop(future)
                try:
                    yield cell, future.result()
                except Interrupted:
                    continue
    finally:
        event.set()
        executor.shutdown(wait=True, cancel_futures=True)
