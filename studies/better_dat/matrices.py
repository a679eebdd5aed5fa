"""A better DAT? On progressive matrices, vectors of codes and of numbers."""

from dataclasses import replace
from typing import Any

from studies.better_dat.models import OF_MATRICES
from studies.better_dat.study import ROWS as OF_GAMES
from studies.better_dat.study import in_two, rated
from studies.matrices.config import MatricesGrid
from studies.matrices.experiment import SMALLER

EXPERIMENT = "studies/matrices/experiment.py:ProgressiveMatrices"
PRESETS, LR_OF = rated(OF_MATRICES)
GRIDS: dict[str, Any] = in_two(
    MatricesGrid.with_presets(PRESETS)(
        out="runs/better-dat-matrices",
        forms=("numbers",),
        steps=(2000,),
        models=(*PRESETS,),
        lr_of=LR_OF,
        data=replace(SMALLER, n_test=4000),
    ),
    rates=2,
)
ROWS = OF_GAMES | {
    "untrained rule": "the answer whose values occur most often in the context, in every row of results",
    "rotary positions": "places",
    "steps": "2,000",
    "failed": "no better than the untrained rule on the same matrices, by two points",
}
