"""``dat compare DATA``: models on data of the user's own, each at a learning rate that validation chooses."""

import re
import shlex
from argparse import SUPPRESS
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from dual_attention._base.checksums import sha256_of
from dual_attention._base.files import write_atomically
from dual_attention._base.words import listed, printable

from .._own_code import file_of, give
from ..experiments.own_data.config import OWN, RATES, ArmConfig, ComparisonGrid, RatesGrid
from ..experiments.own_data.experiment import chosen_rates, lines_of_comparison, told_of
from ..experiments.own_data.kinds import OwnData, forget_data, load_own
from ..experiments.own_data.models import build_arm, put_heads
from ..sweeps.durations import rates
from ..sweeps.grid import GridFolder, cells
from ..sweeps.report import contrasts_text
from ..sweeps.reproduce import reproduce, time_left
from ..sweeps.results import cell_rows, sound_cells, to_csv
from ..sweeps.workers import CellsFailed
from ..training.config_io import build_parser, parse_config
from ..training.configs import check
from ..training.interrupt import Interrupted
from ..training.loop import Diverged
from ..training.tables import show

HIDDEN = ("path", "contents", "heads_digest", "lr_of")
"""Keys that the command fills in itself."""
DIVERGED = "diverged.txt"
"""File beside the runs that choose learning rates: the names of those that diverged."""
_NUMBER = re.compile(r"(?<=[\[,])\s*([-+.]?\d[\w.+-]*)\s*(?=[,\]])")  # in a list, where it names a column
ABOUT = (
    "Compare models on data of yours: a table (CSV, TSV, Parquet; --target names the column to predict), a folder with "
    "a folder of pictures for each class, or texts. Each model tries the same learning rates and takes the one that is "
    "best on the validation set; then it is trained from several seeds and measured on the test set, beside a rule "
    "that learns nothing. The same command continues after Ctrl-C. Writes results.csv, split.csv, "
    "comparison.md, contrasts.md and figures/comparison.png."
)


def in_full(arguments: Sequence[str]) -> list[str]:
    """The arguments with DATA as ``--path``, lists of names in brackets, and a folder that is named after the data."""
    words, lists, before = [*arguments], ("--models", "--categories", "--leave_out"), ""
    if words and not words[0].startswith("-"):
        words[:1] = [f"--out=runs/compare-{printable(Path(words[0]).resolve().stem)}", f"--path={words[0]}"]
    for place, word in enumerate(words):
        option, is_, names = ("", "", word) if before in lists else word.partition("=")
        if (option or before) in lists and names:
            names = names if names.startswith("[") else f"[{names}]"
            words[place] = option + is_ + _NUMBER.sub(r'"\1"', names)
        before = word
    return words


def compare(prog: str, arguments: Sequence[str]) -> int:
    """``dat compare DATA``."""
    parser = build_parser(ComparisonGrid, prog=prog, description=ABOUT)
    parser.usage = "%(prog)s DATA [--target COLUMN] [--KEY VALUE ...]"
    for action in parser._actions:
        if action.dest in HIDDEN:
            action.help = SUPPRESS
    parser.add_argument("--dry_run", action="store_true", help="Say what is there and how long it takes, and stop.")
    parser.add_argument("--quiet", action="store_true", help="Print nothing but errors.")
    grid, options = parse_config(parser, ComparisonGrid, in_full(arguments))
    if not grid.path:
        raise ValueError("dat compare: expected DATA next, a table, a folder of pictures, or texts; --help says more")
    check(grid.lr_of is None, "lr_of", "null, since the validation set chooses the learning rates", grid.lr_of)
    forget_data()
    data = load_own(grid.data)
    grid = replace(grid, contents=data.digest, n_train=grid.n_train or data.sizes["train"])
    if grid.heads is not None:
        if any(grid.heads in word for word in arguments):  # and not only a file that --config names
            give(grid.heads)
        own = ArmConfig.of(vars(grid), name=OWN, arm=OWN)
        put_heads(build_arm(data.build, replace(own, arm="transformer")), grid.heads, tried=True)
        file = file_of(grid.heads)
        grid = replace(grid, heads_digest=sha256_of(file) if file.is_file() else None)
    before = RatesGrid.before(grid)
    tuning, folder = GridFolder(told_of(data, before), before.out), GridFolder(told_of(data, grid), grid.out)
    before = without(before, diverged_in(tuning))
    grid = at_own_rates(tuning, before, grid, data)
    folder.check(grid)
    tuning.check(before)
    if not options.quiet:
        show(f"{data.about}\n{estimate_text(tuning, before, folder, grid)}")
    if options.dry_run:
        show("Nothing was run (--dry_run).")
        return 0
    with folder.locked():
        folder.open(grid)
        if data.parts:
            write_atomically(folder.path / "split.csv", to_csv(data.parts))
    try:
        if before.arms():
            before = run_candidates(tuning, before, quiet=options.quiet)
        grid = at_own_rates(tuning, before, grid, data)
        reproduce(folder.experiment, grid, quiet=options.quiet)
    except Interrupted:
        raise Interrupted(f"the same command continues: {prog} {' '.join(map(shlex.quote, arguments))}") from None
    write_report(folder, grid, diverged_in(tuning), quiet=options.quiet)
    return 0


