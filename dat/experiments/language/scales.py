"""Grids of language models for everyone: looks within minutes, and the paper's Table 5."""

from ...training.configs import StepLoopConfig
from .config import LanguageDataConfig, LanguageOptimConfig
from .grid import LanguageGrid

TABLE_5 = ("T-353M", "DAT-343M-nr64", "T-757M", "DAT-734M", "T-1.31B", "DAT-1.27B-nr128")
"""The rows of Table 5."""

SCALES = {
    # On the documentation of Python, byte by byte.
    "tiny": LanguageGrid(
        out="runs/language-tiny",
        seeds=3,
        steps=(75, 150),
        optim=LanguageOptimConfig(lr=8e-3, warmup_steps=20),
        loop=StepLoopConfig(steps=150, batch_size=16, eval_batch_size=16, eval_every=0, checkpoint_every=0),
    ),
    # 10B tokens of FineWeb-Edu (section 4.4), 524,288 in each step, in files of tokens, each document after GPT-2's end
    # token; on a GPU.
    "table-5": LanguageGrid(
        out="runs/language-table-5",
        seeds=1,
        workers=1,
        device="cuda",
        models=TABLE_5,
        steps=(19_073,),
        precision="bfloat16",
        data=LanguageDataConfig(
            path="edu_fineweb10B/edufineweb_train_*.npy",
            val_path="edu_fineweb10B/edufineweb_val_*.npy",
            val_tokens=327_680,
            tokenizer="gpt2",
            order="sequential",
        ),
        optim=LanguageOptimConfig(lr=6e-4, min_lr=6e-5, warmup_steps=715),
        loop=StepLoopConfig(
            steps=19_073,
            batch_size=512,
            micro_batch_size=8,
            eval_batch_size=8,
            report_every=10,
            eval_every=0,
            checkpoint_every=0,
        ),
    ),
}
