"""Language models: the announced study of equal parameters, operations and time; ablations; the paper's Figure 12."""

from collections.abc import Mapping
from dataclasses import replace

from dat.experiments.language.config import LanguageDataConfig, LanguageOptimConfig
from dat.experiments.language.experiment import LanguageModelling
from dat.experiments.language.grid import LanguageGrid
from dat.training.configs import StepLoopConfig
from studies.language import tables
from studies.language.models import ABLATED, ARMS, PRESETS, RATED, SIZED, STORIES, VOCABULARY

EXPERIMENT = "language"

Grid = LanguageGrid.with_presets(PRESETS)

RATES_64 = {"DAT": 1.6e-2, "RCA": 1.6e-2, "T": 8e-3, "T-gated": 1.6e-2, "T-operations": 8e-3, "T-time": 8e-3}
"""Learning rate of each arm, in order, from the pilot in ANNOUNCED.md."""
RATES_128 = dict.fromkeys(RATES_64, 4e-3)
"""Rates until those of a pilot replace them, see NOTEBOOK.md."""

# 34 million bytes of English in a file that `dat data language` makes, see NOTEBOOK.md.
ENGLISH = LanguageDataConfig(path="english.jsonl", val_fraction=0.03, val_tokens=983_040)


def study(d_model: int, out: str, rates: Mapping[str, float], longer: float, steps: int) -> LanguageGrid:
    """The announced study at a width: its arms, their learning rates, and how much longer the Transformer trains that
    is to have as much time.
    """
    return Grid(
        out=out,
        seeds=10,
        models=tuple(name for name, arm in ARMS.items() if arm.d_model == d_model),
        steps=(steps,),
        lr_of={f"{arm}-{d_model}": rate for arm, rate in rates.items()},
        longer={f"T-time-{d_model}": longer},
        data=ENGLISH,
        loop=StepLoopConfig(steps=steps, batch_size=16, eval_batch_size=16, eval_every=0, checkpoint_every=0),
    )


STUDY = study(64, "runs/language-study", RATES_64, 1.9, 1500)


def ablation(name: str) -> LanguageGrid:
    """Models to be read beside DAT-64 of the study, at its learning rate and with half of its seeds."""
    rates = dict.fromkeys(ABLATED[name], RATES_64["DAT"])
    return replace(STUDY, out=f"runs/language-{name}", seeds=5, models=tuple(rates), lr_of=rates, longer=None)


GRIDS: dict[str, LanguageGrid] = {
    # A look at everything within minutes, on the documentation of Python.
    "tiny": Grid(**{**vars(LanguageModelling.scales["tiny"]), "models": ("DAT-64", "T-64")}),
    "study": STUDY,
    "study-128": study(128, "runs/language-study-128", RATES_128, 1.65, 4000),
    **{name: ablation(name) for name in ABLATED},
    # Every arm at rates of its own, and weights from which documents are measured.
    "rates": replace(
        STUDY,
        out="runs/language-rates",
        first_seed=10,
        models=tuple(RATED),
        lr_of={name: rate for name, (_, rate) in RATED.items()},
        longer=None,
        keep_weights=True,
    ),
    # Initial size and kind of relations, beside the arms of the study.
    "relations": replace(
        STUDY,
        out="runs/language-relations",
        models=tuple(SIZED),
        lr_of=dict.fromkeys(SIZED, RATES_64["DAT"]),
        longer=None,
    ),
    # Figure 12: 131,072 tokens in each step at a constant learning rate, 100 batches to validate on.
    "stories": Grid(
        out="runs/language-stories",
        seeds=1,
        workers=1,
        device="cuda",
        models=tuple(STORIES),
        steps=(100_000,),
        precision="bfloat16",
        data=LanguageDataConfig(
            dataset="roneneldan/TinyStories", val_tokens=6_553_600, tokenizer="bpe", bpe_vocab_size=VOCABULARY
        ),
        optim=LanguageOptimConfig(lr=1e-3, schedule="constant", warmup_steps=0),
        loop=StepLoopConfig(
            steps=100_000,
            batch_size=256,
            micro_batch_size=128,
            eval_batch_size=128,
            eval_every=0,
            checkpoint_every=0,
        ),
    ),
}

FIGURES = {"study.png": tables.draw_study, "study.md": tables.write_study}
TABLES = {
    "result": tables.result_table,
    "rates": tables.rates_table,
    "own rates": tables.own_rates_table,
    "relations": tables.relations_table,
    "initial sizes": tables.sizes_table,
    "published": tables.published_table,
}
