"""Sides of a comparison, here or in another process, under one interface."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import torch
from torch import Tensor

from benchmarks.runner import Quantity
from benchmarks.work import Settings, Work

HERE = Path(__file__).resolve().parent


class Side(Protocol):
    """Interface of a side; see :class:`benchmarks.runner.Runner`."""

    def values(self, quantity: Quantity) -> dict[str, Tensor]: ...
    def sample(self, quantity: Quantity, number: int) -> float: ...
    def memory(self, quantity: Quantity) -> Mapping[str, int | None]: ...
    def traffic(self, quantity: Quantity) -> int: ...


class WorkerError(RuntimeError):
    """A worker could not do what it was asked, or has ended."""


class Worker:
    """A process that runs ``worker.py``.

    Args:
        python: its interpreter.
        source: folder with the ``dual_attention`` to measure; None for the published package installed there.
    """

    def __init__(self, python: str | Path, source: Path | None = None) -> None:
        command = [str(python), str(HERE / "worker.py"), *(["--source", str(source)] if source else [])]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=environment,
                start_new_session=True,  # an interrupt from the keyboard is for us; we then end the worker
            )
        except OSError as error:
            self._errors.close()
            raise WorkerError(f"cannot start {python}: {error.strerror}") from None
        try:
            self.versions: dict[str, str] = self.ask("hello")
        except BaseException:
            self.close()
            raise

    def ask(self, what: str, **arguments: Any) -> Any:
        """Answer to one request.

        Raises:
            WorkerError: with its message, if that failed there, or with what the process last wrote, if it ended.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        try:
            stdin.write(json.dumps({"ask": what, "arguments": arguments}).encode() + b"\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise WorkerError(self._obituary())
        reply = json.loads(line)
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply["answer"]

    def _obituary(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"the worker {how}" + (f": {lines[-1]}" if lines else " (out of memory?)" if status == -9 else "")

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RemoteSide:
    """A side that a worker runs.

    Args:
        worker: one that is free: it holds one module at a time.
        tensors: file with what :class:`Runner` takes.
        folder: for files with values.
    """

    def __init__(self, worker: Worker, work: Work, settings: Settings, tensors: Path, folder: Path) -> None:
        self._worker, self._folder = worker, folder
        worker.ask("load", work=work.to_json(), settings=asdict(settings), tensors=str(tensors))

    def values(self, quantity: Quantity) -> dict[str, Tensor]:
        path = self._folder / "values.pt"
        try:
            self._worker.ask("values", quantity=quantity, path=str(path))
            return torch.load(path, weights_only=True)
        finally:
            path.unlink(missing_ok=True)

    def sample(self, quantity: Quantity, number: int) -> float:
        return self._worker.ask("sample", quantity=quantity, number=number)

    def memory(self, quantity: Quantity) -> dict[str, int | None]:
        return self._worker.ask("memory", quantity=quantity)

    def traffic(self, quantity: Quantity) -> int:
        return self._worker.ask("traffic", quantity=quantity)


def own_worker() -> Worker:
    """Worker of this interpreter and this checkout."""
    return Worker(sys.executable, HERE.parent)
