"""Checkpoints: weights as safetensors, and the state that continues training to the same numbers.

A checkpoint is a folder ``epoch-00012-step-00000123`` (``report-...`` where training goes by steps) that appears by one
rename, so weights and state always belong together: ``model.safetensors`` (weights and buffers) and ``state.pt``
(optimiser, random generators, position), a file that loads with ``weights_only=True``.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._extras import require

WEIGHTS = "model.safetensors"
STATE = "state.pt"


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the state dict of ``model`` to the safetensors file ``path``, atomically; tied tensors are written once."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    require("safetensors.torch", extra="train").save_model(model, str(temporary))
    os.replace(temporary, path)


def load_weights(model: nn.Module, path: Path) -> None:
    """Load the safetensors file ``path`` into ``model``."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file of weights")
    safetensors = require("safetensors.torch", extra="train")
    try:
        safetensors.load_model(model, str(path), strict=True)
    except Exception as error:  # the library raises RuntimeError and its own SafetensorError
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error


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
    """The checkpoints of one run; only the newest is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def latest(self) -> Path | None:
        """Folder of the newest checkpoint, or None."""
        return max(self._all(), default=None)

    def _all(self) -> list[Path]:
        return list(self.folder.glob("[!.]*-step-*"))

    def save(self, epoch: int, step: int, model: nn.Module, state: dict[str, Any], *, unit: str = "epoch") -> None:
        """Write the checkpoint of this position, unless it is there already, and remove older ones.

        Args:
            epoch, step: the position; all positions of a run count epochs, or other spans, by one ``unit``.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        target = self.folder / f"{unit}-{epoch:05d}-step-{step:08d}"
        if target.exists():
            return
        temporary = self.folder / f".{target.name}.{os.getpid()}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        save_weights(model, temporary / WEIGHTS)
        torch.save(state, temporary / STATE)
        os.replace(temporary, target)
        for old in self._all():
            if old != target:
                shutil.rmtree(old)

    def load(self, model: nn.Module, device: torch.device) -> dict[str, Any] | None:
        """Load the newest checkpoint's weights into ``model`` and return its state; None when there is none."""
        latest = self.latest()
        if latest is None:
            return None
        load_weights(model, latest / WEIGHTS)
        return torch.load(latest / STATE, map_location="cpu", weights_only=True)
