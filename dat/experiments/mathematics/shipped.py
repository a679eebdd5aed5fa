"""Configurations of runs on mathematics that come with the repository."""

from __future__ import annotations

from typing import Any

from ...sweeps.analysis import AnalysisConfig
from ...training.configs import PrecisionMachineConfig
from .config import MathematicsConfig, paper_optim
from .grid import GRIDS, OFFICIAL, paper_loop
from .model_keys import PRESETS


def paper(preset: str) -> MathematicsConfig:
    """A model of the paper (section 4.2, Table 2), with the schedule of the published runs."""
    return MathematicsConfig(
        data=OFFICIAL,
        model=PRESETS[preset],
        optim=paper_optim(),
        loop=paper_loop(),
        machine=PrecisionMachineConfig(precision="bfloat16"),
    )


ANALYSES = {
    # As announced in experiments/mathematics/ANNOUNCED.md.
    "study": AnalysisConfig(
        question="After 2,000 steps, do DATs answer more characters right than slightly larger Transformers?",
        announced="experiments/mathematics/ANNOUNCED.md",
        grid="study",
        measure="interpolate",
        reference="T-871K",
        arms=("DAT-832K",),
        panels=("algebra__linear_1d", "algebra__sequence_next_term"),
        points=(10,),
        seeds=5,
        least_difference=1.0,
        bound=1.0,
        equivalence_alpha=0.025,
    ),
}

SHIPPED: dict[str, Any] = {
    **{f"configs/{name}.yaml": MathematicsConfig(model=PRESETS[name]) for name in ("DAT-tiny", "T-tiny")},
    **{f"configs/{name}.yaml": paper(name) for name in ("DAT-832K", "T-871K")},
    **{f"grids/{name}.yaml": grid for name, grid in GRIDS.items()},
    **{f"analyses/{name}.yaml": analysis for name, analysis in ANALYSES.items()},
}
"""The tiny models, two of the paper's, the grids, and the announced analysis."""
