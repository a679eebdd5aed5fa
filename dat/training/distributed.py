"""The processes of one training: found in the environment that torchrun makes, and what they say to each other.

One process is the first; it alone writes files and prints. All others compute. An error ends them all, and the first
process that has one says so: what the others then have, a lost connection say, is its consequence.
"""

import gc
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.rendezvous import rendezvous

from dual_attention._base.words import printable

ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables that torchrun sets for each process."""
ERRORS = "errors"
"""Number of processes that ended with an error, in what they share."""

Value = TypeVar("Value")


class LostWorker(RuntimeError):
    """Another process of a training was killed."""


class Workers:
    """The processes that train one model, as one of them sees them; by default there is only this one.

    Args:
        rank: number of this process, from 0.
        size: how many there are.
        store: what they can write to and read from by name; None if there is only one.
    """

    def __init__(self, rank: int = 0, size: int = 1, store: Any = None) -> None:
        self.rank, self.size = rank, size
        self._store = store
        self._waits = 0
        self._other_group: Any = None

    @property
    def connected(self) -> bool:
        """Whether there is a process group, be it of one process."""
        return self._store is not None

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.all_reduce(torch.zeros(()))  # on the CPU, so that no process waits for its device

    @contextmanager
    def first_first(self) -> Iterator[None]:
        """Context that the first process goes through before the others enter it: they find the files that it made."""
        self._waits += 1
        done = f"done/{self._waits}"
        while not (self.first or self._store.check([done])):  # which may take hours, if it is to tokenize a text
            if self._store.check([ERRORS]):
                raise LostWorker("the first process ended with an error")
            time.sleep(0.05)
        yield
        if self.first and self.size > 1:
            self._store.set(done, "")
        self.barrier()

    def any(self, condition: bool) -> bool:
        """Whether the condition holds in any of the processes; all of them ask at the same time."""
        if self.size == 1:
            return condition
        flag = torch.tensor(float(condition))
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag)

    def sum(self, values: Tensor) -> Tensor:
        """Sum of a tensor over all processes, the same in each of them."""
        if self.size > 1:
            values = values.clone()
            dist.all_reduce(values)
        return values

    def from_first(self, value: Value) -> Value:
        """The value that the first process has; that of the others does not count."""
        return self.gather(value)[0]

    def other_group(self) -> Any:
        """A process group of other connections, for what is said beside training; all ask for it at the same time."""
        if self._other_group is None:
            self._other_group = dist.new_group(backend="gloo")
        return self._other_group

    def gather(self, value: Value) -> list[Value]:
        """The values of all processes, by rank; anything that can be pickled."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def agree(self, what: str, text: str) -> None:
        """Check that all processes have the same text.

        Raises:
            ValueError: in all of them, naming the first process that has another one, and the first line that differs.
        """
        own = f"process {self.rank} on {socket.gethostname()}", text.splitlines()
        (_, expected), *others = self.gather(own)
        for who, lines in others:
            if lines != expected:
                pairs = zip([*expected, ""], [*lines, ""], strict=False)
                first, other = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
                raise ValueError(
                    f"{what}: expected the same in all {self.size} processes, got {other.strip()!r} in {who} and "
                    f"{first.strip()!r} in process 0"
                )


ALONE = Workers()
"""The only process."""


@contextmanager
def launched() -> Iterator[Workers]:
    """Context with the processes that torchrun started together with this one; :data:`ALONE` without torchrun.

    All but the first print nothing on standard output. Of the errors that end the context in several of them only the
    one that came first goes on; the other processes exit with the same status, in silence.

    Raises:
        ValueError: if the environment is not complete.
    """
    found = [name for name in ENVIRONMENT if name in os.environ]
    if len(found) < 2:  # a cluster may set one of them, for something else
        yield ALONE
        return
    workers = _connected(found)
    try:
        with open(os.devnull, "w") as nowhere, nullcontext() if workers.first else redirect_stdout(nowhere):
            yield workers
        workers.barrier()  # so that none ends its connections while another needs them
    except SystemExit:
        raise
    except BaseException as error:
        _go_on_once(workers, error)
    # Models in copies hold the group and are in cycles. Freed after it, they would join its threads under the lock of
    # the interpreter, for which one of these may wait.
    gc.collect()
    dist.destroy_process_group()


def restarted() -> bool:
    """Whether torchrun, or SLURM, has started the same command again after it failed or was stopped."""
    counts = (os.environ.get(name, "") for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"))
    return any(count not in ("", "0") for count in counts)


def _connected(found: list[str]) -> Workers:
    """The processes of the environment, connected."""
    missing = [name for name in ENVIRONMENT if name not in found]
    if missing:
        raise ValueError(f"{found[0]}: expected {', '.join(missing)} in the environment as well, as torchrun sets them")
    on_gpu = torch.cuda.is_available() and dist.is_nccl_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    store, rank, size = next(rendezvous("env://"))
    store = dist.PrefixStore(_attempt(), store)  # pyright: ignore[reportPrivateImportUsage]
    own = dist.PrefixStore("dual_attention", store)  # pyright: ignore[reportPrivateImportUsage]
    workers = Workers(rank, size, own)
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", store=store, rank=rank, world_size=size)
    except RuntimeError as error:  # one of the others died before it was connected
        _go_on_once(workers, error)
    return workers


def _attempt() -> str:
    """Name of what the processes of this start say to each other.

    torchrun keeps its store over restarts, and with it the addresses of processes that were killed: a new process that
    reads one waits for the dead. On several machines torchrun counts restarts on each for itself: none is named.
    """
    one_machine = os.environ.get("GROUP_WORLD_SIZE", "1") == "1"
    return f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0') if one_machine else 0}"


def _go_on_once(workers: Workers, error: BaseException) -> NoReturn:
    """Raise the error, if no other process has raised one before; exit in silence otherwise."""
    from .interrupt import EXIT_STATUS, Interrupted

    try:
        first = workers._store.add(ERRORS, 1) == 1
    except RuntimeError:  # the process that keeps the store has ended, with an error of its own
        first = False
    if first:
        if _is_of_connection(error):
            raise LostWorker(
                f"another process of the {workers.size} ended without a word, or cannot be reached any more "
                f"({printable(str(error))[:200]})"
            ) from error
        raise error
    if isinstance(error, KeyboardInterrupt | Interrupted):
        sys.exit(error.status if isinstance(error, Interrupted) else EXIT_STATUS)
    sys.exit(2)


def _is_of_connection(error: BaseException) -> bool:
    """Whether an error is of the exchange between processes."""
    words = ("gloo", "connection closed by peer", "connection reset", "nccl", "timed out")
    return isinstance(error, RuntimeError) and (
        isinstance(error, dist.DistError) or any(word in str(error).lower() for word in words)
    )
