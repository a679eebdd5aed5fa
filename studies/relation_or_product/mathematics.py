"""Relations, any product, or positions? On the next term of a sequence, read and answered as text."""

from typing import Any

from dat.data.mathematics import Module
from dat.experiments.mathematics.config import QuestionsConfig, paper_optim
from dat.experiments.mathematics.grid import MathematicsGrid
from dat.training.configs import LoopConfig
from studies.relation_or_product.models import OF_MATHEMATICS
from studies.relation_or_product.study import ROWS as OF_LANGUAGE
from studies.relation_or_product.study import SEEDS, rated

EXPERIMENT = "mathematics"
MODULE: Module = "algebra__sequence_next_term"
EPOCHS = 12
DATA = QuestionsConfig(n_train=3_200, n_val=1_200, n_test=2_000, n_answered=1)
PRESETS, LR_OF = rated(OF_MATHEMATICS, (0.0006, 0.002, 0.006))
GRIDS: dict[str, Any] = {
    "rates": MathematicsGrid.with_presets(PRESETS)(
        out="runs/relation-or-product-mathematics",
        modules=(MODULE,),
        epochs=(EPOCHS,),
        models=(*PRESETS,),
        lr_of=LR_OF,
        seeds=SEEDS,
        first_seed=70,
        data=DATA,
        optim=paper_optim(),
        loop=LoopConfig(epochs=EPOCHS, batch_size=32, eval_batch_size=500, eval_every=0, checkpoint_every=0),
    )
}
ROWS = OF_LANGUAGE | {
    "untrained rule": "the most frequent character at each place of an answer, and the last term, rule.py",
    "linear gate": "T-gated-lr0.002",
    "steps": "1,200: 12 epochs of 3,200 questions in batches of 32",
    "failed": "no better than a rule, by two points",
}
