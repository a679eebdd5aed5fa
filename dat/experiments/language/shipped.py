"""Configurations of language models that come with the repository."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...sweeps.analysis import AnalysisConfig
from ...training.configs import StepLoopConfig
from .ablations import ACTIVATED, COMPOSED, CROSS, OTHER_SYMBOLS, RANKED, SYMMETRIC
from .arms import ARMS
from .config import LanguageConfig, LanguageDataConfig, LanguageMachineConfig, LanguageOptimConfig
from .grid import LanguageGrid
from .model_keys import LanguageModelKeys, model_preset
from .stories import STORIES, VOCABULARY

# FineWeb-Edu's sample of 10B tokens in files of tokens, each document after GPT-2's end token.
FINEWEB = LanguageDataConfig(
    path="edu_fineweb10B/edufineweb_train_*.npy",
    val_path="edu_fineweb10B/edufineweb_val_*.npy",
    val_tokens=327_680,
    tokenizer="gpt2",
    order="sequential",
)

TABLE_5 = {
    "T-353M": "T-353M",
    "DAT-343M": "DAT-343M-nr64",
    "T-757M": "T-757M",
    "DAT-734M": "DAT-734M",
    "T-1.31B": "T-1.31B",
    "DAT-1.27B": "DAT-1.27B-nr128",
}
"""The rows of Table 5, and their presets."""

RATES_64 = {"DAT": 1.6e-2, "RCA": 1.6e-2, "T": 8e-3, "T-gated": 1.6e-2, "T-operations": 8e-3, "T-time": 8e-3}
"""Of the arms in their order, from the pilot in experiments/language/ANNOUNCED.md."""
RATES_128 = dict.fromkeys(RATES_64, 4e-3)
"""To be replaced by those of a pilot, whose command is in experiments/language/README.md."""


PAPER_OPTIM = LanguageOptimConfig(lr=6e-4, min_lr=6e-5, warmup_steps=715)
PAPER_LOOP = StepLoopConfig(
    steps=19_073,
    batch_size=512,
    micro_batch_size=8,
    eval_batch_size=8,
    report_every=10,
    eval_every=250,
    checkpoint_every=1000,
)


def paper(preset: str) -> LanguageConfig:
    """A model of the paper (section 4.4, Table 5): 10B tokens, 524,288 in each step."""
    machine = LanguageMachineConfig(precision="bfloat16")
    return LanguageConfig(data=FINEWEB, model=model_preset(preset), optim=PAPER_OPTIM, loop=PAPER_LOOP, machine=machine)


def published_grid(
    name: str, models: Iterable[str], data: LanguageDataConfig, optim: LanguageOptimConfig, loop: StepLoopConfig
) -> LanguageGrid:
    """A published run of each model, on a GPU."""
    return LanguageGrid(
        out=f"runs/language-{name}",
        seeds=1,
        workers=1,
        device="cuda",
        models=tuple(models),
        steps=(loop.steps,),
        precision="bfloat16",
        data=data,
        optim=optim,
        loop=replace(loop, eval_every=0, checkpoint_every=0),
    )


# 34 million bytes of English in a file that `dat data language` makes, see experiments/language/ANNOUNCED.md.
ENGLISH = LanguageDataConfig(path="english.jsonl", val_fraction=0.03, val_tokens=983_040)


def study(d_model: int, out: str, rates: dict[str, float], longer: float, steps: int) -> LanguageGrid:
    """The announced study at a width: its arms, their learning rates, and how much longer the Transformer trains that
    is to have as much time.
    """
    names = tuple(name for name, arm in ARMS.items() if arm.d_model == d_model)
    return LanguageGrid(
        out=out,
        seeds=10,
        models=names,
        steps=(steps,),
        lr_of={f"{arm}-{d_model}": rate for arm, rate in rates.items()},
        longer={f"T-time-{d_model}": longer},
        data=ENGLISH,
        loop=StepLoopConfig(steps=steps, batch_size=16, eval_batch_size=16, eval_every=0, checkpoint_every=0),
    )


STUDY = study(64, "runs/language-study", RATES_64, 1.9, 1500)


def ablation(name: str, models: Sequence[LanguageModelKeys]) -> LanguageGrid:
    """Models to be read beside DAT-64 of the study, at its learning rate and with half of its seeds."""
    rates = {model.name: RATES_64["DAT"] for model in models}
    of_models = tuple(rates)
    return replace(STUDY, out=f"runs/language-{name}", seeds=5, models=of_models, lr_of=rates, longer=None)


GRIDS = {
    # A look at everything within minutes, on the documentation of Python.
    "tiny": LanguageGrid(
        out="runs/language-tiny",
        seeds=3,
        models=("DAT-64", "T-64"),
        steps=(75, 150),
        optim=LanguageOptimConfig(lr=8e-3, warmup_steps=20),
        loop=StepLoopConfig(steps=150, batch_size=16, eval_batch_size=16, eval_every=0, checkpoint_every=0),
    ),
    "study": STUDY,
    "study-128": study(128, "runs/language-study-128", RATES_128, 1.65, 4000),
    # Ablations of DAT-64: relational cross-attention, heads, symmetry, number against width of relations, symbols and
    # activations of relations.
    "rca": ablation("rca", CROSS),
    "heads": ablation("heads", COMPOSED),
    "symmetry": ablation("symmetry", SYMMETRIC),
    "rank": ablation("rank", RANKED),
    "symbols": ablation("symbols", OTHER_SYMBOLS),
    "activation": ablation("activation", ACTIVATED),
    "table-5": published_grid("table-5", TABLE_5.values(), FINEWEB, PAPER_OPTIM, PAPER_LOOP),
    # Figure 12: 131,072 tokens in each step at a constant learning rate, 100 batches to validate on.
    "stories": published_grid(
        "stories",
        STORIES,
        LanguageDataConfig(
            dataset="roneneldan/TinyStories",
            val_tokens=100 * 128 * 512,
            tokenizer="bpe",
            bpe_vocab_size=VOCABULARY,
        ),
        LanguageOptimConfig(lr=1e-3, schedule="constant", warmup_steps=0),
        StepLoopConfig(steps=100_000, batch_size=256, micro_batch_size=128, eval_batch_size=128),
    ),
}
"""The grids that come with the repository."""

ANALYSES = {
    # As announced in experiments/language/ANNOUNCED.md, with the signs turned: the three Transformers less the DAT.
    "study": AnalysisConfig(
        question="Is any of three Transformers of equal parameters, operations or time better or worse than the DAT?",
        announced="experiments/language/ANNOUNCED.md, as differences of the DAT from these; this file was written "
        "after six of the ten seeds had been read",
        grid="study",
        measure="bits_per_byte",
        reference="DAT-64",
        arms=("T-64", "T-operations-64", "T-time-64"),
        of="ends",
        seeds=10,
        correction="holm_differences",
        bound=0.005,
        equivalence_alpha=0.025,
    ),
}

# The tiny models follow the same recipe on the documentation of Python, byte by byte, in a few minutes.
SHIPPED: dict[str, Any] = {
    "configs/DAT-tiny.yaml": LanguageConfig(model=model_preset("DAT-tiny")),
    "configs/T-tiny.yaml": LanguageConfig(model=model_preset("T-tiny")),
    **{f"configs/{name}.yaml": paper(preset) for name, preset in TABLE_5.items()},
    **{f"grids/{name}.yaml": grid for name, grid in GRIDS.items()},
    **{f"analyses/{name}.yaml": analysis for name, analysis in ANALYSES.items()},
}
"""The tiny models, the paper's, the grids, and the announced analysis."""
