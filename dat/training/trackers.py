"""Trackers of experiments as callbacks: TensorBoard, Weights & Biases, trackio. Each gets the rows of metrics."""

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from dual_attention._base.extras import require
from dual_attention._base.files import write_atomically

from .callbacks import Callback, RunView
from .configs import OutputConfig, check
from .metrics import Row

WANDB_ID = "wandb-id"
"""File of a run folder with the name by which Weights & Biases continues the run."""


def wandb_id(folder: Path) -> str | None:
    """The name by which Weights & Biases continues the run in a folder; None before it has one.

    Raises:
        ValueError: naming the file, if it is none of those that this library gives.
    """
    path = folder / WANDB_ID
    if not path.is_file():
        return None
    text = path.read_bytes()[:100].decode(errors="replace").strip()
    check(bool(re.fullmatch("[0-9a-f]{16}", text)), str(path), "16 digits from 0 to f", text)
    return text


def check_trackers(output: OutputConfig) -> None:
    """Raise ``ImportError`` with the extra to install, if a tracker is asked for that is not."""
    if output.tracker is not None:
        require(output.tracker, extra=output.tracker)


def trackers_of(output: OutputConfig, folder: Path, last_step: int | None) -> list[tuple[str, Callback]]:
    """The trackers of a run, each with its name.

    Args:
        folder: for the event files of TensorBoard.
        last_step: of the rows that are there already, None without any.
    """
    found: list[tuple[str, Callback]] = []
    if output.tensorboard:
        found.append(("TensorBoard", TensorBoard(folder, last_step)))
    if output.tracker is not None:
        kind = {"wandb": WandB, "trackio": Trackio}[output.tracker]
        found.append((f"output.tracker {output.tracker}", kind()))
    return found


def grouped(row: Row) -> dict[str, float]:
    """The numbers of a row that are no integers, those of a set under its name: ``val/loss``."""
    return {name.replace("_", "/", 1): value for name, value in row.items() if isinstance(value, float)}


class TensorBoard(Callback):
    """Event files; what is in them after ``last_step`` is taken back."""

    rows_only = True

    def __init__(self, folder: Path, last_step: int | None) -> None:
        require("tensorboard", extra="train")
        writer = require("torch.utils.tensorboard", extra="train").SummaryWriter
        self._writer = writer(str(folder), purge_step=0 if last_step is None else last_step + 1)

    def on_step(self, run: RunView, row: Row | None) -> None:
        for name, value in grouped(row or {}).items():
            self._writer.add_scalar(name, value, run.step)

    def on_end(self, run: RunView, numbers: Mapping[str, float] | None) -> None:
        self._writer.close()


class Tracker(Callback, ABC):
    """A tracker with runs that get names and settings. Its run begins with the first row: it may need the network."""

    rows_only = True

    def __init__(self) -> None:
        self._run: Any = None

    def on_step(self, run: RunView, row: Row | None) -> None:
        if row is None:
            return
        if self._run is None:
            own = re.sub(r"[/\\#?%:]+", "-", Path(run.config.experiment).name)  # Weights & Biases refuses these marks
            project = run.config.output.project or own
            settings = asdict(cast(Any, run.config))
            self._run = self.begin(run.folder, project=project, name=run.folder.name, config=settings, resume="allow")
        self._run.log(grouped(row), step=run.step)

    def on_end(self, run: RunView, numbers: Mapping[str, float] | None) -> None:
        if self._run is None:
            return
        if numbers is not None:
            self._run.log({f"final/{name}": value for name, value in numbers.items()}, step=run.step)
        self._run.finish()

    @abstractmethod
    def begin(self, folder: Path, **about: Any) -> Any:
        """Begin a run of the tracker, or continue it; returns an object with the methods ``log`` and ``finish``."""


class WandB(Tracker):
    """Weights & Biases."""

    def begin(self, folder: Path, **about: Any) -> Any:
        name = wandb_id(folder)
        if name is None:
            write_atomically(folder / WANDB_ID, name := secrets.token_hex(8))
        return require("wandb", extra="wandb").init(**about, id=name, dir=str(folder))


class Trackio(Tracker):
    """trackio, which keeps its runs on this machine. Rows that are computed again after a stop are there twice."""

    def begin(self, folder: Path, **about: Any) -> Any:
        return require("trackio", extra="trackio").init(**about)
