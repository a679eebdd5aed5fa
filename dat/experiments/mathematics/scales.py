"""Grids of mathematics for everyone: a look within minutes, and the paper's Table 2 and Figure 3."""

from ...data.mathematics import MODULES
from ...training.configs import LoopConfig
from .config import QuestionsConfig, paper_optim
from .grid import MathematicsGrid
from .model_keys import PRESETS
from .published import EPOCHS, published_accuracies

SCALES = {
    "tiny": MathematicsGrid(out="runs/mathematics-tiny"),
    # Lengths and batches by the logs of the published runs; the paper's text says 50 epochs of batches of 128. The
    # archive's files as they are: every training question, and padding attended to.
    "published": MathematicsGrid(
        out="runs/mathematics-published",
        seeds=5,
        device="cuda",
        workers=1,
        modules=MODULES,
        models=tuple(name for name in PRESETS if any(model == name for _, model in published_accuracies())),
        epochs=(EPOCHS,),
        precision="bfloat16",
        optim=paper_optim(),
        data=QuestionsConfig(
            n_train=1_999_998,
            n_val=0,
            n_test=10_000,
            n_answered=1_000,
            padding="attended",
            official_folder="mathematics_dataset-v1.0",
        ),
        loop=LoopConfig(epochs=EPOCHS, batch_size=512, eval_batch_size=500, eval_every=0, checkpoint_every=0),
    ),
}
