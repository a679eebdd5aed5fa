"""Configurations of runs on recall that come with the repository."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...sweeps.analysis import AnalysisConfig
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


def analysis(question: str, part: str, tasks: tuple[str, ...], measure: str, least: float) -> AnalysisConfig:
    """An analysis of some tasks of the study by the rules of a part of experiments/recall/ANNOUNCED.md.

    Args:
        least: least difference that is called one, and bound of equivalence.
    """
    return AnalysisConfig(
        question=question,
        announced=f"experiments/recall/ANNOUNCED.md, {part}; this file was written after the runs in results/study",
        grid="study",
        measure=measure,
        reference="T",
        arms=("DAT-symbolic", "DAT-relative", "DAT-frozen", "RCA"),
        panels=tasks,
        seeds=5,
        correction="holm_differences",
        least_difference=least,
        bound=least,
        equivalence_alpha=0.025,
    )


ANALYSES = {
    # The primary measure of the study, and the two secondary ones.
    "study": analysis(
        "Does a model with relations learn to recall at an earlier step than a Transformer?",
        "Primary measure",
        ("in-context-copying", "mqar"),
        "learned_step",
        50.0,
    ),
    "selective-copying": analysis(
        "Is a model with relations more accurate at selective copying than a Transformer?",
        "Secondary",
        ("selective-copying",),
        "accuracy",
        1.0,
    ),
    "state": analysis(
        "Is a model with relations more accurate at tracking a state than a Transformer?",
        "Secondary",
        ("parity", "s3", "s5"),
        "accuracy",
        1.0,
    ),
}

SHIPPED: dict[str, Any] = {
    **{f"configs/{name}.yaml": RecallConfig(model=model) for name, model in PRESETS.items()},
    **{f"grids/{name}.yaml": grid for name, grid in GRIDS.items()},
    **{f"analyses/{name}.yaml": analysis for name, analysis in ANALYSES.items()},
}
"""Every model on in-context copying, the grids, and the announced analyses."""
