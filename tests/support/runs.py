"""Runs that are asked to stop, and runs that are to be equal."""

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dat.training.interrupt import Interrupted, StopOnSignal
from dat.training.loop import Trainer
from dat.training.metrics import OF_THE_MACHINE, read_rows
from dat.training.run_folder import RunFolder


@contextmanager
def stopping(looks: int) -> Iterator[None]:
    """What trains in here is asked to stop when it looks whether it is for the ``looks + 1``-th time."""
    counter = itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StopOnSignal, "__call__", lambda _: next(counter) >= looks)
        yield


@contextmanager
def interrupted(looks: int) -> Iterator[None]:
    """What trains in here stops at that look."""
    with stopping(looks), pytest.raises(Interrupted):
        yield


@contextmanager
def failing_at(step: int) -> Iterator[None]:
    """What trains in here fails once it has taken so many steps, without a chance to save."""
    take = Trainer.train_step
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(Trainer, "train_step", lambda self, *args: take(self, *args) if self.step < step else 1 / 0)
        yield


def fit_until_stopped(trainer: Trainer, *arguments: Any) -> Trainer:
    """The same trainer once its own condition has stopped it."""
    with pytest.raises(Interrupted):
        trainer.fit(*arguments)
    return trainer


def without_time(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of metrics without what differs between equal runs."""
    return [{key: value for key, value in row.items() if key not in OF_THE_MACHINE} for row in rows]


def assert_same_run(found: RunFolder, expected: RunFolder) -> None:
    """Weights and rows to the bit."""
    assert found.weights.read_bytes() == expected.weights.read_bytes()
    assert without_time(read_rows(found.metrics)) == without_time(read_rows(expected.metrics))
