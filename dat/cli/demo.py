"""``dat demo``: a DAT and a Transformer of the same size learn one relation from few examples.

It is a small grid of learning curves with a table, two pictures and two sentences computed from its numbers.
"""

import itertools
import math
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from torch import nn

from dual_attention._base.colours import BLUE, GREY, MUTED
from dual_attention._base.extras import require
from dual_attention._base.files import read_json, write_atomically
from dual_attention._base.intervals import half_width
from dual_attention._base.plots import house_style, matplotlib_figure, save_figure

from ..experiments.relational_games.config import EPOCHS, Task
from ..experiments.relational_games.experiment import TEST_SETS, RelationalGames
from ..experiments.relational_games.grid import GamesGrid, GridData
from ..experiments.relational_games.grid_relations import Detector, auc_of, draw_relation_on_splits, most_improved
from ..experiments.relational_games.model import build_games_model
from ..experiments.relational_games.presets import PRESETS
from ..experiments.relational_games.problem import load_splits
from ..sweeps.grid import MOST_TRIALS, Cell, GridFolder, cells
from ..sweeps.report import mean_text
from ..sweeps.reproduce import GridProgress, worker_count
from ..sweeps.workers import run_cells
from ..training.config_io import build_parser, parse_config, read_config
from ..training.configs import MOST_EPOCHS, MOST_EXAMPLES, MOST_THREADS, check, check_integers, check_seed
from ..training.experiment import count_parameters
from ..training.interrupt import Interrupted, StopOnSignal
from ..training.lock import InUse
from ..training.metrics import Row
from ..training.weights_file import load_weights

TOP_CENTRE = 1
"""The cell of the object that ``occurs`` asks about, counted row by row from 0."""

OBJECTS = {"test": "pentominoes", "hexominoes": "hexominoes", "stripes": "stripes"}
"""Objects of each test set."""


@dataclass(frozen=True)
class DemoConfig:
    """Models, images and time of the demonstration."""

    folder: str = "runs"
    """Folder in which a new folder demo-1, demo-2 ... is made, or one that was interrupted is continued."""
    sizes: tuple[int, ...] = (250, 500, 1000)
    """Training-set sizes."""
    trials: int = 3
    """Trials (seeds) of every size; later ones are left out, and named, when time_budget is too short for them."""
    time_budget: float = 1800.0
    """Seconds in which further trials must end; the first trial is always finished."""
    epochs: int = EPOCHS
    """Passes through the training set."""
    n_test: int = 5000
    """Test images of each of the three object sets."""
    seed: int = 0
    """Seed of the first trial."""
    workers: int | None = None
    """Processes that train at the same time, one CPU thread each; null takes one for each core."""

    def __post_init__(self) -> None:
        check(len(self.sizes) > 0 and min(self.sizes) >= 1, "sizes", "integers of at least 1", self.sizes)
        check(max(self.sizes) <= MOST_EXAMPLES, "sizes", f"integers of at most {MOST_EXAMPLES:,}", self.sizes)
        check(self.time_budget >= 0, "time_budget", "a number of at least 0", self.time_budget)
        check_integers(self, "", "trials", most=MOST_TRIALS)
        check_integers(self, "", "epochs", most=MOST_EPOCHS)
        check_integers(self, "", "n_test", most=MOST_EXAMPLES)
        check_integers(self, "", "workers", most=MOST_THREADS)
        check_seed(self)


SAID = "demo.txt"
"""File of what a demonstration says, written at its end."""

TASK: Task = "occurs"
DAT = "dat-0+2-sym"
RIVAL = "transformer-128-h2-matched"
NAMES = {DAT: "DAT", RIVAL: "Transformer"}
LINES = {DAT: BLUE, RIVAL: GREY}
"""Colours of the models."""
GAMES = RelationalGames()


def demo_grid(config: DemoConfig, out: Path) -> GamesGrid:
    """The demonstration as a grid."""
    grid = GamesGrid(
        out=str(out),
        tasks=(TASK,),
        sizes=config.sizes,
        models=(DAT, RIVAL),
        seeds=config.trials,
        first_seed=config.seed,
        workers=config.workers,
        keep_weights=True,
        data=GridData(n_val=1000, n_test=config.n_test, n_heldout=config.n_test),
    )
    return replace(grid, loop=replace(grid.loop, epochs=config.epochs))


