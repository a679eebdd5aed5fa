"""A run folder: everything about one run in one place, made once and never overwritten."""

from __future__ import annotations

import contextlib
import hashlib
import platform
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dual_attention._base.checksums import check_checksums, checksums_of, read_checksums, sha256_of, write_checksums
from dual_attention._base.files import folder_made_atomically, json_text, read_json_object, sync_file, write_atomically

from .checkpoint import NAME, WEIGHTS, Checkpoints
from .config_data import read_mapping
from .lock import locked


class RunFolder:
    """Paths of one run.

    ``config.yaml`` the configuration; ``metrics.jsonl`` and ``tensorboard/`` the numbers of every epoch;
    ``checkpoints/`` the newest checkpoints; ``model.safetensors`` the final weights; ``result.json`` the final
    numbers, present only when the run is finished; ``curves.png`` the plot; ``checksums.json`` the checksums of what
    the run began with and, when it is finished, of weights, metrics and numbers.
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

    @property
    def resuming(self) -> str:
        """The option that continues the run, as a shell takes it."""
        return f"--resume {shlex.quote(str(self.path))}"

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
        try:
            with folder_made_atomically(folder.path) as temporary:
                write_atomically(cls(temporary).config, config)
                if write is not None:
                    write(temporary)
                write_checksums(temporary, checksums_of(temporary))
        except OSError:
            folder.refuse_existing()  # another process has made it meanwhile
            raise
        return folder

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Context in which no other process trains in the folder, see :func:`~.lock.locked`."""
        return locked(self.path, self.checkpoints.folder.name)

    def check_ended(self) -> bool:
        """Check the files of a run that has ended; False for one that never did.

        Raises:
            FileNotFoundError, ValueError: naming a file of its end that is lost or damaged.
        """
        ended = self.finished or not {self.result.name, self.weights.name}.isdisjoint(read_checksums(self.path))
        if ended:
            self.read_result()
            self.check()
        return ended

    def check(self) -> None:
        """Compare all files of a finished run with their checksums, see :func:`check_checksums`."""
        check_checksums(self.path)

    def check_beginning(self) -> None:
        """The same for the files that the run began with, its configuration for instance."""
        ends = (self.metrics.name, self.weights.name, self.result.name)
        check_checksums(self.path, [name for name in read_checksums(self.path) if name not in ends])

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

    @classmethod
    def at(cls, path: str | Path) -> tuple[RunFolder, Path | None]:
        """The folder of a run and, if the path is ``RUN/checkpoints/NAME``, that checkpoint of it.

        Raises:
            FileNotFoundError: if there is no such checkpoint; it names those that there are.
        """
        folder = cls(Path(path).parent.parent)
        if Path(path).parent.name != folder.checkpoints.folder.name or not folder.config.is_file():
            return cls(path), None
        if not (NAME.fullmatch(Path(path).name) and Path(path).is_dir()):
            known = [checkpoint.name for checkpoint in folder.checkpoints.all()]
            raise FileNotFoundError(f"{path}: no checkpoint; expected one of {', '.join(known) or 'none'}")
        return folder, Path(path)

    def read_values(self) -> dict[str, Any]:
        """The keys and values of the configuration; ``ValueError`` naming the file, if it holds something else."""
        return read_mapping(self.config)

    def refuse_existing(self) -> None:
        """Raise FileExistsError, saying what to do, if there is anything at the path."""
        if self.finished:
            raise FileExistsError(f"{self.path}: a finished run is never overwritten; choose another --output.name")
        if self.config.exists():
            raise FileExistsError(
                f"{self.path}: there is an unfinished run; continue it with {self.resuming} or choose another "
                "--output.name"
            )
        if self.path.exists():
            raise FileExistsError(f"{self.path}: exists and is no run folder; choose another --output.name")

    def finish(self, result: dict[str, Any]) -> None:
        """Write the checksums, and then ``result.json``, the sign of a finished run.

        All other files are on the disk before it.
        """
        sync_file(self.metrics)
        text = json_text({**result, "versions": versions()}, indent=2) + "\n"
        own = {path.name: sha256_of(path) for path in (self.metrics, self.weights)}
        own[self.result.name] = hashlib.sha256(text.encode()).hexdigest()
        write_checksums(self.path, {**read_checksums(self.path), **own})
        write_atomically(self.result, text)

    def read_result(self) -> dict[str, Any]:
        """The final numbers of a finished run.

        Raises:
            FileNotFoundError: if the run is not finished.
            ValueError: if the file is damaged.
        """
        if not self.finished:
            raise FileNotFoundError(f"{self.path}: the run is not finished; continue it with {self.resuming}")
        check_checksums(self.path, [self.result.name])
        return read_json_object(self.result)


def versions() -> dict[str, str]:
    """Versions of what computes the numbers, and whether C kernels are part of it."""
    from dual_attention import __version__, native

    found = {"dual_attention": __version__, "torch": torch.__version__, "python": platform.python_version()}
    return {**found, "native": "enabled"} if native.is_enabled() else found
