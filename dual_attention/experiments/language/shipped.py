"""Configurations of language models that come with the repository."""

from __future__ import annotations

from typing import Any

from ...training.configs import StepLoopConfig
from .config import LanguageConfig, LanguageDataConfig, LanguageMachineConfig, LanguageOptimConfig
from .model_keys import model_preset

# FineWeb-Edu's sample of 10B tokens in files of tokens, each document after GPT-2's end token.
FINEWEB = LanguageDataConfig(
    path="edu_fineweb10B/edufineweb_train_*.npy",
    val_path="edu_fineweb10B/edufineweb_val_*.npy",
    val_tokens=327_680,
    tokenizer="gpt2",
    order="sequential",
)


def paper(preset: str) -> LanguageConfig:
    """A model of the paper (section 4.4, Table 5): 10B tokens, 524,288 in each step."""
    return LanguageConfig(
        data=FINEWEB,
        model=model_preset(preset),
        optim=LanguageOptimConfig(lr=6e-4, min_lr=6e-5, warmup_steps=715),
        loop=StepLoopConfig(
            steps=19_073,
            batch_size=512,
            micro_batch_size=8,
            eval_batch_size=8,
            report_every=10,
            eval_every=250,
            checkpoint_every=1000,
        ),
        machine=LanguageMachineConfig(precision="bfloat16"),
    )


# The tiny models follow the same recipe on the documentation of Python, byte by byte, in a few minutes.
SHIPPED: dict[str, Any] = {
    "configs/DAT-tiny.yaml": LanguageConfig(model=model_preset("DAT-tiny")),
    "configs/T-tiny.yaml": LanguageConfig(model=model_preset("T-tiny")),
    "configs/DAT-343M.yaml": paper("DAT-343M-nr64"),
    "configs/T-353M.yaml": paper("T-353M"),
}
"""The tiny models, and two of the paper's."""
