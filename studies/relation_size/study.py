"""Size or kind of relations: the grids that can be run, and the tables of the README."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dat.experiments.relational_games.config import EPOCHS, GamesModelConfig
from dat.experiments.relational_games.grid import GamesGrid, GridData
from dat.experiments.relational_games.presets import PRESETS as GAMES
from dat.experiments.relational_games.toolbox_config import ToolboxConfig
from dat.training.configs import LoopConfig

EXPERIMENT = "relational-games"

SIZES = (0.17, 0.5, 1.0)
"""Initial sizes of W_r r: about those with which asymmetric, symmetric and squared-distance relations begin as
published."""

SYMMETRIC = GAMES["dat-0+2-sym"]
NORMS = replace(SYMMETRIC, architecture="toolbox", toolbox=ToolboxConfig(relation="dot_and_norms"))
KINDS: dict[str, GamesModelConfig] = {
    "symmetric": SYMMETRIC,
    "asymmetric": GAMES["dat-0+2-asym"],
    "distance": GAMES["dat-0+2-sym-squared-distance"],
    "cosine": GAMES["cosine"],
    "norms": NORMS,
    "64-relations": replace(SYMMETRIC, n_relations=64, rel_proj_dim=2),
}
"""DAT 0+2 by the kind of its relations."""
FIRST = ("symmetric", "asymmetric", "distance", "cosine")


def sized(kind: str, size: float) -> GamesModelConfig:
    """A kind of relations with an initial size."""
    return replace(KINDS[kind], name=f"{kind}-{size:g}", rel_init_size=size)


PRESETS = {model.name: model for model in (sized(kind, size) for kind in KINDS for size in SIZES)}


def grid(name: str, *kinds: str) -> GamesGrid:
    """Some kinds at all sizes on two tasks with 500 images."""
    return GamesGrid.with_presets(PRESETS)(
        out=f"runs/relation-size-{name}",
        tasks=("same", "occurs"),
        sizes=(500,),
        models=tuple(f"{kind}-{size:g}" for kind in kinds for size in SIZES),
        seeds=10,
        first_seed=20,
        data=GridData(n_val=1000, n_test=4000, n_heldout=1000),
        loop=LoopConfig(epochs=EPOCHS, eval_every=0, checkpoint_every=0),
    )


GRIDS: dict[str, Any] = {
    "size": grid("size", *FIRST),
    # What distances add, and number against width of relations.
    "further": grid("further", "norms", "64-relations"),
}

TABLES: dict[str, Callable[[], str]] = {}
