"""Processes that train together, forked by a test as torchrun would start them."""

import faulthandler
import importlib
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

from dat.cli.main import main
from dat.sweeps import workers
from dat.training.distributed import launched

SECONDS = 300
"""After which processes that wait for each other are killed."""

PRELOADED = (
    "dat.cli.train",
    "dat.experiments.language.experiment",
    "dat.training.runs",
    "dat.training.sharded_checkpoint",
    "dual_attention.native.implementation",
    "filelock",
    "matplotlib.backends.backend_agg",
    "matplotlib.pyplot",
    "safetensors.torch",
    "torch._dynamo",  # by DistributedDataParallel and FSDP
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "yaml",
)
"""Modules that a training imports as it begins: loaded once here, not again, for a second or two, in each process."""


def together(size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """What ``function(workers, *args)`` returns in each of ``size`` processes; an error of any of them fails.

    What it returns is copied by pickle.
    """
    outcomes = outcomes_of(size, function, *args)
    errors = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert not errors, "\n".join(error.text for error in errors)
    return outcomes


class Failure:
    """The error that ended a process: its text, or None for a process that exited in silence."""

    def __init__(self, error: BaseException | None = None, status: object = None) -> None:
        self.kind = type(error).__name__
        self.message = str(error)
        self.status = status
        self.silent = error is None or isinstance(error, SystemExit)
        self.text = "".join(traceback.format_exception(error)) if error is not None else f"exited with {status}"


class Ended(NamedTuple):
    """A process that has run a command: its exit status, negative of a signal, and what it printed."""

    status: int
    out: str
    err: str


def dat_together(
    *commands: Sequence[str],
    folder: Path | Sequence[Path],
    meanwhile: Callable[[list[Any]], None] = lambda _: None,
    environment: Mapping[str, str] | None = None,
) -> list[Ended]:
    """Run ``dat`` in as many processes as there are commands, each with its own arguments.

    Args:
        folder: where they run, all or each.
        meanwhile: called with the processes when they have been started.
        environment: of them all, in addition.
    """
    context = multiprocessing.get_context("fork")
    folders = [folder] * len(commands) if isinstance(folder, Path) else folder
    processes = []
    with rendezvous(len(commands)) as shared, tempfile.TemporaryDirectory() as place:
        of_all = {**shared, **(environment or {})}
        paths = [(Path(place) / f"{rank}.out", Path(place) / f"{rank}.err") for rank in range(len(commands))]
        for rank, (words, own) in enumerate(zip(commands, paths, strict=True)):
            environ = {**of_all, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            processes.append(context.Process(target=_run_dat, args=(environ, list(words), folders[rank], *own)))
            processes[-1].start()
        try:
            meanwhile(processes)
            for process in processes:
                process.join(SECONDS)
        finally:
            for process in processes:
                process.kill()
                process.join()
        ended = zip(processes, paths, strict=True)
        return [Ended(process.exitcode, out.read_text(), err.read_text()) for process, (out, err) in ended]


def dat_alone(words: Sequence[str], folder: Path) -> str:
    """What ``dat`` prints in one process that torchrun did not start."""
    _preload()
    with tempfile.TemporaryDirectory() as place:
        out, err = Path(place) / "out", Path(place) / "err"
        arguments = ({}, list(words), folder, out, err)
        process = multiprocessing.get_context("fork").Process(target=_run_dat, args=arguments)
        process.start()
        process.join(SECONDS)
        assert process.exitcode == 0, err.read_text()
        return out.read_text()


def _run_dat(environment: dict[str, str], words: list[str], folder: Path, out: Path, err: Path) -> None:
    torch.set_num_threads(1)
    os.environ.update(environment)
    faulthandler.enable(2)
    os.chdir(folder)
    for number, path in ((1, out), (2, err)):
        file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(file, number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    status = main(words)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def outcomes_of(size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """The same, with a :class:`Failure` for each process that has an error."""
    with rendezvous(size) as environment:
        return _outcomes(environment, size, function, args)


def _outcomes(environment: dict[str, str], size: int, function: Callable[..., Any], args: tuple[Any, ...]) -> list[Any]:
    context = multiprocessing.get_context("fork")
    pipes, processes = [], []
    for rank in range(size):
        ours, theirs = context.Pipe(duplex=False)
        own = {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        process = context.Process(target=_run, args=(own, theirs, function, args))
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    outcomes = []
    try:
        for pipe, process in zip(pipes, processes, strict=True):
            try:
                outcomes.append(pickle.loads(pipe.recv_bytes()) if pipe.poll(SECONDS) else Failure(status="waiting"))
            except EOFError:
                process.join(SECONDS)
                outcomes.append(Failure(status=process.exitcode))
    finally:
        for process in processes:
            if process.is_alive():
                process.join(1)
                process.kill()
            process.join()
    return outcomes


def _run(environment: dict[str, str], pipe: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.environ.update(environment)
    faulthandler.enable(2)  # an abort says where, among what the test has written
    faulthandler.dump_traceback_later(0.9 * SECONDS, file=2)  # and so does what waits until it is killed
    try:
        with launched() as workers:
            result = function(workers, *args)
        pipe.send_bytes(pickle.dumps(result))  # tensors by their values, not by memory that ends with this process
    except BaseException as error:
        pipe.send_bytes(pickle.dumps(Failure(error, error.code if isinstance(error, SystemExit) else None)))
    sys.stderr.flush()
    os._exit(0)


@contextmanager
def rendezvous(size: int) -> Iterator[dict[str, str]]:
    """A place to meet that outlives the processes, as that of torchrun does, and the environment that leads there.

    A process of its own keeps it. A thread of this one would hold locks of the C library, its resolver's say, at the
    moment at which others are forked, which would then wait for them for ever.
    """
    _preload()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    keeper = context.Process(target=_keep, args=(theirs,))
    keeper.start()
    try:
        yield {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(ours.recv()),
            "WORLD_SIZE": str(size),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
        }
    finally:
        keeper.kill()
        keeper.join()


def _preload() -> None:
    for name in PRELOADED:
        # A head start only: sharded checkpoints need PyTorch 2.9, others the extra `train`, as they say when used.
        with suppress(AttributeError, ImportError):
            importlib.import_module(name)


def _keep(pipe: Any) -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipe.send(store.port)
    signal.pause()


def fork_workers(patch: pytest.MonkeyPatch) -> None:
    """Let grids fork the processes of their cells, which then have imported what they need.

    That they are spawned, tests/lab/experiments/test_own_file.py tests.
    """
    fork = multiprocessing.get_context("fork")
    patch.setattr(workers.multiprocessing, "get_context", lambda method: fork)
