"""The sub-commands of ``dat`` about Relational Games: from words on the command line to calls of functions."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..._extras import require
from ...training.config_io import (
    as_options,
    build_parser,
    check_resume_alone,
    option_parser,
    parse_config,
    parse_options,
    replace_presets,
)
from ...training.configs import MachineConfig
from ...training.interrupt import Interrupted
from ...training.run_folder import RunFolder
from .config import RelationalGamesConfig
from .grid import GridConfig
from .presets import PRESETS, preset

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells expect it."""


def expand_presets(arguments: Sequence[str]) -> list[str]:
    """``arguments`` with every ``--preset NAME`` replaced by the options that it stands for.

    Raises:
        ValueError: if there is no preset of that name.
    """
    return replace_presets(arguments, lambda name: as_options("--model", asdict(preset(name))))


def train(prog: str, arguments: Sequence[str]) -> int:
    """``dat train relational-games``."""
    from .train import resume_run, start_run

    parser = build_parser(
        RelationalGamesConfig,
        prog=prog,
        description="Train one model on one Relational Games task, in a new run folder.",
    )
    parser.add_argument(
        "--preset", metavar="NAME", help=f"Fill the keys of the model with a named one: {', '.join(PRESETS)}."
    )
    parser.add_argument("--resume", metavar="RUN", help="Continue the unfinished run in this folder; given alone.")
    config, options = parse_config(parser, RelationalGamesConfig, expand_presets(arguments))
    check_resume_alone(options.resume, arguments)
    path = Path(options.resume or Path(config.output.folder) / config.run_name)
    try:
        folder = resume_run(path) if options.resume is not None else start_run(config)
    except Interrupted:
        print(f"dat: interrupted; continue with: {prog} --resume {path}", file=sys.stderr)
        return INTERRUPTED
    if options.resume is not None or config.output.progress:
        show_run(folder)
    return 0


def show_run(folder: RunFolder) -> None:
    """Print the accuracies of a finished run and where its files are."""
    from .evaluate import accuracy_table

    result = folder.read_result()
    numbers = {n: {"accuracy": a, "loss": result["loss"][n]} for n, a in result["accuracy"].items()}
    title = f"{result['task']}, {result['n_train']:,} examples: {result['model']}"
    console().print(accuracy_table(numbers, title))
    print(
        f"{result['parameters']:,} parameters, {result['steps']:,} steps, {result['seconds']:.0f} s of training "
        f"({result['examples_per_second']:,.0f} images a second)\nrun folder: {folder.path}"
    )


def console() -> Any:
    """A rich console on standard output."""
    return require("rich.console", extra="train").Console()


def evaluate(run: str, machine: MachineConfig, *, as_json: bool) -> int:
    """``dat evaluate`` of a run of Relational Games."""
    from .evaluate import accuracy_table, evaluate_run

    results = evaluate_run(run, machine)
    if as_json:
        print(json.dumps(results, indent=2))
        return 0
    result = RunFolder(run).read_result()
    title = f"{result['task']}, {result['n_train']:,} examples: {result['model']}"
    console().print(accuracy_table(results, title))
    return 0


def reproduce(prog: str, arguments: Sequence[str]) -> int:
    """``dat reproduce relational-games``."""
    from .reproduce import reproduce as run_grid

    parser = build_parser(
        GridConfig,
        prog=prog,
        description="Learning curves on Relational Games. The defaults are the published grid; cells that are done "
        "are skipped, so the same command continues after Ctrl-C. Writes results.csv, comparison.md (beside the "
        "published numbers) and figures/ into the folder.",
    )
    parser.add_argument("--dry_run", action="store_true", help="List the cells and the time they take, and stop.")
    parser.add_argument("--quiet", action="store_true", help="Print nothing but errors.")
    grid, options = parse_config(parser, GridConfig, arguments)
    try:
        folder = run_grid(grid, dry_run=options.dry_run, quiet=options.quiet)
    except Interrupted:
        print(f"dat: interrupted; the same command continues in {grid.out}", file=sys.stderr)
        return INTERRUPTED
    if not options.dry_run and not options.quiet:
        print(f"results: {folder.results}\nbeside the published ones: {folder.comparison}\nfigures: {folder.figures}")
    return 0


def plot(prog: str, arguments: Sequence[str]) -> int:
    """``dat plot relational-games``."""
    from .plot import plot_results

    parser = option_parser(
        prog=prog,
        description="Learning curves from the results of one or several grids, finished or not: results.csv of all of "
        "them, comparison.md (beside the published numbers), learning_curves.png, heldout.png and, with relational "
        "architectures before DATs among the models, baselines.png.",
    )
    parser.add_argument("sources", metavar="SOURCE", nargs="+", help="Folders of grids, or results.csv files.")
    parser.add_argument("--out", metavar="FOLDER", required=True, help="Folder to write to; nothing is overwritten.")
    parser.add_argument("--models", type=list[str], default=[], help="These models alone; by default all.")
    parser.add_argument("--tasks", type=list[str], default=[], help="These tasks alone; by default all.")
    options = parse_options(parser, arguments)
    for path in plot_results(options.sources, options.out, models=options.models, tasks=options.tasks):
        print(path)
    return 0


def data(prog: str, arguments: Sequence[str]) -> int:
    """``dat data relational-games``."""
    from ...data.relational_games import EXTRA_TASKS, OBJECT_SETS, TASKS, contact_sheet

    parser = option_parser(prog=prog, description="Draw a contact sheet: examples of every class of every task.")
    parser.add_argument("--out", metavar="PNG", required=True, help="Picture to write; it is not overwritten.")
    parser.add_argument(
        "--tasks",
        type=list[str],
        default=list(TASKS),
        help=f"Tasks, among {', '.join((*TASKS, *EXTRA_TASKS))}.",
    )
    parser.add_argument("--objects", type=list[str], default=list(OBJECT_SETS), help="Object sets.")
    parser.add_argument("--per_class", type=int, default=4, help="Examples of each class.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the images.")
    options = parse_options(parser, arguments)
    path = Path(options.out)
    if path.exists():
        raise FileExistsError(f"--out: {path} exists already and is not overwritten")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"--out: there is no folder {path.parent}")
    contact_sheet(
        path,
        tasks=tuple(options.tasks),
        objects=tuple(options.objects),
        per_class=options.per_class,
        seed=options.seed,
    )
    print(path)
    return 0


def demo(prog: str, arguments: Sequence[str]) -> int:
    """``dat demo``."""
    from .demo import DemoConfig, run_demo

    parser = build_parser(
        DemoConfig,
        prog=prog,
        description="Train a DAT and a Transformer of the same size on few examples, compare them on objects seen and "
        "never seen in training, and look at a relation that the DAT has learned. About two minutes on two cores.",
    )
    config, _ = parse_config(parser, DemoConfig, arguments)
    try:
        run_demo(config)
    except Interrupted:
        print("dat: interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0
