"""Experiments in Python files of the user's own, named on the command line as ``FILE.py`` or ``FILE.py:CLASS``.

A file is run because somebody named it, never because a configuration does: opening a stranger's run is safe.
"""

import copyreg
import shlex
from pathlib import Path
from typing import Any

from .._own_code import FILE, OPTION, class_in, file_of, give, here_or_in, is_meant, module_of
from ..training.config_data import types_of
from ..training.experiment import AnyExperiment, Experiment

_named: dict[tuple[Path, str], AnyExperiment] = {}  # those that this process was asked for, by file and class


def load(name: str) -> AnyExperiment:
    """Run a file, unless this process has imported it already, and return its experiment.

    Modules beside the file can be imported by it, as by a script.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming the file, if it cannot be run, or has no experiment, or several and none was named.
    """
    match = FILE.fullmatch(name)
    if match is None:
        raise ValueError(f"experiment: expected FILE.py or FILE.py:CLASS, got {name!r}")
    file = file_of(name)
    kind = _experiment_in(file, match["kind"])
    experiment = kind()
    experiment.source = f"{match['file']}:{kind.__name__}"
    full = f"{file.resolve()}:{kind.__name__}"
    # Processes of a grid are given the experiment first: they load the file before they meet its other classes.
    copyreg.pickle(kind, lambda _: (load, (full,)))
    _named[file.resolve(), kind.__name__] = experiment
    return experiment


def named(name: str) -> AnyExperiment | None:
    """The experiment that a configuration calls by this name, if it is in a file that this process was asked for."""
    return next((experiment for experiment in reversed(_named.values()) if goes_by(experiment, name)), None)


def goes_by(experiment: AnyExperiment, name: str) -> bool:
    """Whether a configuration that gives this name is of the experiment. A file may have moved, but not its name."""
    return name == experiment.name or is_meant(experiment.source, name)


def refusal(name: str, source: object) -> str:
    """Sentence on a configuration that names a file which nobody else has named.

    Args:
        source: the file of the configuration; a run folder keeps a copy of its experiment beside it.
    """
    found = here_or_in(Path(str(source)).parent, name)
    if not file_of(found).is_file():
        what = f"but there is no {file_of(name)} here; name its file: --experiment FILE.py"
    else:
        what = f"a Python file, which is run only if you name it (read it first): --experiment {shlex.quote(found)}"
    return f"{source}: of the experiment {name}, {what}"


def takes_file(parser: Any) -> None:
    """Add ``--experiment FILE.py`` and ``--code FILE.py`` to the options of a command that opens a run."""
    about = "Your Python file with the run's experiment. It is executed; a file that only a run names never is."
    parser.add_argument("--experiment", type=str, metavar="FILE.py", help=about)
    about = "Likewise with a part of its model, or MODULE:CLASS; may be given several times."
    parser.add_argument(OPTION, type=str, action="append", default=[], metavar="FILE.py", help=about)


def run_given(options: Any) -> None:
    """Run the file of the option ``--experiment``, if it was given, and let a run name those of ``--code``."""
    give(*options.code)
    if options.experiment is not None:
        load(options.experiment)


def _experiment_in(file: Path, name: str | None) -> Any:
    """The class of a file that is an experiment, the one of that name if it is given."""
    kind = class_in(module_of(file), file, name, Experiment)
    hint = types_of(kind.Config).get("experiment")
    if hint is not str:
        raise ValueError(f"{file}: {kind.Config.__name__}.experiment: expected a field of the type str, got {hint}")
    return kind
