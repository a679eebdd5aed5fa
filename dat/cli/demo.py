"""``dat demo``: a DAT and a Transformer of the same size learn one relation from few examples.

It is a small grid of ``dat reproduce relational-games``, a picture of a relation, and sentences computed from its
numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import nn

from dual_attention._base.extras import require
from dual_attention._base.files import write_atomically
from dual_attention._base.plots import save_figure
from dual_attention.model_analysis.views import draw_patch_relations

from ..experiments.relational_games.config import EPOCHS
from ..experiments.relational_games.experiment import RelationalGames
from ..experiments.relational_games.grid import GamesGrid, GridData
from ..experiments.relational_games.grid_relations import GRID, cell_relations, equality_aucs
from ..experiments.relational_games.model import build_games_model
from ..experiments.relational_games.presets import PRESETS
from ..experiments.relational_games.problem import load_splits
from ..sweeps.grid import Cell, GridFolder
from ..sweeps.report import chosen_rows, comparison_text, mean_text
from ..sweeps.reproduce import reproduce
from ..sweeps.results import read_results
from ..training.config_io import build_parser, parse_config
from ..training.metrics import Row
from ..training.weights_file import load_weights

TOP_CENTRE = 1
"""The cell of the object that ``occurs`` asks about, counted row by row from 0."""
DAT, RIVAL = "dat-0+2-sym", "transformer-128-h2-matched"
OBJECTS = {"test": "pentominoes", "hexominoes": "hexominoes", "stripes": "stripes"}
"""Objects of each test set."""
GAMES = RelationalGames()


@dataclass(frozen=True)
class DemoConfig:
    """Images and runs of the demonstration."""

    out: str = "runs/demo"
    """Folder; the same command continues there what was interrupted."""
    sizes: tuple[int, ...] = (250, 500, 1000)
    """Training-set sizes."""
    seeds: int = 3
    """Trials of every size."""
    first_seed: int = 0
    """Seed of the first trial."""
    epochs: int = EPOCHS
    """Passes through the training set."""
    n_test: int = 5000
    """Test images of each of the three object sets."""
    workers: int | None = None
    """Processes that train at the same time, one CPU thread each; null takes one for each core."""


def demo(prog: str, arguments: Sequence[str]) -> int:
    """``dat demo``."""
    parser = build_parser(
        DemoConfig,
        prog=prog,
        description="Train a DAT and a Transformer of the same size on few examples, compare them on objects seen and "
        "never seen in training, and look at a relation that the DAT has learned. About five minutes on two free "
        "cores.",
    )
    grid = demo_grid(parse_config(parser, DemoConfig, arguments)[0])
    print(
        "Does the object on top occur among the three below it? A Dual Attention Transformer with relational heads "
        "(DAT) and a Transformer of the same size learn to tell, from few images."
    )
    folder = reproduce(GAMES, grid)
    rows = chosen_rows(GAMES.table, read_results(GAMES, folder.results), {"task": grid.tasks, "model": grid.models})
    text = "\n".join(
        [
            comparison_text(replace(GAMES.table, published=None, tabled={}), rows),
            accuracy_sentence(rows, max(grid.sizes)),
            "",
            relation_sentence(folder, grid),
        ]
    )
    require("rich.console", extra="train").Console().print(require("rich.markdown", extra="train").Markdown(text))
    write_atomically(folder.path / "demo.md", text + "\n")
    print(f"pictures:    {folder.figures}\nall numbers: {folder.results}")
    return 0


def demo_grid(config: DemoConfig) -> GamesGrid:
    """The demonstration as a grid."""
    same: dict[str, Any] = {key: getattr(config, key) for key in ("out", "sizes", "seeds", "first_seed", "workers")}
    data = GridData(n_val=1000, n_test=config.n_test, n_heldout=config.n_test)
    grid = GamesGrid(tasks=("occurs",), models=(DAT, RIVAL), keep_weights=True, data=data, **same)
    return replace(grid, loop=replace(grid.loop, epochs=config.epochs))


def accuracy_sentence(rows: Sequence[Row], largest: int) -> str:
    """Mean accuracies of both models at the ``largest`` size, in words."""

    def mean(model: str, name: str) -> str:
        values = [row[name] for row in rows if (row["model"], row["n_train"]) == (model, largest)]
        return f"{fmean(values):.0f}"

    unseen = [f"{mean(DAT, name)} against {mean(RIVAL, name)} % ({name})" for name in ("hexominoes", "stripes")]
    return (
        f"From {largest:,} images the DAT reaches {mean(DAT, 'test')} % on new images, the Transformer "
        f"{mean(RIVAL, 'test')} %; on objects that neither has seen it is {' and '.join(unseen)}."
    )


def relation_sentence(folder: GridFolder, grid: GamesGrid) -> str:
    """The relation of the trained DATs that training improved most, in words; draws it, too, of the first trial."""
    seeds = range(grid.first_seed, grid.first_seed + grid.seeds)
    trials = [improved_relation(folder, grid, seed) for seed in seeds]

    def share(name: str, when: int) -> str:
        return mean_text([100 * aucs[name][when] for aucs in trials], 0)

    shares = [
        f"{share(name, 1)} % of pairs of {name} ({share(name, 0)} % before training)" for name in OBJECTS.values()
    ]
    return (
        "No label said which objects are equal. The relation that training improved most at telling, on validation "
        f"images, puts an object equal to the top one before a different one in {', '.join(shares[:-1])} and "
        f"{shares[-1]}; 50 % is chance (AUC)."
    )


def improved_relation(folder: GridFolder, grid: GamesGrid, seed: int) -> dict[str, list[float]]:
    """AUC on each object set, before and after training, of the relation whose AUC on validation images rose most."""
    point = {"task": grid.tasks[0], "model": DAT, "n_train": max(grid.sizes)}
    cell = Cell.of(GAMES.table.axes, point, seed)
    run = grid.config(cell)
    splits = load_splits(run)
    untrained, model = (build_games_model(PRESETS[DAT], 2, seed=run.weight_seed) for _ in range(2))
    load_weights(model, folder.weights_of(cell))
    aucs = {
        name: [equality_aucs(net, splits[name].images, TOP_CENTRE) for net in (untrained, model)]
        for name in ("val", *OBJECTS)
    }
    before, after = aucs["val"]
    chosen = divmod(int((after - before).argmax()), after.shape[1])
    if seed == grid.first_seed:
        draw_relations(model, splits["hexominoes"], chosen, folder.figures / "relation.png")
    return {objects: [float(auc[chosen]) for auc in aucs[name]] for name, objects in OBJECTS.items()}


def draw_relations(model: nn.Module, split: Any, chosen: tuple[int, int], path: Path) -> None:
    """Draw the relations from the top object of an image in which it recurs to every cell."""
    image = split.images[split.labels == 1][0]
    relations = cell_relations(model, image[None])
    titles = [f"layer {n + 1}, relation {i + 1}" for n, of in enumerate(relations) for i in range(of.shape[-1])]
    layer, index = (number + 1 for number in chosen)
    title = f"Training improved relation {index} of layer {layer} most at telling which object equals the outlined i"
    grid = GRID, GRID
    every = torch.cat([of[0] for of in relations], -1)
    save_figure(draw_patch_relations(image, every, TOP_CENTRE, grid, titles=titles, title=title), path, dpi=110)