def run_demo(config: DemoConfig) -> Path:
    """Train, measure, draw and say what was seen; returns the folder."""
    started = time.perf_counter()
    with ExitStack() as locks:
        folder = claim_folder(config, locks)
        try:
            demonstrate(config, demo_grid(config, folder.path), folder)
        except Interrupted:
            raise Interrupted(f"the same command continues in {folder.path}") from None
    print(f"done in {time.perf_counter() - started:.0f} s")
    return folder.path


def claim_folder(config: DemoConfig, locks: ExitStack) -> GridFolder:
    """The first of ``demo-1``, ``demo-2`` ... that is new, or has the same demonstration unfinished; it is locked."""
    for number in itertools.count(1):
        folder = GridFolder(GAMES, Path(config.folder) / f"demo-{number}")
        if not folder.path.exists() or is_unfinished(config, folder):
            with suppress(InUse):
                locks.enter_context(folder.locked())
                return folder
    raise AssertionError("numbers do not end")


def is_unfinished(config: DemoConfig, folder: GridFolder) -> bool:
    """Whether the folder has this demonstration, which was interrupted."""
    if not folder.config.exists() or (folder.path / SAID).exists():
        return False
    with suppress(ValueError, OSError):  # of another version, say
        grid = demo_grid(config, folder.path)
        folder.check(grid)
        return read_config(GamesGrid, folder.config) == grid
    return False


def demonstrate(config: DemoConfig, grid: GamesGrid, folder: GridFolder) -> None:
    """The same in a folder that is locked."""
    console = require("rich.console", extra="train").Console(record=True, highlight=False)
    folder.open(grid)
    sizes = [count_parameters(build_games_model(PRESETS[name], 2, seed=0)) for name in (DAT, RIVAL)]
    console.print(
        "[bold]Does the object on top occur among the three below?[/] Two models of the same size learn to tell, from "
        f"{', '.join(f'{n:,}' for n in config.sizes)} example images: a Dual Attention Transformer with relational "
        f"heads (DAT, {sizes[0]:,} parameters) and a Transformer ({sizes[1]:,} parameters).\n"
    )
    train_trials(grid, folder, config.time_budget)
    rows = folder.write_results()
    curves, picture = folder.figures / "learning_curves.png", folder.figures / "relation.png"
    draw_demo_curves(rows, curves)
    n_train = max(config.sizes)
    learned = []
    for seed in sorted({row["seed"] for row in rows}):
        largest = Cell.of(GAMES.table.axes, {"task": TASK, "model": DAT, "n_train": n_train}, seed)
        run = grid.config(largest)
        splits = load_splits(run)
        untrained, model = (build_games_model(PRESETS[DAT], 2, seed=run.weight_seed) for _ in range(2))
        load_weights(model, folder.weights_of(largest))
        learned.append(learned_relation(untrained, model, splits))
        if len(learned) == 1:
            draw_relation_on_splits(model, splits, learned[0][0], picture, TOP_CENTRE)
    console.print(results_table(rows))
    sentences = (
        accuracy_sentence(rows, config.n_test),
        left_out_sentence(rows, grid),
        relation_sentence(learned[0][0], [aucs for _, aucs in learned], n_train),
    )
    for sentence in filter(None, sentences):
        console.print(sentence + "\n")
    print(f"learning curves: {curves}\nrelation:        {picture}\nall numbers:     {folder.results}")
    write_atomically(folder.path / SAID, console.export_text())


def train_trials(grid: GamesGrid, folder: GridFolder, budget: float) -> None:
    """Run the cells, trial after trial, as long as trials end within ``budget`` seconds.

    The first trial is run to its end; a later one is begun if it should fit, and left out again if it does not.
    """
    started = time.perf_counter()
    every = cells(GAMES, grid)
    per_trial = len(every) // grid.seeds
    trials = [every[first : first + per_trial] for first in range(0, len(every), per_trial)]
    waiting = [*folder.left(every), *folder.without_weights(every)]
    folder.forget(waiting)  # what was damaged or lost
    if before := sum(map(folder.done, every)):
        print(f"{folder.path}: {before} of {len(every)} models were trained before")
    with StopOnSignal() as stop, GridProgress(GAMES, [], [], grid) as progress:
        for trial, of_trial in enumerate(trials):
            chosen = [cell for cell in of_trial if not folder.done(cell)]
            elapsed = time.perf_counter() - started
            if chosen and not (trial and elapsed * (trial + 1) / trial > budget):
                progress.extend(chosen)
                deadline = started + budget if trial else math.inf
                run = run_cells(
                    chosen, grid, folder, worker_count(grid), lambda end=deadline: stop() or time.perf_counter() > end
                )
                for cell, seconds in run:
                    progress.done(cell, seconds, line_about(cell, folder, seconds))
                if stop():
                    raise Interrupted
            if not all(map(folder.done, of_trial)):
                for left_out in trials[trial:]:
                    if not all(map(folder.done, left_out)):
                        folder.forget(left_out)
                return


