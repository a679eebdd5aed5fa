"""Experiments in Python files of the user's own, named on the command line as ``FILE.py`` or ``FILE.py:CLASS``.

A file is run because somebody named it, never because a configuration does: opening a stranger's run is safe.
"""

from __future__ import annotations

import copyreg
import hashlib
import importlib.util
import inspect
import os
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from .._errors import in_one_line
from ..training.config_data import types_of
from ..training.experiment import AnyExperiment, Experiment
from . import FILE

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
    file = Path(os.path.expanduser(match["file"]))
    kind = _experiment_in(_module_of(file), file, match["kind"])
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
    ours, theirs = FILE.fullmatch(experiment.source), FILE.fullmatch(name)
    if ours is None or theirs is None:
        return name == experiment.name
    return Path(ours["file"]).name == Path(theirs["file"]).name and theirs["kind"] in (None, ours["kind"])


def refusal(name: str, source: object) -> str:
    """Sentence on a configuration that names a file which nobody else has named.

    Args:
        source: the file of the configuration; a run folder keeps a copy of its experiment beside it.
    """
    match = FILE.fullmatch(name)
    file, kind = (match["file"], match["kind"]) if match else (name, None)
    copy = Path(str(source)).parent / Path(file).name
    path = next((path for path in (Path(file), copy) if path.is_file()), None)
    if path is None:
        return f"{source}: of the experiment {name}, but there is no {file} here; name its file: --experiment FILE.py"
    option = f"--experiment {shlex.quote(f'{path}:{kind}' if kind else str(path))}"
    return (
        f"{source}: of the experiment {name}, a Python file, which is run only if you name it (read it first): {option}"
    )


def takes_file(parser: Any) -> None:
    """Add ``--experiment FILE.py`` to the options of a command that opens a run."""
    about = "Your Python file with the run's experiment. It is executed; a file that only a run names never is."
    parser.add_argument("--experiment", type=str, metavar="FILE.py", help=about)


def run_given(options: Any) -> None:
    """Run the file of the option ``--experiment``, if it was given."""
    if options.experiment is not None:
        load(options.experiment)


def _module_of(file: Path) -> ModuleType:
    """The module of a file: the one that is imported already, or a new one."""
    path = file.resolve()
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(path):
            return module
    if not path.is_file():
        raise FileNotFoundError(f"{file}: no such file")
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"  # two files may have the same name
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file}: expected a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ValueError(f"{file}: {in_one_line(error)}{_line_in(path, error)}") from error
    return module


def _line_in(path: Path, error: BaseException) -> str:
    """The last line of a file that an error went through, in words."""
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" (line {line})" if line else ""


def _experiment_in(module: ModuleType, file: Path, name: str | None) -> Any:
    """The class of a module's own that is an experiment, the one of that name if it is given."""
    kinds = {
        kind.__name__: kind
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, Experiment) and kind.__module__ == module.__name__
        if not inspect.isabstract(kind)
    }
    if not kinds:
        raise ValueError(f"{file}: expected a subclass of {Experiment.__module__}.{Experiment.__name__}, found none")
    if name is None and len(kinds) > 1:
        raise ValueError(f"{file}: expected one experiment, got {', '.join(kinds)}; name one: {file}:CLASS")
    if name is not None and name not in kinds:
        raise ValueError(f"{file}: expected one of its experiments {', '.join(kinds)}, got {name}")
    kind = kinds[name or next(iter(kinds))]
    hint = types_of(kind.Config).get("experiment")
    if hint is not str:
        raise ValueError(f"{file}: {kind.Config.__name__}.experiment: expected a field of the type str, got {hint}")
    return kind
