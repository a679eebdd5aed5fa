"""``dat reproduce``: a grid of runs of an experiment, in parallel and resumable."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from dual_attention._base.words import printable

from ..experiments import EXPERIMENTS, experiment_named
from ..sweeps.experiment import AnySwept, SweptExperiment, swept
from ..sweeps.grid import GridFolder
from ..sweeps.reproduce import reproduce as reproduce_grid
from ..sweeps.study import Study, check_rules, load_study, with_study
from ..training.config_io import OptionParser, build_parser, parse_config, read_config
from ..training.configs import value_named

OF_EVERY_GRID = (
    "Cells that are done are skipped, so the same command continues after Ctrl-C. Writes results.csv, comparison.md "
    "(beside published numbers, if there are any) and figures/ into the folder."
)


def grid_parser(prog: str, experiment: AnySwept) -> OptionParser:
    """The options of ``dat reproduce NAME``."""
    about = f"{experiment.about.get('reproduce', '')} {OF_EVERY_GRID}".lstrip()
    parser = build_parser(experiment.Grid, prog=prog, description=about)
    takes_study(parser)
    if grids := experiment.scales:
        about = f"Fill the keys with a grid that comes with it: {', '.join(grids)}."
        names = Literal[tuple(grids)]
        parser.add_settings(
            "--scale", lambda name: asdict(value_named("scale", grids, name)), hint=names, metavar="NAME", help=about
        )
    parser.add_argument("--dry_run", action="store_true", help="List the cells and the time they take, and stop.")
    parser.add_argument("--quiet", action="store_true", help="Print nothing but errors.")
    return parser


def reproduce(prog: str, arguments: Sequence[str], name: str) -> int:
    """``dat reproduce NAME``."""
    experiment, arguments = of_study(swept(experiment_named(name)), arguments, check_rules)
    grid, options = parse_config(grid_parser(prog, experiment), experiment.Grid, arguments)
    grid = without_idle_rates(experiment, grid)
    check_grid_of(experiment, grid.out)
    folder = reproduce_grid(experiment, grid, dry_run=options.dry_run, quiet=options.quiet)
    if not options.dry_run and not options.quiet:
        table = "beside the published ones" if experiment.table.published is not None else "as a table"
        made = {"results": folder.results, table: folder.comparison, "figures": folder.figures}
        if not experiment.table.figures:
            del made["figures"]
        print(printable("\n".join(f"{what}: {path}" for what, path in made.items() if path.exists())))
    return 0


def without_idle_rates(experiment: AnySwept, grid: Any) -> Any:
    """The grid without learning rates of its scale's arms that ``--models`` leaves out."""
    arms = {point[experiment.table.curve_axis.name] for point in grid.points()}
    of_scales = {name for scale in experiment.scales.values() for name in scale.lr_of or {}}
    rates = {name: rate for name, rate in (grid.lr_of or {}).items() if name in arms or name not in of_scales}
    return replace(grid, lr_of=rates or None)


def of_study(
    experiment: AnySwept, arguments: Sequence[str], check: Callable[[Study], None] | None = None
) -> tuple[AnySwept, list[str]]:
    """The experiment with what the last ``--study FILE`` adds to it, and the other arguments.

    Args:
        check: refuses a study by a ``ValueError``.

    Raises:
        ValueError: if the study is of another experiment; as :func:`~dat.sweeps.study.load_study`.
    """
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    finder.add_argument("--study")
    try:
        found, others = finder.parse_known_args(list(arguments))
    except argparse.ArgumentError as error:
        raise ValueError("study: expected a file, got nothing") from error
    if found.study is None:
        return experiment, others
    study = load_study(found.study)
    if (name := experiment_named(study.experiment).name) != experiment.name:
        raise ValueError(f"{study.file}: a study of {name}, not of {experiment.name}")
    if check is not None:
        check(study)
    return with_study(experiment, study), others


def takes_study(parser: Any) -> None:
    """Add ``--study`` to the options, for their help: :func:`of_study` takes it from the arguments beforehand."""
    about = "Python file of a study, such as studies/NAME/study.py, with further grids, models and figures."
    parser.add_argument("--study", metavar="FILE", help=about)


def check_grid_of(experiment: AnySwept, path: str) -> None:
    """Raise ``ValueError`` if the folder holds a grid of another experiment; its ``grid.yaml`` has keys of that one."""
    file = GridFolder(experiment, path).config
    if not file.is_file() or is_grid_of(experiment, file):
        return
    others = (entry.load() for name, entry in EXPERIMENTS.items() if name != experiment.name)
    for other in others:
        if isinstance(other, SweptExperiment) and is_grid_of(other, file):
            raise ValueError(f"{path}: a grid of {other.name}, not of {experiment.name}; name another folder")


def is_grid_of(experiment: AnySwept, file: Path) -> bool:
    """Whether a file is the configuration of a grid of the experiment."""
    try:
        read_config(experiment.Grid, file)
    except ValueError:
        return False
    return True
