"""``dat plot``: tables and figures from the results of several grids."""

from collections.abc import Sequence

from dual_attention._base.words import listed, printable

from .._terminal import tell
from ..experiments import experiment_named
from ..sweeps.experiment import swept
from ..sweeps.grid import GridFolder
from ..sweeps.report import UNPAIRED, plot_results
from ..sweeps.sources import labelled
from ..training.config_io import option_parser, parse_options
from .reproduce import check_grid_of, of_study, takes_study

ABOUT = (
    "Tables and figures from the results of one or several grids, finished or not: results.csv of all of them, "
    "comparison.md (beside published numbers, if there are any) and the figures of the experiment."
)


def plot(prog: str, arguments: Sequence[str], name: str) -> int:
    """``dat plot NAME``."""
    experiment, arguments = of_study(swept(experiment_named(name)), arguments)
    parser = option_parser(prog=prog, description=ABOUT)
    parser.add_argument(
        "sources",
        metavar="SOURCE",
        nargs="+",
        help="Folders of grids, or results.csv files. Those with a label, as in mine=runs/GRID theirs=results.csv, are "
        "not merged but drawn over each other, however they were made.",
    )
    parser.add_argument("--out", metavar="FOLDER", required=True, help="Folder to write to; nothing is overwritten.")
    takes_study(parser)
    texts = [axis for axis in reversed(experiment.table.axes) if not axis.number]
    for axis in texts:
        parser.add_argument(
            f"--{axis.name}s", type=list[str], default=[], help=f"Only these {axis.plural}; by default all."
        )
    curve = experiment.table.curve_axis.name
    parser.add_argument(
        "--against",
        metavar=curve.upper(),
        help=f"Also write contrasts.md and .png: differences from this {curve}, paired by seed, with t-intervals.",
    )
    options = parse_options(parser, arguments)
    for source in options.sources:
        folder = str(labelled(source)[1])
        check_grid_of(experiment, folder)
        if names := [cell.name for cell in GridFolder(experiment, folder).not_run()]:
            tell(f"{folder}: cells not run: {listed(names)}")
    chosen = {axis.name: getattr(options, f"{axis.name}s") for axis in texts}
    written = plot_results(experiment, options.sources, options.out, chosen, options.against)
    for path in written:
        print(printable(str(path)))
    if options.against and not any(path.name == "contrasts.png" for path in written):
        tell(f"against {options.against}: {UNPAIRED}")
    return 0
