"""A process killed at any operation on files leaves a run that resumes to the same bytes."""

import itertools
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from dat.training.run_folder import RunFolder
from dat.training.runs import resume_run, start_run
from tests.support.runs import assert_same_run

from .test_run_files import TOY, config

pytestmark = pytest.mark.sweep(8)

OPERATIONS = ("replace", "rename", "fsync", "unlink", "rmdir", "mkdir", "open")


@pytest.fixture
def undrawn() -> None:
    """The picture is drawn, since a process may be killed there, too."""


def train(folder: Path, fatal: int | None, pipe) -> None:
    """Start or resume the run, with a death at the operation of that number; tells how many there were."""
    count = itertools.count()

    def counted(operation):
        def call(*arguments, **keywords):
            if next(count) == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            return operation(*arguments, **keywords)

        return call

    for name in OPERATIONS:
        setattr(os, name, counted(getattr(os, name)))
    run = folder / "run"
    if (run / "config.yaml").exists():
        resume_run(TOY, run)
    else:
        start_run(TOY, config(folder))
    pipe.send(next(count))


def in_a_process(folder: Path, fatal: int | None = None) -> int | None:
    """The number of operations, or None if the process was killed."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=train, args=(folder, fatal, theirs))
    process.start()
    theirs.close()
    process.join()
    assert process.exitcode == (0 if fatal is None else -signal.SIGKILL)
    return ours.recv() if fatal is None else None


@pytest.mark.parametrize("share", [place / 12 for place in range(12)])
def test_killed_at_one_operation(tmp_path, share, uninterrupted):
    whole, operations = uninterrupted
    in_a_process(tmp_path, int(share * operations))
    in_a_process(tmp_path)
    assert_same_run(RunFolder(tmp_path / "run"), RunFolder(whole))
    assert not [path for path in tmp_path.rglob(".*") if path.name != ".lock"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> tuple[Path, int]:
    """A run, and how many operations it took."""
    start_run(TOY, config(tmp_path_factory.mktemp("here")))  # imports once what every process uses
    folder = tmp_path_factory.mktemp("whole")
    operations = in_a_process(folder)
    assert operations is not None and operations > 60
    return folder / "run", operations
