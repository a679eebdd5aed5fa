"""Writes the YAML files of ``configs/`` and ``grids/`` from the library's named models; a test keeps them equal."""

from __future__ import annotations

from pathlib import Path

from dual_attention.experiments.relational_games.config import RelationalGamesConfig
from dual_attention.experiments.relational_games.grid import GridConfig
from dual_attention.experiments.relational_games.presets import BASELINES, COMPARISON, preset
from dual_attention.training.config_io import commented_yaml

HERE = Path(__file__).parent

MODELS = (*COMPARISON, "dat-0+2-sym-symbolic", "dat-0+2-sym-relative", "dat-0+2-sym-relative-2d", *BASELINES)

GRIDS = {
    # Figure 2 and, with more models, Figures 8 and 11: everything that was published on DATs and Transformers.
    "published": GridConfig(out="runs/relational-games-published"),
    # The main comparison on the four quick tasks, small enough for a lunch break.
    "quick": GridConfig(
        out="runs/relational-games-quick",
        tasks=("same", "occurs", "xoccurs", "between"),
        sizes=(500, 1000, 2000),
        models=("transformer-128-h2", "dat-0+2-sym"),
        seeds=3,
    ),
    # Figure 2 with all of its models, at every other size and from three seeds.
    "figure-2": GridConfig(
        out="runs/relational-games-figure-2",
        sizes=(250, 500, 1000, 1500, 2000, 2500),
        match_pattern_sizes=(5000, 10000, 15000, 20000, 25000),
        models=(
            "transformer-128-h2",
            "transformer-128-h8",
            "transformer-144-h2",
            "transformer-144-h8",
            "dat-0+2-sym",
            "dat-1+1-sym",
        ),
        seeds=3,
    ),
    # The ablation of symmetric relations, Figure 8.
    "symmetry": GridConfig(
        out="runs/relational-games-symmetry",
        tasks=("same", "occurs", "xoccurs", "between"),
        sizes=(500, 1000, 1500, 2000, 2500),
        models=("dat-0+2-sym", "dat-0+2-asym", "dat-1+1-sym", "dat-1+1-asym"),
        seeds=3,
    ),
    # Relational attention against relational cross-attention, Figure 11.
    "rca": GridConfig(
        out="runs/relational-games-rca",
        tasks=("same", "occurs", "xoccurs", "between"),
        sizes=(500, 1000, 1500, 2000, 2500),
        models=("dat-0+2-asym", "dat-1+1-asym", "rca-0+2", "rca-1+1"),
        seeds=3,
    ),
    # The relational architectures before DATs, Figure 7, with a DAT and a Transformer beside them.
    "baselines": GridConfig(
        out="runs/relational-games-baselines",
        sizes=(250, 500, 1000, 1500, 2000, 2500),
        match_pattern_sizes=(5000, 10000, 15000),
        models=("transformer-128-h2", "dat-0+2-sym", *BASELINES),
        seeds=3,
    ),
}


def files() -> dict[Path, str]:
    """Every file and its text."""
    made = {
        HERE / "configs" / f"{name}.yaml": commented_yaml(RelationalGamesConfig(model=preset(name))) for name in MODELS
    }
    made.update({HERE / "grids" / f"{name}.yaml": commented_yaml(grid) for name, grid in GRIDS.items()})
    return made


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(HERE))
