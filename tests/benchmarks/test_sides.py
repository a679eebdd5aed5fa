"""Sides in other processes: the protocol, who is let in, and how a worker ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.comparing import difference, draw
from benchmarks.runner import Runner
from benchmarks.sides import HERE, RemoteSide, Worker, WorkerError, own_worker
from benchmarks.suites import layers
from benchmarks.work import Decoding, Draw, Generation, Settings, Work
from tests.support.refusals import refused

WORK = layers.step_case(4, 16, quick=True).sides[0].work


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with own_worker() as process:
        yield process


@pytest.fixture
def tensors(tmp_path: Path) -> Path:
    path = tmp_path / "tensors.pt"
    torch.save(draw(WORK, Settings()), path)
    return path


def test_work_travels_as_json():
    inputs = {"x": Draw((2, 3)), "tokens": Draw((1,), below=7, gradient=False)}
    work = Work("model", {"kind": "a.B", "n": [1, 2]}, inputs, "dense", Generation(3, 2, 3))
    assert Work.from_json(work.to_json()) == work
    token = replace(work, generation=None, decoding=Decoding(5, batch=2, cached=False))
    assert Work.from_json(token.to_json()) == token
    assert Work.from_json(WORK.to_json()) == WORK


@pytest.mark.slow
def test_a_side_there_does_what_it_does_here(worker: Worker, tensors: Path, tmp_path: Path):
    there = RemoteSide(worker, WORK, Settings(), tensors, tmp_path)
    here = Runner(WORK, Settings(), torch.load(tensors, weights_only=True))
    for quantity in ("forward", "step"):
        remote = there.values(quantity)
        assert difference(remote, here.values(quantity)).size < 1e-6
        assert there.sample(quantity, 2) > 0
        assert there.traffic(quantity) == here.traffic(quantity)
    assert "gradient of x" in remote
    assert "gradient of blocks.0.dual_attn.relational_attention.wr" in remote
    assert (there.memory("step")["allocated"] or 0) > 4 * sum(
        p.numel() for p in here.module.parameters() if p.requires_grad
    )


@pytest.mark.slow
def test_an_error_there_is_an_error_here_and_the_worker_goes_on(worker: Worker, tensors: Path, tmp_path: Path):
    wrong = Work("no_such_subject", {}, WORK.inputs)
    with pytest.raises(WorkerError, match="KeyError: 'no_such_subject'"):
        RemoteSide(worker, wrong, Settings(), tensors, tmp_path)
    assert RemoteSide(worker, WORK, Settings(), tensors, tmp_path).sample("forward", 1) > 0


@pytest.mark.slow
def test_state_dicts_must_fit(worker: Worker, tensors: Path, tmp_path: Path):
    other = layers.step_case(2, 16, quick=True).sides[0].work  # other numbers of relations
    with pytest.raises(WorkerError, match="size mismatch"):
        RemoteSide(worker, other, Settings(), tensors, tmp_path)


@pytest.mark.slow
def test_the_published_package_is_let_in(make_published: Callable[..., Path]):
    with Worker(make_published()) as process:
        assert process.versions["dual_attention"] == "0.0.7"
        assert process.versions["torch"] == torch.__version__


test_interpreters_that_are_refused = refused(
    (lambda make: make(version="0.0.8"), WorkerError, r"expected dual-attention==0\.0\.7, got 0\.0\.8"),
    (lambda _: sys.executable, WorkerError, r"dual-attention==0\.0\.7"),  # this library
    (lambda _: "/no/python", WorkerError, "cannot start /no/python"),
    by=lambda interpreter, *, make_published: Worker(interpreter(make_published)),
)


def test_what_a_worker_last_wrote_is_told(tmp_path: Path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho first >&2\necho 'no such module' >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(WorkerError, match="ended with status 3: no such module"):
        Worker(program)


@pytest.mark.slow
def test_a_worker_that_was_killed():
    with own_worker() as process:
        os.kill(process._process.pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match="ended by signal 9"):
            process.ask("hello")


def test_a_worker_ends_with_its_input_whatever_it_does():
    command = [sys.executable, str(HERE / "worker.py")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    process.stdin.write(b'{"ask": "hello", "arguments": {}}\n')  # it is now importing torch
    process.stdin.close()
    assert process.wait(timeout=60) == 0
