"""``dat data``: examples of an experiment's data as a picture, or a file of data."""

from collections.abc import Sequence
from pathlib import Path

from dual_attention._base.words import printable

from ..experiments import experiment_named
from ..training.config_io import build_parser, parse_config


def data(prog: str, arguments: Sequence[str], name: str) -> int:
    """``dat data NAME``."""
    experiment = experiment_named(name)
    if experiment.Sheet is None:
        raise ValueError(f"{name}: expected an experiment with a picture of its data")
    parser = build_parser(experiment.Sheet, prog=prog, description=experiment.about.get("data", ""))
    options, _ = parse_config(parser, experiment.Sheet, arguments)
    path = Path(options.out)
    if path.exists():
        raise FileExistsError(f"--out: {path} exists already and is not overwritten")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"--out: there is no folder {path.parent}")
    options.draw()
    print(printable(str(path)))
    return 0
