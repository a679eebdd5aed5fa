"""Steps that the processes of a run take together before it trains."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from .configs import RunConfig, check
from .distributed import Workers
from .experiment import AnyExperiment, Prepared
from .objective import with_objective
from .run_folder import RunFolder
from .tables import show

SECONDS_UNTIL_SEEN = 10.0
"""Longest wait for a folder on a network, which other machines may see later than the one that made it."""


@contextmanager
def locked_by_first(folder: RunFolder, workers: Workers) -> Iterator[None]:
    """Context in which no other training writes to a folder, which all of ``workers`` see.

    Raises:
        FileNotFoundError: if one of them does not.
        InUse: if another process trains in it.
    """
    with folder.locked() if workers.first else nullcontext():
        workers.barrier()
        until = time.monotonic() + SECONDS_UNTIL_SEEN
        while not folder.config.is_file() and time.monotonic() < until:
            time.sleep(0.1)
        mine = workers.from_first(folder.config.read_bytes() if workers.first else b"")
        if not folder.config.is_file() or folder.config.read_bytes() != mine:
            raise FileNotFoundError(
                f"{folder.path}: expected a folder that all {workers.size} processes see, but process {workers.rank} "
                f"on {socket.gethostname()} does not; give one on a disk that they share (output.folder)"
            )
        yield


def prepare_together(
    experiment: AnyExperiment, config: RunConfig, workers: Workers, *, cache: Path, run: Path | None = None
) -> Prepared:
    """A run, prepared in the first process and then in the others, for which the files that it makes are there.

    The first one says what it read.

    Raises:
        ValueError: if there are more processes than examples.
    """
    if not workers.first:
        output = replace(config.output, progress=False)
        config = replace(config, output=output)  # pyright: ignore[reportArgumentType]
    with workers.first_first():
        prepared = experiment.prepare(config, cache=cache, run=run)
        prepared = replace(prepared, problem=with_objective(prepared.problem, config, prepared.device, source=run))
    if prepared.about and config.output.progress:
        show(prepared.about)
    n, size = len(prepared.problem.train), workers.size
    check(n >= size, "data", f"at least one example for each of the {size} processes", n)
    return prepared
