"""Processes that end in the midst of a training: what is lost is what was trained since the last checkpoint."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.documents import ROOT
from tests.support.processes import dat_alone, dat_together

from .text_runs import RESUME, TEXT, losses, words

LONGER = {"loop__steps": 40, "loop__batch_size": 12, "loop__checkpoint_every": 4, "loop__eval_every": 20}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Losses of the steps of a run that nothing happens to."""
    place = tmp_path_factory.mktemp("alone")
    (place / "text.txt").write_text(TEXT, encoding="utf-8")
    dat_alone(words(**LONGER), place)
    return losses(place / "runs" / "run")


def wait_for_rows(run: Path, count: int) -> None:
    """Wait until a run has written so many rows of metrics."""
    until = time.monotonic() + 300
    while not ((run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_bytes().count(b"\n") >= count):
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.mark.slow
def test_killed_processes_and_other_numbers_of_them(folder, expected):
    """One of them is killed, or all; what goes on is of another size. Each saves its part of the weights."""
    draw, run = random.Random(3), folder / "runs" / "run"
    for turn, size in enumerate((2, 3, 1, 2)):

        def kill(processes, turn=turn):
            wait_for_rows(run, 1 + 8 * turn)
            time.sleep(draw.random() * 0.05)
            for process in [draw.choice(processes)] if turn % 2 else processes:
                os.kill(process.pid, signal.SIGKILL)

        command = RESUME if run.exists() else words(**LONGER, machine__parallel="shard")
        ended = dat_together(*[command] * size, folder=folder, meanwhile=kill)
        statuses = {process.status for process in ended}
        assert statuses <= {0, 2, -signal.SIGKILL}
        said = [line for process in ended for line in process.err.splitlines() if line.startswith("dat: error")]
        assert len(said) <= 1 and all("another process of the" in line for line in said)
    if not (run / "result.json").exists():
        assert {process.status for process in dat_together(RESUME, RESUME, folder=folder)} == {0}
    assert losses(run) == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_the_notice_of_a_scheduler_to_one_process(folder, expected):
    """All save at the same step, none trains again, and the status asks for a restart."""
    run = folder / "runs" / "run"

    def notify(processes):
        wait_for_rows(run, 5)
        os.kill(processes[1].pid, signal.SIGTERM)

    command = words(**{**LONGER, "loop__checkpoint_every": 0})
    ended = dat_together(command, command, folder=folder, meanwhile=notify)
    assert [process.status for process in ended] == [75, 75]
    advice = "continue with: torchrun --standalone --nproc-per-node 2 -m dat train language --resume runs/run"
    assert sum(f"dat: interrupted; {advice}" in each.err for each in ended) == 1
    before = losses(run)
    assert len(list((run / "checkpoints").iterdir())) == 1 and 5 <= len(before) < 40
    restarted = {"SLURM_RESTART_COUNT": "1"}
    again = dat_together(command, command, folder=folder, environment=restarted)
    assert [process.status for process in again] == [0, 0] and losses(run)[: len(before)] == before
    assert losses(run) == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_torchrun_restarts_what_was_killed(folder, expected):
    """The command that torchrun starts again continues its own run."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    command = [*launcher, "-m", "dat", *words(**LONGER)]
    run = folder / "runs" / "run"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as launched:
        try:
            wait_for_rows(run, 6)
            os.kill(writer_of(run), signal.SIGKILL)
            _, err = launched.communicate(timeout=300)
        finally:
            launched.send_signal(signal.SIGTERM)  # which ends its processes, too
    assert launched.returncode == 0, err
    assert losses(run) == pytest.approx(expected, rel=1e-6)


def writer_of(run: Path) -> int:
    """The process that the lock of a run names."""
    return int((run / ".lock").read_text().split()[1])
