"""Cells of a grid run in parallel processes, each with one CPU thread."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing.process import BaseProcess
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event, Lock
from pathlib import Path
from typing import Any

import torch

from dual_attention._base.files import write_json
from dual_attention._base.words import counted, listed, printable

from .._errors import in_one_line
from .._native import use_native
from .._own_code import all_given, give
from .._processes import follow_parent, starting_workers
from .._terminal import tell
from ..training.configs import RunConfig
from ..training.interrupt import Interrupted
from ..training.loop import Trainer
from ..training.measuring import never
from ..training.run_folder import versions
from ..training.weights_file import save_weights
from .experiment import AnySwept
from .grid import Cell, GridConfig, GridFolder
from .results import CONFIG, LR, settings_of

_stop: Event | None = None
_begun: SimpleQueue[tuple[int, str, str]] | None = None
_speaker: Lock | None = None


class WorkerDied(RuntimeError):
    """The process of a cell was killed."""


class CellsFailed(RuntimeError):
    """Cells of a grid diverged or raised, each with its error in ``failed``; all others have been run."""

    def __init__(self, message: str, failed: Mapping[Cell, Exception]) -> None:
        super().__init__(message)
        self.failed = failed


class NotPrepared(RuntimeError):
    """Data, a package or a device that a cell needs is missing, or a setting does not fit it."""


def start_worker(
    stop: Event, begun: SimpleQueue[tuple[int, str, str]], speaker: Lock | None, given: Sequence[str] = ()
) -> None:
    """Prepare a worker: one thread, no Ctrl-C of its own, and no life after its parent.

    Args:
        stop: asks it to stop.
        begun: takes its process id, the name of each cell that it begins, and what is to say of its data.
        speaker: held by the worker that says what holds for all; None: nobody says it.
        given: names of classes of the user's own that configurations may name.
    """
    give(*given)
    global _stop, _begun, _speaker
    _stop, _begun, _speaker = stop, begun, speaker
    torch.set_num_threads(1)
    follow_parent()


def is_first_to_say() -> bool:
    """Whether no other worker has said what holds for all of them."""
    return _speaker is not None and _speaker.acquire(block=False)


def run_cell(
    experiment: AnySwept,
    config: RunConfig,
    path: Path,
    weights: Path | None = None,
    *,
    cache: Path,
    beside: Mapping[str, Any] | None = None,
) -> float:
    """Train and measure one cell, write its result to ``path`` and return the seconds it took.

    Args:
        weights: where the final weights go, if it is not None.
        beside: entries that replace those of the result.

    Raises:
        NotPrepared: in the words of the error, if training cannot begin for want of something; nothing is written.
        Interrupted: if the grid is being stopped; nothing is written.
        Diverged: if training diverged; nothing is written.
    """
    started = time.perf_counter()
    stop = _stop.is_set if _stop is not None else never
    if stop():
        raise Interrupted
    if _begun is not None:
        _begun.put((os.getpid(), path.stem, ""))
    try:
        prepared = experiment.prepare(config, cache=cache)
    except (ImportError, OSError, ValueError) as error:
        raise NotPrepared(in_one_line(error)) from error
    if _begun is not None and prepared.about:
        _begun.put((os.getpid(), path.stem, prepared.about))
    use_native(prepared.problem.model, is_first_to_say)
    with prepared.arithmetic():
        trainer = Trainer(prepared.problem, config, stop=stop)
        result = experiment.summary(config, prepared, trainer, trainer.fit())
    if weights is not None:
        save_weights(prepared.problem.model, weights)
    result["seconds_in_all"] = round(time.perf_counter() - started, 3)
    write_json(path, {**result, **(beside or {}), "versions": versions()})
    return result["seconds_in_all"]


def entries_beside(experiment: AnySwept, grid: GridConfig, cell: Cell, config: RunConfig) -> dict[str, Any]:
    """Entries of the result of a cell: the settings of its run and, apart from them, its arm's own learning rate.

    Args:
        config: the configuration of its run.
    """
    if cell.lr is None:
        return {CONFIG: settings_of(config)}
    common = grid.config(replace(cell, lr=None))
    given = {"changes": {"optim.lr": cell.lr}, "numbers": {LR: cell.lr}}
    return {CONFIG: settings_of(common), **experiment.identity(common), "given": given}


def run_cells(
    waiting: Iterable[Cell],
    grid: GridConfig,
    folder: GridFolder,
    workers: int,
    stop: Callable[[], bool],
    *,
    quiet: bool = False,
) -> Iterator[tuple[Cell, float]]:
    """Run the cells, ``workers`` at a time, yielding each with its seconds as it is done.

    What is to say of their data is said once. A cell that fails is named at once, unless one has failed for the same
    reason before, and the others go on. When
    ``stop()`` becomes true, the cells being run end within a step, nothing of them is kept, and no more start.

    Raises:
        NotPrepared: if the first cell cannot be prepared; the others, which probably cannot either, are not run.
        WorkerDied: naming the cell, if its process was killed.
        CellsFailed: naming the cells that failed, after all others have been run.
    """
    context = multiprocessing.get_context("spawn")
    event, begun = context.Event(), context.SimpleQueue()
    given = event, begun, None if quiet else context.Lock(), all_given()
    executor = ProcessPoolExecutor(workers, mp_context=context, initializer=start_worker, initargs=given)
    cells = list(waiting)
    queue = iter(cells)
    running: dict[Future[float], Cell] = {}
    processes: dict[int | None, BaseProcess] = {}
    names: dict[int, str] = {}  # of the cell that each process began last
    said = None if quiet else {""}
    failed: dict[Cell, Exception] = {}
    first: Cell | None = None
    try:
        while not stop():
            while len(running) <= workers and (cell := next(queue, None)) is not None:
                weights = folder.weights_of(cell) if grid.keep_weights else None
                config = grid.config(cell)
                arguments = (folder.experiment, config, folder.path_of(cell), weights)
                options = {"cache": folder.path, "beside": entries_beside(folder.experiment, grid, cell, config)}
                with starting_workers():
                    running[executor.submit(run_cell, *arguments, **options)] = cell
                first = first or cell
            if not running:
                break
            processes.update({process.pid: process for process in multiprocessing.active_children()})
            finished = wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done
            _note_begun(begun, names, said)
            in_order = [future for future in running if future in finished]  # of the cells
            for future in sorted(in_order, key=lambda future: isinstance(future.exception(), BrokenProcessPool)):
                cell = running.pop(future)
                try:
                    seconds = future.result()
                except Interrupted:
                    continue
                except BrokenProcessPool as error:
                    executor.shutdown(wait=True, cancel_futures=True)
                    raise WorkerDied(_death(folder, names, processes)) from error
                except Exception as error:
                    if cell == first and isinstance(error, NotPrepared):
                        raise
                    reason = in_one_line(error)
                    if reason not in map(in_one_line, failed.values()):
                        tell(f"{cell.name} failed: {reason}")
                    failed[cell] = error
                    continue
                folder.record(cell)
                yield cell, seconds
    finally:
        event.set()
        executor.shutdown(wait=True, cancel_futures=True)
    if failed and not stop():
        failed = {cell: failed[cell] for cell in cells if cell in failed}
        raise CellsFailed(_failure(folder, failed), failed) from next(iter(failed.values()))


def _note_begun(begun: SimpleQueue[tuple[int, str, str]], names: dict[int, str], said: set[str] | None) -> None:
    """Read what processes have begun, and say what they say of their data and ``said`` lacks; None: nothing is said."""
    while not begun.empty():
        pid, names[pid], about = begun.get()
        if said is not None and about not in said:
            print(printable(about), file=sys.stderr)
            said.add(about)


def _failure(folder: GridFolder, failed: Mapping[Cell, Exception]) -> str:
    """Sentence on the cells that failed, with the reason of all, or else of the first."""
    reasons = list(dict.fromkeys(map(in_one_line, failed.values())))
    of = "" if len(failed) == 1 else "all: " if len(reasons) == 1 else "first: "
    return (
        f"{folder.path}: {counted(len(failed), 'cell')} failed: {listed([cell.name for cell in failed])} "
        f"({of}{reasons[0]}); the same command runs {'it' if len(failed) == 1 else 'them'} again"
    )


def _death(folder: GridFolder, names: Mapping[int, str], processes: Mapping[int | None, BaseProcess]) -> str:
    """Sentence on the cells whose processes ended by themselves; the others were stopped when the first had ended."""
    of_others = (None, 0, -signal.SIGTERM)
    died = {name: processes[pid].exitcode for pid, name in names.items() if pid in processes}
    died = {name: code for name, code in died.items() if code not in of_others} or dict.fromkeys(names.values())
    cells = ", ".join(name if code is None else f"{name} ({_exit_text(code)})" for name, code in died.items())
    return (
        f"{folder.path}: the process of a cell was killed, perhaps for want of memory: {cells or 'before it began'}; "
        "the same command continues the grid, fewer --workers need less memory"
    )


def _exit_text(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit status {code}"
