"""``dat reproduce``: a grid of runs of an experiment, in parallel and resumable."""

from __future__ import annotations

from argparse import SUPPRESS
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dual_attention._words import printable

from ..experiments import EXPERIMENTS, experiment_named
from ..sweeps.experiment import AnySwept, SweptExperiment, swept
from ..sweeps.grid import GridFolder
from ..sweeps.reproduce import reproduce as run_grid
from ..sweeps.study import load_study, with_study
from ..training.config_io import as_options, build_parser, expand, parse_config, read_config, without_gone
from ..training.interrupt import Interrupted


def reproduce(prog: str, arguments: Sequence[str], name: str) -> int:
    """``dat reproduce NAME``."""
    experiment, arguments = of_study(swept(experiment_named(name)), arguments)
    parser = build_parser(experiment.Grid, prog=prog, description=experiment.about_reproduce)
    takes_study(parser)
    if grids := experiment.grids:
        parser.add_argument(
            "--scale", metavar="NAME", help=f"Fill the keys with a grid that comes with it: {', '.join(grids)}."
        )
    parser.add_argument("--dry_run", action="store_true", help="List the cells and the time they take, and stop.")
    parser.add_argument("--quiet", action="store_true", help="Print nothing but errors.")
    for key in experiment.Grid.gone:  # which a file of an earlier version may hold
        parser.add_argument(f"--{key}", help=SUPPRESS)
    grid, options = parse_config(parser, experiment.Grid, expand_scales(experiment, arguments) if grids else arguments)
    without_gone(experiment.Grid, vars(options))
    check_grid_of(experiment, grid.out)
    try:
        folder = run_grid(experiment, grid, dry_run=options.dry_run, quiet=options.quiet)
    except Interrupted:
        raise Interrupted(f"the same command continues in {grid.out}") from None
    if not options.dry_run and not options.quiet:
        table = "beside the published ones" if experiment.compares else "as a table"
        made = {"results": folder.results, table: folder.comparison, "figures": folder.figures}
        print(printable("\n".join(f"{what}: {path}" for what, path in made.items() if path.exists())))
    return 0


def of_study(experiment: AnySwept, arguments: Sequence[str]) -> tuple[AnySwept, list[str]]:
    """The experiment with what the last ``--study FILE`` adds to it, and the other arguments.

    Raises:
        ValueError: if the study is of another experiment; as :func:`~dat.sweeps.study.load_study`.
    """
    files: list[str] = []
    others = expand(arguments, "--study", lambda file: files.append(file) or [])
    if not files:
        return experiment, others
    study = load_study(files[-1])
    if (name := experiment_named(study.experiment).name) != experiment.name:
        raise ValueError(f"{study.file}: a study of {name}, not of {experiment.name}")
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


def expand_scales(experiment: AnySwept, arguments: Sequence[str]) -> list[str]:
    """``arguments`` with the keys of a shipped grid in place of every ``--scale NAME``, see :func:`expand`."""
    return expand(arguments, "--scale", lambda name: as_options(experiment.grid_named(name)))
