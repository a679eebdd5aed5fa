"""A run folder: everything about one run in one place, made once and never overwritten."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .._extras import require
from .._files import read_json, write_atomically, write_json
from .checkpoint import WEIGHTS, Checkpoints


class RunFolder:
    """Paths of one run.

    ``config.yaml`` the configuration; ``metrics.jsonl`` and ``tensorboard/`` the numbers of every epoch;
    ``checkpoints/`` the newest checkpoint; ``model.safetensors`` the final weights; ``result.json`` the final
    numbers, present only when the run is finished; ``curves.png`` the plot.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.checkpoints = Checkpoints(self.path / "checkpoints")
        self.weights = self.path / WEIGHTS
        self.result = self.path / "result.json"
        self.curves = self.path / "curves.png"

    @property
    def finished(self) -> bool:
        """Whether the run went to its end."""
        return self.result.exists()

    @classmethod
    def create(cls, path: str | Path, config: str, write: Callable[[Path], None] | None = None) -> RunFolder:
        """Make the folder and write ``config`` (YAML text) into it.

        Args:
            write: called with a folder to write further files into; the run folder appears when all are written.

        Raises:
            FileExistsError: if there is anything at ``path``; it is left untouched.
        """
        folder = cls(path)
        folder.refuse_existing()
        folder.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = folder.path.with_name(f".{folder.path.name}.{os.getpid()}.tmp")
        try:
            temporary.mkdir()
            write_atomically(cls(temporary).config, config)
            if write is not None:
                write(temporary)
            os.rename(temporary, folder.path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return folder

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """An existing run folder.

        Raises:
            FileNotFoundError: if it is none.
        """
        folder = cls(path)
        if not folder.config.is_file():
            raise FileNotFoundError(f"{path}: not a run folder (it has no config.yaml)")
        return folder

    def read_values(self) -> dict[str, Any]:
        """The keys and values of the configuration; none if it holds something else.

        Raises:
            ValueError: if it is not YAML.
        """
        yaml = require("yaml", extra="train")
        try:
            values = yaml.safe_load(self.config.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.config}: not a configuration ({' '.join(str(error).split())})") from error
        return values if isinstance(values, dict) else {}

    def refuse_existing(self) -> None:
        """Raise FileExistsError, saying what to do, if there is anything at the path."""
        if self.finished:
            raise FileExistsError(f"{self.path}: a finished run is never overwritten; choose another --output.name")
        if self.config.exists():
            raise FileExistsError(
                f"{self.path}: there is an unfinished run; continue it with --resume {self.path} or choose another "
                "--output.name"
            )
        if self.path.exists():
            raise FileExistsError(f"{self.path}: exists and is no run folder; choose another --output.name")

    def finish(self, result: dict[str, Any]) -> None:
        """Write ``result.json``, the sign of a finished run."""
        write_json(self.result, {**result, "versions": versions()})

    def read_result(self) -> dict[str, Any]:
        """The final numbers of a finished run.

        Raises:
            FileNotFoundError: if the run is not finished.
        """
        if not self.finished:
            raise FileNotFoundError(f"{self.path}: the run is not finished; continue it with --resume {self.path}")
        return read_json(self.result)


def versions() -> dict[str, str]:
    """Versions of what computes the numbers."""
    from .. import __version__

    return {"dual_attention": __version__, "torch": torch.__version__, "python": platform.python_version()}
