"""Lines that a run prints where there is no terminal."""

from __future__ import annotations

from dat.training.configs import StepLoopConfig
from dat.training.plan import StepPlan
from dat.training.progress import LineProgress


def test_no_line_with_a_validation_waits_for_one_without(capsys):
    progress = LineProgress(seconds=3600.0)
    progress.start(StepPlan(StepLoopConfig(steps=6)), 0)
    for step in range(1, 7):
        validation = {"val_loss": 0.5} if step % 2 == 0 else {}
        progress.row({"epoch": step, "step": step, "train_loss": 1.0, **validation})
    lines = capsys.readouterr().out.splitlines()
    assert ["val loss" in line for line in lines] == [True, True]  # the first validation, and the end
