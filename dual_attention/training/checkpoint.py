"""Checkpoints: weights as safetensors, and the state that continues training to the same numbers.

A checkpoint is a folder ``epoch-00012-step-00000123`` (``report-...`` where training goes by steps) that appears by one
rename, when all of it is on the disk, so weights and state always belong together: ``model.safetensors`` (weights and
buffers), ``state.pt`` (optimiser, random generators, position), a file that loads with ``weights_only=True``, and
``checksums.json``.
"""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from .._checksums import check_checksums, write_checksums
from .._files import first_line, named_in_errors, replaced_atomically, sync_folder, temporary_path
from .weights_file import load_weights, save_weights

WEIGHTS = "model.safetensors"
STATE = "state.pt"
KEPT = 2
"""Checkpoints that are kept: the newest, and the one before it in case the newest is damaged."""
_NAME = re.compile(r"[a-z]+-\d{5,}-step-\d{8,}")


def random_state(device: torch.device) -> dict[str, Tensor]:
    """States of the global random generators that dropout draws from."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(state: dict[str, Tensor], device: torch.device) -> None:
    """Put the generators back into a state from :func:`random_state`."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


class Checkpoints:
    """The checkpoints of one run; the newest two are kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def latest(self) -> Path | None:
        """Folder of the newest checkpoint, or None."""
        return (self._all() or [None])[-1]

    def _all(self) -> list[Path]:
        """Folders of the checkpoints, oldest first; an error of the system, if they cannot be listed."""
        if not self.folder.exists():
            return []
        return sorted(path for path in self.folder.iterdir() if _NAME.fullmatch(path.name))

    def save(
        self, epoch: int, step: int, weights: Mapping[str, Tensor], state: dict[str, Any], *, unit: str = "epoch"
    ) -> None:
        """Write the checkpoint of this position, unless it is there already, and remove older ones but the last.

        Nothing is removed before the new one is on the disk.

        Args:
            epoch, step: the position; all positions of a run count epochs, or other spans, by one ``unit``.
            weights: the state dict of the model.
        """
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True)
            sync_folder(self.folder.parent)
        target = self.folder / f"{unit}-{epoch:05d}-step-{step:08d}"
        if target.exists():
            return
        temporary = temporary_path(target)
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir()
            checksums = {WEIGHTS: save_weights(weights, temporary / WEIGHTS)}
            with replaced_atomically(temporary / STATE) as file:
                torch.save(state, cast(Any, file))
            write_checksums(temporary, {**checksums, STATE: file.digest()})
            with named_in_errors(target, written_as=temporary):
                os.replace(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        sync_folder(self.folder)
        for old in self._all()[:-KEPT]:
            os.replace(old, temporary_path(old))  # so that what is half-removed is no checkpoint
            shutil.rmtree(temporary_path(old))

    def load(self, model: nn.Module, check: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any] | None:
        """Load the newest checkpoint's weights into ``model`` and return its state; None when there is none.

        Args:
            check: called with the state before anything is loaded; raises ``ValueError`` if it cannot be used.

        Raises:
            ValueError, FileNotFoundError: naming the file and the way out, if the checkpoint is damaged or not of this
                run. The model is as it was then.
        """
        latest = self.latest()
        if latest is None:
            return None
        try:
            check_checksums(latest)
            state = read_state(latest / STATE)
            if check is not None:
                try:
                    check(state)
                except ValueError as error:
                    raise ValueError(f"{latest / STATE}: {error}") from error
            load_weights(model, latest / WEIGHTS)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}; {self._way_out(latest)}") from error
        except ValueError as error:
            raise ValueError(f"{error}; {self._way_out(latest)}") from error
        return state

    def _way_out(self, damaged: Path) -> str:
        """Sentence on how to continue without the newest checkpoint."""
        older = [path.name for path in self._all() if path != damaged]
        before = f"continue from {older[-1]}, the checkpoint before it" if older else "train from the start"
        return f"remove the folder {damaged} to {before}"


def read_state(path: Path) -> dict[str, Any]:
    """The state in a ``state.pt``, without running any code that it holds.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming the file, if it is damaged, or more than data.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        with zipfile.ZipFile(path) as archive:  # torch.save stores as it is; something compressed may grow without end
            stored = all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.infolist())
        state = torch.load(path, map_location="cpu", weights_only=True) if stored else None
    except Exception as error:  # bytes may be anything, and so may be what reading them raises
        raise ValueError(f"{path}: damaged, or no state of training ({first_line(error)})") from error
    if not isinstance(state, dict):
        raise ValueError(f"{path}: damaged, or no state of training")
    return state