def line_about(cell: Cell, folder: GridFolder, seconds: float) -> str:
    """One line about the result of a cell."""
    accuracy = 100 * read_json(folder.path_of(cell))["accuracy"]["test"]
    name, n_train = NAMES[cell["model"]], cell["n_train"]
    return f"  {name:11} {n_train:6,} images  {accuracy:5.1f} % right on new ones  ({seconds:.0f} s)"


LEAST_GAIN = 0.05
"""Gain of an AUC in a single trial that counts as one."""

Aucs = dict[str, tuple[float, float]]
"""For each test set, a relation's AUC before and after training."""


def learned_relation(untrained: nn.Module, model: nn.Module, splits: Mapping[str, Any]) -> tuple[Detector, Aucs]:
    """The relation that training improved most, on validation images, in telling equal objects from different ones, and
    its AUC on test sets.
    """
    relation = most_improved(untrained, model, splits["val"].images, [TOP_CENTRE])

    def auc(net: nn.Module, name: str) -> float:
        return auc_of(net, splits[name].images, relation, [TOP_CENTRE])

    return relation, {name: (auc(untrained, name), auc(model, name)) for name in TEST_SETS}


def draw_demo_curves(rows: Sequence[Row], path: Path) -> None:
    """Draw accuracy against training-set size on each object set: means as lines, trials as dots."""
    sizes, trials = sizes_of(rows), len({row["seed"] for row in rows})
    with house_style():
        figure, axes = matplotlib_figure(1, len(TEST_SETS), figsize=(8.6, 3.3), sharey=True)
        for axis, object_set in zip(axes, TEST_SETS, strict=True):
            for model, colour in LINES.items():
                means = [mean_accuracy(rows, model, size, object_set) for size in sizes]
                axis.plot(sizes, means, color=colour, label=NAMES[model], linewidth=2.6, zorder=3)
                dots = [(row["n_train"], row[object_set]) for row in rows if row["model"] == model]
                axis.scatter(*zip(*dots, strict=True), color=colour, s=26, alpha=0.55, linewidths=0, zorder=4)
            axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
            axis.axhline(50, color=MUTED, linewidth=1, linestyle=":")
            axis.set_title(TEST_SETS[object_set], fontsize=11)
            axis.set_ylim(45, 100)
            axis.set_xlabel("training images")
        axes[0].set_ylabel("accuracy (%)")
        axes[0].legend(loc="upper left")
        shown = f"Lines: means of {trials} trials, shown as dots" if trials > 1 else "One trial"
        figure.suptitle(f"Is the object on top among the three below?  {shown}", fontsize=12, x=0.01, ha="left")
        figure.tight_layout()
        save_figure(figure, path, dpi=110)


def sizes_of(rows: Sequence[Row]) -> list[int]:
    """Training-set sizes, the smallest first."""
    return sorted({row["n_train"] for row in rows})


def accuracies(rows: Sequence[Row], model: str, n_train: int, object_set: str) -> list[float]:
    """Accuracies in percent of the trials."""
    return [row[object_set] for row in rows if (row["model"], row["n_train"]) == (model, n_train)]


def mean_accuracy(rows: Sequence[Row], model: str, n_train: int, object_set: str) -> float:
    """Mean accuracy in percent over the trials."""
    return fmean(accuracies(rows, model, n_train, object_set))


