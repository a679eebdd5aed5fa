"""Configurations of runs on recall that come with the repository."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .config import RecallConfig, RecallGrid
from .presets import PRESETS

# The announced study, see experiments/recall/ANNOUNCED.md.
STUDY = RecallGrid(
    out="runs/recall-study",
    seeds=5,
    tasks=("in-context-copying-16", "mqar-2", "mqar-4", "selective-copying-4", "parity-12", "s3-8", "s5-6"),
    steps=(1200, 1200, 1200, 600, 1200, 1200, 1200),
    evaluations=30,
)

GRIDS = {
    # A look at everything within minutes.
    "tiny": RecallGrid(out="runs/recall-tiny", seeds=1, models=("T", "DAT-symbolic", "DAT-relative")),
    "study": STUDY,
    # A control that was announced after the study, to be read beside it.
    "positions": replace(
        STUDY, out="runs/recall-positions", tasks=("parity-12", "s3-8"), models=("T-positions",), steps=(1200, 1200)
    ),
}


SHIPPED: dict[str, Any] = {
    **{f"configs/{name}.yaml": RecallConfig(model=model) for name, model in PRESETS.items()},
    **{f"grids/{name}.yaml": grid for name, grid in GRIDS.items()},
}
"""Every model on in-context copying, and the grids."""
