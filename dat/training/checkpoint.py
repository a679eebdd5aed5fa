"""Checkpoints: weights as safetensors, and the state that continues training to the same numbers.

A checkpoint is a folder ``epoch-00012-step-00000123`` (``report-...`` where training goes by steps) that appears by one
rename, when all of it is on the disk, so weights and state always belong together: ``model.safetensors`` (weights and
buffers), ``state.pt`` (optimiser, random generators, position), a file that loads with ``weights_only=True``, and
``checksums.json``. Of a model that processes share, each writes its part of weights and optimiser, in the folder
``shards`` in place of ``model.safetensors`` (:mod:`.sharded_checkpoint`).
"""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from dual_attention._base.checksums import check_checksums, read_checksums, write_checksums
from dual_attention._base.files import (
    first_line,
    named_in_errors,
    remove,
    replaced_atomically,
    sync_folder,
    temporary_path,
)

from .distributed import ALONE, Workers
from .parts import SHARDS
from .sharding import local
from .weights_file import Misfit, load_weights, save_weights

if TYPE_CHECKING:
    from .sharded_checkpoint import Saving

WEIGHTS = "model.safetensors"
STATE = "state.pt"
KEPT = 2
"""Checkpoints that are kept in any case: the newest, and the one before it in case the newest is damaged."""
OTHER_SETTINGS = "if the run has other settings now than it was trained with, restore them, or train in a new folder"
"""The way out with a checkpoint that is whole."""
NAME = re.compile(r"[a-z]+-(?P<span>\d{5,})-step-(?P<step>\d{8,})")
"""Names of checkpoints."""


