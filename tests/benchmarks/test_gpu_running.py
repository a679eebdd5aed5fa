"""Processes and minutes of the day on a GPU, with a step that is not of the day."""

import importlib.util
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import process, running
from benchmarks.gpu.plan import Item, LeftOut, Phase, Setting, Step
from benchmarks.gpu.record import Record
from benchmarks.gpu.running import Run

from .conftest import ROOT

DRY = Setting("cpu", dry_run=True)
ABOUT = {"step": "fake", "device": "cpu", "versions": {}, "dry_run": True, "git": {"commit": "abc"}}


FAKE = """
import os, time
from benchmarks.gpu.plan import Item, LeftOut, Phase, Step

def leave_out():
    raise LeftOut("not here")

def fail():
    raise ValueError("no good")

def note(name):
    with open(os.environ["NOTES"], "a") as file:
        file.write(name + "\\n")
    return {"says": name}

def hang():
    note("hangs")
    time.sleep(600)

def phases(setting):
    kinds = os.environ["KINDS"].split(",")
    does = {
        "left out": leave_out, "fails": fail, "dies": lambda: os._exit(9), "hangs": hang,
        "device": lambda: (_ for _ in ()).throw(RuntimeError("CUDA error: an illegal memory access")),
        "process": lambda: {"says": str(os.getpid())},
    }
    return [Phase([Item(f"{i} {kind}", does.get(kind, lambda k=kind: note(k))) for i, kind in enumerate(kinds)])]

STEP = Step("fake", 1, "a fake", phases)
"""


WITHOUT_TORCH = """
import sys, types

cuda = types.SimpleNamespace(is_available=lambda: False)
sys.modules["torch"] = types.SimpleNamespace(OutOfMemoryError=MemoryError, set_num_threads=lambda _: None, cuda=cuda)
import fake_step
sys.modules["benchmarks.gpu.fake"] = fake_step
from benchmarks.gpu.process import main
main()
"""
"""The process of a fake step, which starts at once."""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, Record, list[str]]]:
    """Runs a step of named kinds of items within some seconds: missing items, the record, lines said."""
    module = tmp_path / "packages"
    module.mkdir()
    (module / "fake_step.py").write_text(FAKE)
    (module / "start.py").write_text(WITHOUT_TORCH)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nshift 2\nPYTHONPATH={module}:{ROOT} exec {sys.executable} -m start "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(running.sys, "executable", str(python))
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    (tmp_path / "notes").touch()
    spec = importlib.util.spec_from_file_location("fake_step", module / "fake_step.py")
    assert spec and spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)

    def run(kinds: str, seconds: float = 120.0) -> tuple[int, Record, list[str]]:
        monkeypatch.setenv("KINDS", kinds)
        record, said = Record(tmp_path / "fake.json", ABOUT), []
        return Run(loaded.STEP, DRY, record, seconds, said.append)(), record, said

    return run


def test_what_fails_or_dies_costs_one_item(fake, tmp_path: Path):
    missing, record, said = fake("a,fails,dies,left out,device,b")
    assert missing == 0
    found = {key[2:]: result for key, result in record.items.items()}
    assert [result["status"] for result in found.values()] == [
        *("measured", "failed", "failed", "left out", "failed", "measured")
    ]
    assert found["fails"]["note"] == "ValueError: no good"
    assert found["dies"]["note"].startswith("the process ended with status 9")
    assert found["left out"]["note"] == "not here"
    assert {result["commit"] for result in found.values()} == {"abc"}
    assert said[0] == "0 a: a" and said[-1] == "5 b: b"

    _, record, said = fake("a,fails,dies,left out,device,b")  # again: only what failed
    assert [line[2:].split(":")[0] for line in said] == ["fails", "dies", "device"]
    assert (tmp_path / "notes").read_text() == "a\nb\n"


def test_a_device_that_is_broken_gets_a_fresh_process(fake):
    _, record, _ = fake("process,process,device,process")
    first, second, _, third = (result.get("says") for result in record.items.values())
    assert first == second != third


@pytest.mark.slow
def test_minutes_are_enforced_and_the_next_call_goes_on(fake, tmp_path: Path):
    start = time.monotonic()
    missing, record, _ = fake("a,hangs,b", seconds=3.0)
    assert time.monotonic() - start < 20
    assert missing == 2
    assert record.items["1 hangs"]["status"] == "unfinished"
    assert record.items["1 hangs"]["note"] == "the step was ended"
    assert json.loads((tmp_path / "fake.json").read_text())["items"] == record.items

    missing, record, said = fake("a,hangs,b", seconds=3.0)  # what hung comes last
    assert missing == 1
    assert said[0] == "2 b: b"
    assert (tmp_path / "notes").read_text() == "a\nhangs\nb\nhangs\n"


def test_an_interrupt_ends_all_processes(fake, tmp_path: Path):
    """What was measured is kept."""

    def interrupt():
        notes = tmp_path / "notes"
        while not (notes.exists() and "hangs" in notes.read_text()):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which tests in the background have not
    threading.Thread(target=interrupt, daemon=True).start()
    start = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            fake("a,hangs,b")
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - start < 60
    items = json.loads((tmp_path / "fake.json").read_text())["items"]
    assert {key: item["status"] for key, item in items.items()} == {"0 a": "measured", "1 hangs": "unfinished"}


def test_no_seconds_measure_nothing(fake, tmp_path: Path):
    missing, record, _ = fake("a,b", seconds=0.0)
    assert missing == 2 and not record.items and not (tmp_path / "notes").read_text()


def test_a_process_that_cannot_start(fake, tmp_path: Path):
    (tmp_path / "packages" / "fake_step.py").write_text("raise ImportError('nothing here')")
    missing, record, _ = fake("a,b")
    assert missing == 0
    assert all("nothing here" in result["note"] for result in record.items.values())
    assert {result["status"] for result in record.items.values()} == {"failed"}


def test_results_by_status(monkeypatch: pytest.MonkeyPatch):
    def out_of_memory():
        raise torch.OutOfMemoryError("CUDA out of memory")

    def left_out():
        raise LeftOut("no such kernel")

    results = [process.measure(Item("key", run))[0] for run in (out_of_memory, left_out, dict)]
    assert [result.pop("seconds") >= 0 for result in results] == [True] * 3
    assert results == [
        {"status": "left out", "note": "out of memory"},
        {"status": "left out", "note": "no such kernel"},
        {"status": "measured"},
    ]


def test_phases_share_their_items(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Each item once, in as many processes as a phase may have, a phase after another."""
    shares: list[list[str]] = []

    class Shared(Run):
        def run_share(self, keys):
            shares.append(list(keys))

    phases = [Phase([Item(name, dict) for name in "abcde"], processes=2), Phase([Item("f", dict)], processes=3)]
    step = Step("fake", 1, "a fake", lambda _: phases)
    record = Record(tmp_path / "fake.json", ABOUT)
    record.put("c", {"status": "left out"})
    record.put("a", {"status": "failed"})
    assert Shared(step, DRY, record, 60.0, print)() == 4
    assert sorted(shares[:2]) == [["b", "e"], ["d", "a"]] and shares[2:] == [["f"]]
