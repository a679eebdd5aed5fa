"""Relations, any product, or positions? On a product of permutations that is to be tracked."""

from typing import Any

from dat.experiments.sequences.config import RecallGrid
from studies.relation_or_product.models import OF_SEQUENCES
from studies.relation_or_product.study import ROWS as OF_LANGUAGE
from studies.relation_or_product.study import SEEDS, rated

EXPERIMENT = "recall"
PRESETS, LR_OF = rated(OF_SEQUENCES, (0.0005, 0.001, 0.002))
GRIDS: dict[str, Any] = {
    "rates": RecallGrid.with_presets(PRESETS)(
        out="runs/relation-or-product-sequences",
        tasks=("s3-8",),
        steps=(1200,),
        models=(*PRESETS,),
        lr_of=LR_OF,
        seeds=SEEDS,
        first_seed=70,
    )
}
ROWS = OF_LANGUAGE | {
    "untrained rule": "the permutation that was last read, and the most frequent answer, rule.py",
    "linear gate": "T-gated-lr0.001",
    "steps": "1,200",
    "failed": "no better than a rule, by two points",
}