def diverged_in(folder: GridFolder) -> list[str]:
    """Names of the runs in a folder that diverged, and so are no candidates."""
    path = folder.path / DIVERGED
    return path.read_text(encoding="utf-8").split() if path.is_file() else []


def without(grid: RatesGrid, names: Collection[str]) -> RatesGrid:
    """The runs that choose learning rates except some."""
    return replace(grid, lr_of={name: rate for name, rate in (grid.lr_of or {}).items() if name not in names})


def run_candidates(folder: GridFolder, grid: RatesGrid, *, quiet: bool) -> RatesGrid:
    """Run what chooses learning rates, and return those that did not diverge.

    Raises:
        CellsFailed: if all of a model diverged, or one failed for another reason.
    """
    try:
        reproduce(folder.experiment, grid, quiet=quiet)
    except CellsFailed as error:
        gone = [cell["model"] for cell in error.failed]
        left = without(grid, gone)
        candidates = {name.rpartition("-lr")[0] for name in left.arms()}
        if candidates != {*grid.models} or not all(isinstance(one, Diverged) for one in error.failed.values()):
            raise
        write_atomically(folder.path / DIVERGED, "\n".join([*diverged_in(folder), *gone, ""]))
        return left
    return grid


def at_own_rates(folder: GridFolder, before: RatesGrid, grid: ComparisonGrid, data: OwnData) -> ComparisonGrid:
    """The grid at the learning rates that the runs in a folder choose, as far as they are done."""
    done = cell_rows(folder.experiment, sound_cells(folder.path))
    return replace(grid, lr_of=chosen_rates(done, before, data.measure) or None)


def estimate_text(tuning: GridFolder, before: RatesGrid, folder: GridFolder, grid: ComparisonGrid) -> str:
    """The runs to come and the time that they take, in words."""
    to_choose, to_compare = cells(tuning.experiment, before), cells(folder.experiment, grid)
    waiting = [before.config(cell) for cell in tuning.left(to_choose)]
    waiting += [grid.config(cell) for cell in folder.left(to_compare)]
    rate_of = rates(folder, grid, to_compare) if waiting else {}
    work = [(rate_of.get(config.model.arm), folder.experiment.cost(config).work) for config in waiting]
    seconds = [None if rate is None else rate * examples for rate, examples in work]
    tried = ", ".join(f"{rate:g}" for rate in sorted(RATES[: grid.budget]))
    done = len(to_choose) + len(to_compare) - len(waiting)
    return (
        f"runs: {len(to_choose)} to choose learning rates ({tried}), {len(to_compare)} to compare; {done} done; "
        f"{time_left(seconds, grid, 'model')}"
    )


def write_report(folder: GridFolder, grid: ComparisonGrid, diverged: Sequence[str], *, quiet: bool) -> None:
    """Write the differences of a comparison that is done, and show its table.

    Args:
        diverged: runs that chose no learning rate.
    """
    table, rows = folder.experiment.table, cell_rows(folder.experiment, sound_cells(folder.path))
    write_atomically(folder.path / "contrasts.md", contrasts_text(table, rows, grid.models[0]))
    if quiet:
        return
    show(lines_of_comparison(table, rows, grid))
    tried, own = RATES[: grid.budget], grid.lr_of or {}
    edge = [model for model, rate in own.items() if len(tried) > 2 and rate in (min(tried), max(tried))]
    trials = Counter(row["model"] for row in rows if row["model"] in grid.arms()).values()
    if max(trials) > 1:
        over = f"{min(trials)} to {max(trials)}" if min(trials) < max(trials) else max(trials)
        said = "all have one split, so the interval does not cover other test sets"
        show(f"mean ± half of the 95 % t-interval over {over} seeds; {said}")
    else:
        show("one seed, so there is no interval")
    if OWN in grid.models:
        show(f"{OWN}: {grid.heads} in a Transformer; its weights are not matched to the others'")
    if diverged:
        show(f"{listed(diverged)}: diverged, so the best of the other learning rates was taken")
    if edge:
        show(f"{listed(edge)}: the best learning rate is the last that was tried; a larger --budget tries more")
    names = ("results.csv", "comparison.md", "contrasts.md", "figures/comparison.png", "rates/comparison.md")
    show(f"{folder.path}: {listed([name for name in names if (folder.path / name).exists()])}")
