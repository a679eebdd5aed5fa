"""The rivals on a sequence task, tracking a product of permutations."""

from typing import Any

from dat.experiments.sequences.config import RecallGrid
from studies.rivals.study import FIRST_SEED, SEEDS, SEQUENCE_ARMS, confirming

EXPERIMENT = "recall"
PRESETS: dict[str, Any] = SEQUENCE_ARMS
GRIDS: dict[str, Any] = {
    "rivals": RecallGrid.with_presets(PRESETS)(
        out="runs/rivals-sequences",
        tasks=("s3-8",),
        steps=(1200,),
        models=("T-positions", *SEQUENCE_ARMS),
        seeds=SEEDS,
        first_seed=FIRST_SEED,
    )
}
GRIDS["confirm"] = confirming(GRIDS["rivals"], "sequences")
