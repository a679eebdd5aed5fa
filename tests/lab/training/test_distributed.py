"""Processes of one training: what they say to each other, and that one of them says what went wrong."""

import gc
import os
import signal
import time
import weakref

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dat.training import distributed
from dat.training.distributed import ALONE, Workers, launched, restarted
from dat.training.interrupt import Interrupted
from tests.support.processes import outcomes_of, together


def exchange(workers: Workers) -> tuple:
    workers.barrier()
    here = torch.tensor([1.0, 10.0**workers.rank], dtype=torch.float64)
    total = workers.sum(here)
    return (
        (workers.rank, workers.size, workers.first, workers.connected),
        total.tolist(),
        here.tolist(),
        workers.any(workers.rank == 1),
        workers.any(False),
        workers.from_first({"rank": workers.rank}),
        workers.gather(workers.rank**2),
    )


@pytest.mark.parametrize("size", [1, 3])
def test_what_processes_exchange(size):
    for rank, (own, total, here, some, none, first, squares) in enumerate(together(size, exchange)):
        assert own == (rank, size, rank == 0, True)
        assert total == [size, sum(10**r for r in range(size))] and here == [1, 10**rank]
        assert some is (size > 1) and none is False
        assert first == {"rank": 0} and squares == [r**2 for r in range(size)]


def leave_a_copy(workers: Workers) -> None:
    """Leave a model in copies to the garbage collector, and fail if it outlives the group."""
    gc.disable()
    model = DistributedDataParallel(nn.Linear(2, 1))
    model.itself = [model]
    freed, destroy = weakref.ref(model), dist.destroy_process_group

    def destroy_after_it() -> None:
        assert freed() is None
        destroy()

    dist.destroy_process_group = destroy_after_it


def test_models_in_copies_are_freed_before_their_group():
    """Otherwise they may wait for ever for a thread of the group."""
    together(2, leave_a_copy)


def test_one_process_without_torchrun_is_the_first_of_one(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with launched() as workers:
        assert workers is ALONE and workers.first and not workers.connected
        with workers.first_first():
            assert exchange(workers)[1:] == ([1, 1], [1, 1], False, False, {"rank": 0}, [0])
        workers.agree("settings", "any")


def test_an_environment_that_is_not_complete(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with pytest.raises(ValueError, match="RANK: expected MASTER_ADDR, MASTER_PORT in the environment"), launched():
        pass


def test_the_first_prepares_first():
    def prepare(workers, folder):
        with workers.first_first():
            if workers.first:
                time.sleep(0.3)
                os.mkdir(folder / "made")
            found = (folder / "made").is_dir()
        with workers.first_first():  # once more
            return found

    import pathlib
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        assert together(3, prepare, pathlib.Path(folder)) == [True, True, True]


def agree(workers: Workers) -> None:
    workers.agree("settings", "same")
    workers.agree("settings", f"a: 1\nb: {min(workers.rank, 1)}\nc: 3")


def test_processes_that_do_not_agree():
    outcomes = outcomes_of(3, agree)
    spoken = [outcome for outcome in outcomes if not outcome.silent]
    assert len(spoken) == 1 and spoken[0].kind == "ValueError"
    assert "settings: expected the same in all 3 processes, got 'b: 1' in process 1 on " in spoken[0].message
    assert spoken[0].message.endswith("and 'b: 0' in process 0")
    assert {outcome.status for outcome in outcomes if outcome.silent} == {2}


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_of_one_is_said_by_that_one(failing):
    """The others wait for it, and lose it."""

    def fail(workers):
        if workers.rank == failing:
            time.sleep(0.2)
            raise FileNotFoundError("text.txt: no such file")
        workers.barrier()

    outcomes = outcomes_of(3, fail)
    assert [outcome.silent for outcome in outcomes] == [rank != failing for rank in range(3)]
    assert outcomes[failing].message == "text.txt: no such file"


def test_an_error_before_the_others_prepare():
    def fail(workers):
        with workers.first_first():
            raise ValueError("no text")

    outcomes = outcomes_of(2, fail)
    assert [outcome.silent for outcome in outcomes] == [False, True] and outcomes[0].message == "no text"


def test_an_error_of_all_is_said_once():
    def fail(workers):
        raise ValueError("wrong")

    assert sorted(outcome.silent for outcome in outcomes_of(3, fail)) == [False, True, True]


def test_an_interruption_of_all_is_said_once():
    def stop(workers):
        raise Interrupted("continue with ...")

    outcomes = outcomes_of(2, stop)
    assert sorted(outcome.status or 0 for outcome in outcomes) == [0, 130]


def test_a_killed_process_is_named_a_lost_one():
    def die(workers):
        if workers.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        workers.barrier()

    first, killed = outcomes_of(2, die)
    assert killed.status == -signal.SIGKILL
    assert first.kind == "LostWorker" and "another process of the 2 ended without a word" in first.message


def test_only_the_first_prints(capfd):
    def say(workers):
        print(f"process {workers.rank}", flush=True)

    together(2, say)
    assert capfd.readouterr().out == "process 0\n"


@pytest.mark.parametrize("name", ["TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"])
def test_a_restart(monkeypatch, name):
    for value, again in (("0", False), ("1", True), ("", False)):
        monkeypatch.setenv(name, value)
        assert restarted() is again


def test_a_restart_on_one_machine_does_not_read_what_those_before_it_said(monkeypatch):
    """torchrun keeps its store, with the addresses of processes that are dead; machines count restarts differently."""
    for count, machines, attempt in (("0", "1", "attempt 0"), ("2", "1", "attempt 2"), ("2", "4", "attempt 0")):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", count)
        monkeypatch.setenv("GROUP_WORLD_SIZE", machines)
        assert distributed._attempt() == attempt
