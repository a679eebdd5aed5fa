"""What a run shows of its progress: lines where there is no terminal, and a bar on one."""

import io
import re
import sys

import pytest

from dat.training.configs import LoopConfig, StepLoopConfig
from dat.training.plan import EpochPlan, StepPlan
from dat.training.progress import BarProgress, LineProgress


def test_no_line_with_a_validation_waits_for_one_without(capsys):
    progress = LineProgress(seconds=3600.0)
    progress.start(StepPlan(StepLoopConfig(steps=6)), 0)
    for step in range(1, 7):
        validation = {"val_loss": 0.5} if step % 2 == 0 else {}
        progress.row({"epoch": step, "step": step, "train_loss": 1.0, **validation})
    lines = capsys.readouterr().out.splitlines()
    assert ["val loss" in line for line in lines] == [True, True]  # the first validation, and the end


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("columns", "expected"), [(60, set()), (80, {"loss", "accuracy"}), (160, {"grad_norm"})])
def test_a_narrow_terminal_keeps_what_matters(monkeypatch, columns, expected):
    """Bar, time left and validation are whole on each; of the other numbers, the last ones are left out first."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", screen := Terminal())
    progress = BarProgress()
    progress.start(EpochPlan(LoopConfig(epochs=600, batch_size=4), 40, seed=0), 0)
    progress.row({"epoch": 1, "step": 10, "val_loss": 0.5, "val_accuracy": 0.45})
    progress._shown = 0.0
    progress.step(epoch=0, numbers=lambda: {"loss": 0.748, "accuracy": 0.5, "grad_norm": 4.141})
    progress.close()
    line = re.sub(r"\x1b\[[0-9;?]*\w", "", screen.getvalue()).replace("\r", "\n").rstrip().splitlines()[-1]
    assert len(line) <= columns and "\u2026" not in line and len(re.findall("[\u2501\u2578\u257a]", line)) >= 10
    assert "epoch 1/600" in line and "val accuracy 0.450" in line and line.rstrip().endswith(("-:--", "--:--", ":00"))
    assert expected <= {*re.findall(r"(\w+) \d", line)} and ("grad_norm" in line) == (columns == 160)
