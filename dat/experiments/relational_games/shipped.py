"""Configurations of Relational Games that come with the repository."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...training.configs import LoopConfig
from .ablations import ACTIVATED, COMPOSED, DISENTANGLED, FROZEN, RANKED
from .config import EPOCHS, GamesModelConfig, RelationalGamesConfig, Task
from .grid import GamesGrid, GridData
from .presets import BASELINES, COMPARISON, CONTROLS, CORELNETS, NORMALISED, PRESETS


def names(models: Sequence[GamesModelConfig]) -> tuple[str, ...]:
    """Names of models."""
    return tuple(model.name for model in models)


SYMBOLS = ("dat-0+2-sym-symbolic", "dat-0+2-sym-relative", "dat-0+2-sym-relative-2d", *names(FROZEN))
MODELS = (*COMPARISON, "dat-0+2-sym-squared-distance", *SYMBOLS, *BASELINES, *CORELNETS, *CONTROLS, *NORMALISED)

QUICK_TASKS: tuple[Task, ...] = ("same", "occurs", "xoccurs", "between")


def ablation(name: str, *models: str) -> GamesGrid:
    """Some models on the quick tasks, at every other size and from three seeds."""
    sizes = (500, 1000, 1500, 2000, 2500)
    return GamesGrid(out=f"runs/relational-games-{name}", tasks=QUICK_TASKS, sizes=sizes, models=models, seeds=3)


def small_ablation(name: str, *models: str) -> GamesGrid:
    """Some models on three tasks with two sizes, from five seeds."""
    tasks: tuple[Task, ...] = ("same", "occurs", "xoccurs")
    return GamesGrid(out=f"runs/relational-games-{name}", tasks=tasks, sizes=(500, 2000), models=models, seeds=5)


GRIDS = {
    # Figure 2 and, with more models, Figures 8 and 11: everything that was published on DATs and Transformers.
    "published": GamesGrid(out="runs/relational-games-published"),
    # Ten seeds of the main comparison, measured after 50 epochs, too.
    "main": GamesGrid(
        out="runs/relational-games-main",
        sizes=(250, 500, 1000, 2000),
        match_pattern_sizes=(5000, 10000),
        models=("transformer-128-h2", "dat-0+2-sym", "dat-1+1-sym"),
        seeds=10,
        data=GridData(n_val=250),
        loop=LoopConfig(epochs=EPOCHS, eval_every=0, checkpoint_every=0, measure_at=(50,)),
    ),
    # The main comparison on the four quick tasks, small enough for an afternoon.
    "quick": GamesGrid(
        out="runs/relational-games-quick",
        tasks=QUICK_TASKS,
        sizes=(500, 1000, 2000),
        models=("transformer-128-h2", "dat-0+2-sym"),
        seeds=3,
    ),
    # Figure 2 with all of its models, at every other size and from three seeds.
    "figure-2": GamesGrid(
        out="runs/relational-games-figure-2",
        sizes=(250, 500, 1000, 1500, 2000, 2500),
        match_pattern_sizes=(5000, 10000, 15000, 20000, 25000),
        models=COMPARISON[:6],  # Transformers, and DATs with symmetric relations
        seeds=3,
    ),
    # The ablation of symmetric relations, Figure 8.
    "symmetry": ablation("symmetry", "dat-0+2-sym", "dat-0+2-asym", "dat-1+1-sym", "dat-1+1-asym"),
    # Relational attention against relational cross-attention, Figure 11.
    "rca": ablation("rca", "dat-0+2-asym", "dat-1+1-asym", "rca-0+2", "rca-1+1"),
    # The relational architectures before DATs, Figure 7, with a DAT and a Transformer beside them. The published runs
    # of the former are of 50 epochs, by the authors' notebook.
    "baselines": GamesGrid(
        out="runs/relational-games-baselines",
        sizes=(250, 500, 1000, 1500, 2000, 2500),
        match_pattern_sizes=(5000, 10000, 15000),
        models=("transformer-128-h2", "dat-0+2-sym", *BASELINES),
        seeds=5,
        loop=LoopConfig(epochs=EPOCHS, eval_every=0, checkpoint_every=0, measure_at=(50,)),
    ),
    # Why CoRelNet with softmax wins: softmax, order-keeping read-out and objects removed, each with and without.
    "corelnet-factors": GamesGrid(
        out="runs/relational-games-corelnet-factors",
        tasks=("same", "occurs", "xoccurs", "between"),
        sizes=(500, 1000),
        models=CORELNETS,
        seeds=10,
    ),
    # Whether relations normalised over senders help a DAT: where they are looked for, and where a find is confirmed.
    "normalised": GamesGrid(
        out="runs/relational-games-normalised",
        tasks=("same", "xoccurs"),
        sizes=(500, 1000),
        models=NORMALISED,
        seeds=10,
    ),
    "normalised-confirm": GamesGrid(
        out="runs/relational-games-normalised-confirm",
        tasks=("occurs", "between", "match_pattern"),
        sizes=(250, 500, 1000),
        match_pattern_sizes=(5000,),
        models=NORMALISED,
        seeds=10,
        first_seed=10,
    ),
    # Relation or mere multiplication: controls as large as DAT 0+2.
    "multiplication": GamesGrid(
        out="runs/relational-games-multiplication",
        tasks=("occurs", "between"),
        sizes=(1000, 2000),
        models=CONTROLS,
        seeds=10,
    ),
    "multiplication-match-pattern": GamesGrid(
        out="runs/relational-games-multiplication-match-pattern",
        tasks=("match_pattern",),
        match_pattern_sizes=(15000,),
        models=CONTROLS,
        seeds=5,
    ),
    # Further ablations of DAT 0+2. Disentangled RCA, to be read beside `rca`.
    "disrca": ablation("disrca", *names(DISENTANGLED)),
    # Eight heads, from all sensory to all relational.
    "heads": small_ablation("heads", "transformer-128-h8", *names(COMPOSED)),
    # Number against width of relations, 64 features in all.
    "rank": GamesGrid(
        out="runs/relational-games-rank",
        tasks=("occurs", "between", "match_pattern"),
        sizes=(1000,),
        match_pattern_sizes=(15000,),
        models=names(RANKED),
        seeds=5,
    ),
    # Symbol mechanisms.
    "symbols": small_ablation("symbols", "dat-0+2-sym", *SYMBOLS),
    # Activations of relations; softmax is in `normalised`, too.
    "activation": small_ablation("activation", "dat-0+2-sym", "dat-0+2-sym-softmax", *names(ACTIVATED)),
}


SHIPPED: dict[str, Any] = {
    **{f"configs/{name}.yaml": RelationalGamesConfig(model=PRESETS[name]) for name in MODELS},
    **{f"grids/{name}.yaml": grid for name, grid in GRIDS.items()},
}
"""A run of each model of the comparison, and the grids of the figures."""
