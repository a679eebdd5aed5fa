"""Writes the YAML files of ``configs/`` from the library's named models; a test keeps them equal."""

from __future__ import annotations

from pathlib import Path

from dual_attention.experiments.language.config import (
    DataConfig,
    LanguageConfig,
    LanguageMachineConfig,
    LanguageOptimConfig,
)
from dual_attention.experiments.language.model_config import model_preset
from dual_attention.training.config_io import commented_yaml
from dual_attention.training.configs import StepLoopConfig

HERE = Path(__file__).parent

# FineWeb-Edu's sample of 10B tokens in files of tokens, each document after GPT-2's end token.
FINEWEB = DataConfig(
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


def tiny(preset: str) -> LanguageConfig:
    """The same recipe on the documentation of Python, byte by byte, in a few minutes."""
    return LanguageConfig(model=model_preset(preset))


CONFIGS = {
    "DAT-tiny": tiny("DAT-tiny"),
    "T-tiny": tiny("T-tiny"),
    "DAT-343M": paper("DAT-343M-nr64"),
    "T-353M": paper("T-353M"),
}


def files() -> dict[Path, str]:
    """Every file and its text."""
    return {HERE / "configs" / f"{name}.yaml": commented_yaml(config) for name, config in CONFIGS.items()}


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(HERE))