def results_table(rows: list[Row]) -> Any:
    """Mean accuracies by training-set size, model and object set; the better model of each pair in bold."""
    trials = len({row["seed"] for row in rows})
    note = "one trial" if trials == 1 else f"{trials} trials: mean ± half a 95 % interval"
    table = require("rich.table", extra="train").Table(
        title=f"Accuracy in percent ({note}; chance 50)", title_justify="left", title_style="bold"
    )
    table.add_column("training\nimages", justify="right")
    table.add_column("model")
    for object_set, objects in OBJECTS.items():
        table.add_column(f"{objects}\n({'as trained' if object_set == 'test' else 'never seen'})", justify="right")
    for n_train in sizes_of(rows):
        found = {model: [accuracies(rows, model, n_train, name) for name in TEST_SETS] for model in (DAT, RIVAL)}
        best = [max(map(fmean, of_both)) for of_both in zip(*found.values(), strict=True)]
        for model, values in found.items():
            shown = [
                f"[bold green]{mean_text(v)}[/]" if fmean(v) == top else mean_text(v)
                for v, top in zip(values, best, strict=True)
            ]
            first = f"{n_train:,}" if model == DAT else ""
            table.add_row(first, NAMES[model], *shown, end_section=model == RIVAL)
    return table


def beyond_chance(n: int) -> float:
    """The accuracy in percent on ``n`` images that guessing hardly reaches: chance and three standard deviations."""
    return 50 + 3 * 50 / math.sqrt(n)


def accuracy_sentence(rows: list[Row], n_test: int) -> str:
    """One sentence on the accuracies, of ``n_test`` images in each trial."""
    *smaller, n = sizes_of(rows)
    dat, rival = ({s: mean_accuracy(rows, m, n, s) for s in TEST_SETS} for m in (DAT, RIVAL))
    text = (
        f"From {n:,} images the DAT reaches {dat['test']:.0f} % on new images, the Transformer "
        f"{rival['test']:.0f} %; on objects that neither has seen it is "
        f"{dat['hexominoes']:.0f} against {rival['hexominoes']:.0f} % (hexominoes) and "
        f"{dat['stripes']:.0f} against {rival['stripes']:.0f} % (stripes)"
    )
    least = max(rival["test"], beyond_chance(n_test * len({row["seed"] for row in rows})))
    enough = [size for size in smaller if mean_accuracy(rows, DAT, size, "test") > least]
    if enough:
        text += f", and {enough[0]:,} images already take the DAT past the Transformer's {n:,}"
    return text + "."


def left_out_sentence(rows: list[Row], grid: GamesGrid) -> str:
    """Trials that were left out, why, and the command that runs them; empty if there are none."""
    done = {row["seed"] for row in rows}
    left = [str(seed) for seed in range(grid.first_seed, grid.first_seed + grid.seeds) if seed not in done]
    if not left:
        return ""
    count = "One trial was" if len(done) == 1 else f"{len(done)} trials were"
    return (
        f"{count} run; {'that' if len(left) == 1 else 'those'} of seed {', '.join(left)} would not have ended in "
        "--time_budget. Single trials differ by several points, so the models may change places. "
        f"To run the rest:\ndat reproduce relational-games --config {shlex.quote(str(Path(grid.out) / 'grid.yaml'))}"
    )


def relation_sentence(relation: Detector, trials: Sequence[Aucs], n_train: int) -> str:
    """Sentences on the relation that training improved most, with its AUCs in each trial; it is drawn of the first."""

    def share(name: str, when: int) -> str:
        return mean_text([100 * aucs[name][when] for aucs in trials], 0)

    shares = [
        f"{share(name, 1)} % of pairs of {OBJECTS[name]} ({share(name, 0)} % before training)" for name in OBJECTS
    ]
    text = (
        "No label said which objects are equal. The relation that training improved most at telling, on validation "
        f"images (in the picture relation {relation.index + 1} of layer {relation.layer + 1} of a DAT trained on "
        f"{n_train:,} images), puts an object equal to the top one before a different one in {', '.join(shares[:-1])} "
        f"and {shares[-1]}; 50 % is chance (AUC)."
    )
    if not is_made(trials):
        text += " Training did not make it: it is about as good before."
    return text


def is_made(trials: Sequence[Aucs]) -> bool:
    """Whether training improved the relation on new pentominoes beyond the differences between trials."""
    gains = [after - before for before, after in (aucs["test"] for aucs in trials)]
    return fmean(gains) > (half_width(gains) if len(gains) > 1 else LEAST_GAIN)


def demo(prog: str, arguments: Sequence[str]) -> int:
    """``dat demo``."""
    parser = build_parser(
        DemoConfig,
        prog=prog,
        description="Train a DAT and a Transformer of the same size on few examples, compare them on objects seen and "
        "never seen in training, and look at a relation that the DAT has learned. About five minutes on two free "
        "cores.",
    )
    config, _ = parse_config(parser, DemoConfig, arguments)
    run_demo(config)
    return 0
