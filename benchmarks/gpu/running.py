"""A step in processes of its own, ended when its minutes are over.

What hangs, or takes the device with it, costs an item and not the day.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.gpu.plan import Phase, Result, Setting, Step
from benchmarks.gpu.record import Record

ROOT = Path(__file__).resolve().parents[2]


class Run:
    """One call of a step.

    Args:
        seconds: it may take.
        say: takes one line about progress.
    """

    def __init__(
        self, step: Step, setting: Setting, record: Record, seconds: float, say: Callable[[str], None]
    ) -> None:
        self.step, self.setting, self.record, self.say = step, setting, record, say
        self.end = time.monotonic() + seconds
        self._children: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()

    def over(self) -> bool:
        return time.monotonic() >= self.end

    def __call__(self) -> int:
        """Measure what is not measured yet; returns how many items were not reached."""
        phases = self.step.phases(self.setting)
        start = time.monotonic()
        alarm = threading.Timer(max(0.0, self.end - start), self.kill)
        alarm.start()
        try:
            for phase in phases:
                self.run_phase(phase)
        finally:
            alarm.cancel()
            self.kill()
            self.record.spend(time.monotonic() - start)
        keys = [item.key for phase in phases for item in phase.items]
        return sum(self.record.items.get(key, {}).get("status", "unfinished") == "unfinished" for key in keys)

    def run_phase(self, phase: Phase) -> None:
        keys = [item.key for item in phase.items if not self.record.finished(item.key)]
        keys.sort(key=lambda key: key in self.record.items)  # what was ended before does not keep the others waiting
        shares = [keys[first :: phase.processes] for first in range(min(phase.processes, len(keys)))]
        if shares:
            with ThreadPoolExecutor(len(shares)) as pool:
                try:
                    for done in [pool.submit(self.run_share, share) for share in shares]:
                        done.result()
                except BaseException:  # an interrupt: the pool would wait for the processes
                    self.end = 0.0
                    self.kill()
                    raise

    def run_share(self, keys: Sequence[str]) -> None:
        """Items one after another, in a fresh process after each that ended its own."""
        while keys and not self.over():
            reached, obituary = self.run_process(keys)
            if not reached:  # not even its imports
                self.put(keys[0], {"status": "failed", "note": obituary})
            keys = keys[max(1, reached) :]

    def run_process(self, keys: Sequence[str]) -> tuple[int, str]:
        """Items until the process ends: how many it has begun, and how it ended."""
        begun, running = 0, None
        task = {"step": self.step.name, "setting": self.setting.to_json(), "keys": list(keys)}
        with tempfile.TemporaryFile("w+") as errors, self.child(task, errors) as child:
            for line in child.stdout or ():
                told = json.loads(line)
                if "begin" in told:
                    begun, running = begun + 1, told["begin"]
                else:
                    self.put(told["key"], told["result"])
                    running = None
            status = child.wait()
            errors.seek(0)
            last = errors.read().strip().splitlines()[-1:]
        how = f"the process was ended by signal {-status}" if status < 0 else f"the process ended with status {status}"
        obituary = ": ".join([how, *last])[:500]
        if running is not None:
            over = {"status": "unfinished", "note": "the step was ended"}
            self.put(running, over if self.over() else {"status": "failed", "note": obituary})
        return begun, obituary

    @contextlib.contextmanager
    def child(self, task: dict[str, Any], errors: Any):
        """The process of a task, which does not outlive the block."""
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu.process", json.dumps(task)],
            cwd=ROOT,
            env=environment(self.setting),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # so that it can be ended with all that it started
        )
        with self._lock:
            self._children.add(child)
        if self.over():
            self.kill()
        try:
            with child:
                yield child
        finally:
            with self._lock:
                self._children.discard(child)

    def kill(self) -> None:
        """End all processes at once."""
        with self._lock:
            for child in self._children:
                if child.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(child.pid, signal.SIGKILL)

    def put(self, key: str, result: Result) -> None:
        self.record.put(key, result)
        self.say(f"{key}: {told(result)}")


def environment(setting: Setting) -> dict[str, str]:
    """That of a process: the checkout's own packages; Triton's interpreter without a GPU and never with one."""
    found = {**os.environ, "PYTHONPATH": str(ROOT)}
    found.pop("TRITON_INTERPRET", None)
    return found if setting.device == "cuda" else {**found, "TRITON_INTERPRET": "1"}


def told(result: Result) -> str:
    """A result in one line."""
    if result["status"] != "measured":
        return f"{result['status']}: {result.get('note', '')}"
    wrong = "WRONG: " if result.get("agrees") is False else ""
    return wrong + result.get("says", "done")
