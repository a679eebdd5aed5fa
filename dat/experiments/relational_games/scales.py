"""Grids of Relational Games by name: the paper's learning curves, and a small one."""

from ...training.configs import LoopConfig
from .config import EPOCHS, Task
from .grid import GamesGrid
from .presets import BASELINES, COMPARISON

QUICK_TASKS: tuple[Task, ...] = ("same", "occurs", "xoccurs", "between")


def ablation(name: str, *models: str) -> GamesGrid:
    """Some models on the quick tasks, at every other size and from three seeds."""
    sizes = (500, 1000, 1500, 2000, 2500)
    return GamesGrid(out=f"runs/relational-games-{name}", tasks=QUICK_TASKS, sizes=sizes, models=models, seeds=3)


SCALES = {
    # Figure 2 and, with more models, Figures 8 and 11: everything that was published on DATs and Transformers.
    "published": GamesGrid(out="runs/relational-games-published"),
    # DAT against Transformer on the four quick tasks, small enough for an hour.
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
    # The ablation of symmetric relations, Figure 8.
    "symmetry": ablation("symmetry", "dat-0+2-sym", "dat-0+2-asym", "dat-1+1-sym", "dat-1+1-asym"),
    # Relational attention against relational cross-attention, Figure 11.
    "rca": ablation("rca", "dat-0+2-asym", "dat-1+1-asym", "rca-0+2", "rca-1+1"),
}
"""Grids that ``--scale NAME`` stands for."""
