"""Configurations of runs on lengths that come with the repository."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...sweeps.analysis import AnalysisConfig
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

ANALYSES = {
    # The primary measure of the study.
    "study": AnalysisConfig(
        question="Do models with relations carry further than a Transformer beyond the lengths trained on?",
        announced="experiments/length/ANNOUNCED.md; this file was written after the runs in results/study",
        grid="study",
        measure="beyond",
        reference="T",
        arms=("DAT-symbolic", "DAT-symbolic-sym", "DAT-clipped", "DAT-clipped-sym"),
        seeds=5,
        correction="holm_differences",
        least_difference=2.0,
        bound=2.0,
        equivalence_alpha=0.025,
    ),
}

SHIPPED: dict[str, Any] = {
    **{f"configs/{name}.yaml": LengthConfig(model=model) for name, model in PRESETS.items()},
    **{f"grids/{name}.yaml": grid for name, grid in GRIDS.items()},
    **{f"analyses/{name}.yaml": analysis for name, analysis in ANALYSES.items()},
}
"""Every model on sorting, the grids, and the announced analysis."""
