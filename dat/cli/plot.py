"""``dat plot``: tables and figures from the results of several grids."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from dual_attention._words import listed, printable

from ..experiments import experiment_named
from ..sweeps.analysis import find_analysis
from ..sweeps.experiment import AnySwept, swept
from ..sweeps.followed import recorded_analysis
from ..sweeps.grid import GridFolder
from ..sweeps.report import Reading, plot_results
from ..training.config_io import option_parser, parse_options
from ..training.configs import check
from .reproduce import check_grid_of, takes_analysis


def plot(prog: str, arguments: Sequence[str], name: str) -> int:
    """``dat plot NAME``."""
    experiment = swept(experiment_named(name))
    parser = option_parser(prog=prog, description=experiment.about_plot)
    parser.add_argument("sources", metavar="SOURCE", nargs="+", help="Folders of grids, or results.csv files.")
    parser.add_argument("--out", metavar="FOLDER", required=True, help="Folder to write to; nothing is overwritten.")
    texts = [axis for axis in reversed(experiment.axes) if not axis.number]
    for axis in texts:
        parser.add_argument(
            f"--{axis.name}s", type=list[str], default=[], help=f"Only these {axis.plural}; by default all."
        )
    curve = experiment.curve_axis.name
    parser.add_argument(
        "--against",
        metavar=curve.upper(),
        help=f"Also write contrasts.md and contrasts.png: differences from this {curve}, paired by seed.",
    )
    parser.add_argument(
        "--bound", type=float, metavar="X", help="With --against: test equivalence within ±X of all measures, too."
    )
    takes_analysis(parser, experiment, "compute, report.md", "the one recorded in the sources, if it is one")
    options = parse_options(parser, arguments)
    how = reading(experiment, options)
    for source in options.sources:
        check_grid_of(experiment, source)
        if names := [cell.name for cell in GridFolder(experiment, source).not_run()]:
            print(printable(f"dat: {source}: cells not run: {listed(names)}"), file=sys.stderr)
    chosen = {axis.name: getattr(options, f"{axis.name}s") for axis in texts}
    for path in plot_results(experiment, options.sources, options.out, chosen, how):
        print(printable(str(path)))
    return 0


def reading(experiment: AnySwept, options: Any) -> Reading:
    """The reading of results that the options ask for; ``ValueError`` if they do not go together."""
    check(options.bound is None or 0 < options.bound < inf, "bound", "a positive number", options.bound)
    analysis = find_analysis(experiment, options.analysis)
    if options.analysis is None:
        recorded = [found for source in options.sources if (found := recorded_analysis(Path(source))) is not None]
        analysis = recorded[0] if recorded and all(found == recorded[0] for found in recorded) else None
    check(options.bound is None or options.against is not None or analysis is not None, "bound", "--against, too", None)
    return Reading(options.against, options.bound, analysis)
