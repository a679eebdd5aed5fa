"""``dat reproduce``: a grid of runs of an experiment, in parallel and resumable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dual_attention._words import printable

from ..experiments import EXPERIMENTS, experiment_named
from ..sweeps.analysis import find_analysis
from ..sweeps.experiment import AnySwept, SweptExperiment, swept
from ..sweeps.grid import GridFolder
from ..sweeps.learning_rates import TABLE
from ..sweeps.report import REPORT
from ..sweeps.reproduce import reproduce as run_grid
from ..training.config_io import as_options, build_parser, expand, parse_config, read_config
from ..training.interrupt import Interrupted


def reproduce(prog: str, arguments: Sequence[str], name: str) -> int:
    """``dat reproduce NAME``."""
    experiment = swept(experiment_named(name))
    parser = build_parser(experiment.Grid, prog=prog, description=experiment.about_reproduce)
    if grids := experiment.grids:
        parser.add_argument(
            "--scale", metavar="NAME", help=f"Fill the keys with a grid that comes with it: {', '.join(grids)}."
        )
    default = "that of the --scale, if it has one, or the one recorded in the folder"
    takes_analysis(parser, experiment, "record before the first cell and to compute", default)
    parser.add_argument("--dry_run", action="store_true", help="List the cells and the time they take, and stop.")
    parser.add_argument("--quiet", action="store_true", help="Print nothing but errors.")
    grid, options = parse_config(parser, experiment.Grid, expand_scales(experiment, arguments) if grids else arguments)
    check_grid_of(experiment, grid.out)
    analysis = find_analysis(experiment, options.analysis, scale_of(arguments))
    try:
        folder = run_grid(experiment, grid, analysis=analysis, dry_run=options.dry_run, quiet=options.quiet)
    except Interrupted:
        raise Interrupted(f"the same command continues in {grid.out}") from None
    if not options.dry_run and not options.quiet:
        table = "beside the published ones" if experiment.compares and grid.match is None else "as a table"
        made = {"results": folder.results, table: folder.comparison, "figures": folder.figures}
        made |= {"learning rates": folder.path / TABLE, "report": folder.path / REPORT}
        print(printable("\n".join(f"{what}: {path}" for what, path in made.items() if path.exists())))
    return 0


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


def takes_analysis(parser: Any, experiment: AnySwept, use: str, default: str) -> None:
    """Add ``--analysis`` to the options; ``use`` and ``default`` are words of its help."""
    known = f" ({', '.join(experiment.analyses)})" if experiment.analyses else ""
    about = f"Analysis to {use}: a file, or one that comes with the experiment{known}. By default {default}."
    parser.add_argument("--analysis", metavar="NAME", help=about)


def scale_of(arguments: Sequence[str]) -> str | None:
    """The last ``--scale NAME``; None without one."""
    found: list[str] = []
    expand(arguments, "--scale", lambda name: found.append(name) or [])
    return found[-1] if found else None


def expand_scales(experiment: AnySwept, arguments: Sequence[str]) -> list[str]:
    """``arguments`` with the keys of a shipped grid in place of every ``--scale NAME``, see :func:`expand`."""
    return expand(arguments, "--scale", lambda name: as_options(experiment.grid_named(name)))
