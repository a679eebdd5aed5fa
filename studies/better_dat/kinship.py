"""A better DAT? On family relations, longer chains than in training."""

from typing import Any

from studies.better_dat.models import OF_KINSHIP
from studies.better_dat.study import ROWS as OF_GAMES
from studies.better_dat.study import in_two
from studies.kinship.config import KinshipGrid
from studies.relation_or_product.study import rated

EXPERIMENT = "studies/kinship/experiment.py:Kinship"
PRESETS, LR_OF = rated(OF_KINSHIP, (0.001, 0.002, 0.004))
GRIDS: dict[str, Any] = in_two(
    KinshipGrid.with_presets(PRESETS)(
        out="runs/better-dat-kinship", tasks=("in-order",), models=(*PRESETS,), lr_of=LR_OF
    ),
    rates=1,
)
ROWS = OF_GAMES | {
    "untrained rule": "the sum of generations, in every row of results",
    "linear gate": "gate-lr0.002",
    "rotary positions": "every arm",
    "steps": "2,000",
    "failed": "no better than the untrained rule on chains as long as in training, by two points",
}
