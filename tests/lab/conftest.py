"""Runs of experiments, most of them without the picture that takes longer to draw than they take to train."""

import pytest

from dat.training import runs


@pytest.fixture(autouse=True)
def undrawn(monkeypatch) -> None:
    monkeypatch.setattr(runs, "plot_run", lambda *args, **kwargs: None)
