"""Configurations of runs on lengths that come with the repository."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .config import LengthConfig, LengthGrid, default_loop
from .presets import PRESETS

# The announced study, see experiments/length/ANNOUNCED.md.
STUDY = LengthGrid(
    out="runs/length-study", seeds=5, loop=replace(default_loop(), steps=1500, eval_every=0, checkpoint_every=0)
)

GRIDS = {
    # A look at everything within minutes.
    "tiny": LengthGrid(
        out="runs/length-tiny",
        seeds=1,
        models=("T", "DAT-symbolic", "DAT-clipped"),
        loop=replace(default_loop(), steps=300, eval_every=0, checkpoint_every=0),
    ),
    "study": STUDY,
    # A control that was announced after the study, to be read beside it.
    "clip": replace(STUDY, out="runs/length-clip", models=("DAT-clipped-8",)),
}

SHIPPED: dict[str, Any] = {
    **{f"configs/{name}.yaml": LengthConfig(model=model) for name, model in PRESETS.items()},
    **{f"grids/{name}.yaml": grid for name, grid in GRIDS.items()},
}
"""Every model on sorting, and the grids."""