def step_of(checkpoint: Path) -> int | None:
    """Steps that were done at a checkpoint, by its name; None if it is the name of none."""
    match = NAME.fullmatch(checkpoint.name)
    return None if match is None else int(match["step"])


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
    """The checkpoints of one run; the newest two are kept, and those of milestones.

    Attributes:
        milestones: steps whose checkpoints are kept, too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.milestones: Set[int] = frozenset()

    def latest(self) -> Path | None:
        """Folder of the newest checkpoint, or None."""
        return (self.all() or [None])[-1]

    def all(self) -> list[Path]:
        """Folders of the checkpoints, oldest first; an error of the system, if they cannot be listed."""
        if not self.folder.exists():
            return []
        found = [(match, path) for path in self.folder.iterdir() if (match := NAME.fullmatch(path.name))]
        return [path for match, path in sorted(found, key=lambda one: (int(one[0]["span"]), int(one[0]["step"])))]

    def save(
        self, epoch: int, step: int, weights: Mapping[str, Tensor], state: dict[str, Any], *, unit: str = "epoch"
    ) -> None:
        """Write the checkpoint of this position, unless it is there already, and remove older ones that are not kept.

        Nothing is removed before the new one is on the disk.

        Args:
            epoch, step: the position; all positions of a run count epochs, or other spans, by one ``unit``.
            weights: the state dict of the model.
        """
        target = self.begin(epoch, step, unit)
        if target is None:
            return
        try:
            self.finish(target, {WEIGHTS: save_weights(weights, temporary_path(target) / WEIGHTS)}, state)
        finally:
            shutil.rmtree(temporary_path(target), ignore_errors=True)

    def begin(self, epoch: int, step: int, unit: str) -> Path | None:
        """Make an empty folder for the checkpoint of a position, the temporary one of the path that is returned.

        Returns:
            Where the checkpoint will be; None if it is there already.
        """
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True)
            sync_folder(self.folder.parent)
        target = self.folder / f"{unit}-{epoch:05d}-step-{step:08d}"
        if target.exists():
            return None
        shutil.rmtree(temporary_path(target), ignore_errors=True)
        with named_in_errors(target, written_as=temporary_path(target)):
            temporary_path(target).mkdir()
        return target

    def finish(self, target: Path, checksums: Mapping[str, str], state: dict[str, Any]) -> None:
        """Add the state to what is in the temporary folder of a checkpoint, give it its name, and remove older ones.

        Args:
            target: what :meth:`begin` returned.
            checksums: of the files that are there, whose contents are on the disk.

        Raises:
            ValueError: if a file is not as it was written; older checkpoints are left then.
        """
        temporary = temporary_path(target)
        with replaced_atomically(temporary / STATE) as file:
            torch.save(state, cast(Any, file))
        write_checksums(temporary, {**checksums, STATE: file.digest()})
        with named_in_errors(target, written_as=temporary):
            os.replace(temporary, target)
        sync_folder(self.folder)
        too_many = [path for path in self.all()[:-KEPT] if step_of(path) not in self.milestones]
        if too_many:  # parts were compared by the processes that wrote them
            check_checksums(target, [name for name in (WEIGHTS, STATE) if (target / name).is_file()])
        for old in too_many:
            os.replace(old, temporary_path(old))  # so that what is half-removed is no checkpoint
            remove(temporary_path(old))

    def load(
        self,
        model: nn.Module,
        check: Callable[[dict[str, Any]], None] | None = None,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        workers: Workers = ALONE,
        source: Path | None = None,
    ) -> dict[str, Any] | None:
        """Load the newest checkpoint's weights into ``model`` and return its state; None when there is none.

        Args:
            source: the checkpoint to load, of another run, in place of the newest of this one.
            check: called with the state before anything is loaded; raises ``ValueError`` if it cannot be used.
            optimizer: whose state is that of ``model``; needed where processes have written parts of both.
            workers: the processes, each of which loads its part.

        Raises:
            ValueError, FileNotFoundError: naming the file and the way out, if the checkpoint is damaged or not of this
                run. The model is as it was then.
        """
        latest, names = source or self.latest(), []
        if latest is None:
            return None
        try:
            names = sorted(read_checksums(latest))
            check_checksums(latest, names[workers.rank :: workers.size])  # each of the processes some of the files
            workers.barrier()
            state = read_state(latest / STATE)
            weights = None
            if (latest / SHARDS).is_dir():
                weights = self._read_parts(latest, state, model, optimizer, workers)
            if check is not None:
                try:
                    check(state)
                except ValueError as error:
                    raise Misfit(f"{latest / STATE}: {error}") from error
            if weights is None:
                load_weights(model, latest / WEIGHTS)
            else:
                use_weights(model, weights)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}; {self._way_out(latest)}") from error
        except ValueError as error:
            advice = self._way_out(latest)
            if isinstance(error, Misfit) and source is None:
                advice = f"{OTHER_SETTINGS}{'' if names else f'; if it is damaged, {advice}'}"
            raise ValueError(f"{error}; {advice}") from error
        return state

    @staticmethod
    def _read_parts(
        latest: Path, state: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer | None, workers: Workers
    ) -> dict[str, Tensor]:
        """Weights of a checkpoint that was written in parts; its state gets those of the optimiser."""
        from .sharded_checkpoint import read_parts

        if optimizer is None:
            raise ValueError(f"{latest}: written in parts by several processes; continue the run to read it")
        weights, state["optimizer"] = read_parts(latest / SHARDS, model, optimizer, state.get("optimizer"), workers)
        return weights

    def _way_out(self, damaged: Path) -> str:
        """Sentence on how to continue without a checkpoint."""
        if damaged.parent != self.folder:
            return "name another checkpoint in loop.continue_from"
        older = [path.name for path in self.all() if path != damaged]
        before = f"continue from {older[-1]}, the checkpoint before it" if older else "train from the start"
        return f"remove the folder {damaged} to {before}"


class PartsWriter:
    """Writes the checkpoints of a training, one at a time; all processes call each method at once.

    Args:
        checkpoints: where they go; only the first process makes and names folders.
        workers: the processes.
    """

    def __init__(self, checkpoints: Checkpoints, workers: Workers) -> None:
        self._checkpoints, self._workers = checkpoints, workers
        self._saving: tuple[Path | None, Saving, dict[str, Any]] | None = None

    def begin(
        self,
        position: tuple[int, int, str],
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        state: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> None:
        """Begin to write the checkpoint of a position, unless it is there already; the one before is finished first.

        Args:
            position: arguments of :meth:`Checkpoints.begin`.
            state: the state of training from that of the optimiser; called in the first process.
        """
        self.finish()
        from .sharded_checkpoint import Saving, parts_of

        first = self._workers.first
        target = self._checkpoints.begin(*position) if first else None
        folder = self._workers.from_first(None if target is None else str(temporary_path(target)))
        if folder is None:
            return
        tensors, of_optimizer = parts_of(model, optimizer)
        saving = Saving(Path(folder), tensors, self._workers)
        self._saving = target, saving, state(of_optimizer) if first else {}

    def look(self) -> None:
        """Finish what was begun if all processes have written their parts."""
        if self._saving is not None and not self._workers.any(not self._saving[1].written):
            self.finish()

    def finish(self) -> None:
        """Wait until what was begun is written, and give it its name."""
        if self._saving is None:
            return
        (target, saving, state), self._saving = self._saving, None
        try:
            digests = saving.digests()
            if target is not None:
                self._checkpoints.finish(target, digests, state)
        finally:
            if target is not None:
                shutil.rmtree(saving.folder, ignore_errors=True)
        self._workers.barrier()


def use_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Put weights from :func:`read_parts` into the model."""
    own = model.state_dict(keep_vars=True)
    with torch.no_grad():
        for name, value in weights.items():
            local(own[name]).copy_(local(value))


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
