"""Configurations of runs on lengths that come with the repository."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .config import LengthConfig, LengthGrid, default_loop
from .presets import PRESETS

GRIDS = {
    # A look at everything within minutes.
    "tiny": LengthGrid(
        out="runs/length-tiny",
        seeds=1,
        models=("T", "DAT-symbolic", "DAT-clipped"),
        loop=replace(default_loop(), steps=300, eval_every=0, checkpoint_every=0),
    ),
    # The announced study, see experiments/length/ANNOUNCED.md.
    "study": LengthGrid(
        out="runs/length-study", seeds=5, loop=replace(default_loop(), steps=1500, eval_every=0, checkpoint_every=0)
    ),
    # A control that was announced after the study, to be read beside it.
    "clip": LengthGrid(
        out="runs/length-clip",
        seeds=5,
        models=("DAT-clipped-8",),
        loop=replace(default_loop(), steps=1500, eval_every=0, checkpoint_every=0),
    ),
}

SHIPPED: dict[str, Any] = {
    **{f"configs/{name}.yaml": LengthConfig(model=model) for name, model in PRESETS.items()},
    **{f"grids/{name}.yaml": grid for name, grid in GRIDS.items()},
}
"""Every model on sorting, and the grids."""
