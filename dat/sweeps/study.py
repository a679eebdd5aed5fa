"""A study from its file: grids, further models and figures for ``dat reproduce`` and ``dat plot``, for one command."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from dual_attention._base.words import shortened

from .._own_code import module_of
from .experiment import AnySwept
from .grid import GridConfig
from .table import Draw


@dataclass(frozen=True)
class Study:
    """Contents of a study's file.

    Attributes:
        file: the file.
        experiment: name of the experiment that its runs are of.
        grids: by name, for ``--scale``.
        presets: models beside those of the experiment.
        figures: names of files, and functions that draw rows of results into them.
    """

    file: Path
    experiment: str
    grids: Mapping[str, GridConfig]
    presets: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Draw] = field(default_factory=dict)


def load_study(file: str | Path) -> Study:
    """The study of a Python file, which is run.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming the file, and the name in it that is missing or wrong.
    """
    path = Path(file)
    if path.suffix != ".py":
        raise ValueError(f"{path}: expected a Python file, such as studies/NAME/study.py")
    names = vars(load_module(path))
    experiment = names.get("EXPERIMENT")
    if not isinstance(experiment, str):
        raise ValueError(f"{path}: EXPERIMENT: expected the name of an experiment, got {experiment!r}")
    file, ending, _ = experiment.partition(".py")
    if ending and not Path(f"{file}.py").is_file():  # the command is run elsewhere than in the study's repository
        experiment = str(_root_of(path.resolve()) / experiment)
    grids = _by_name(path, "GRIDS", names.get("GRIDS"), lambda value: isinstance(value, GridConfig), "grids")
    presets = _by_name(path, "PRESETS", names.get("PRESETS", {}), is_dataclass, "models")
    figures = _by_name(path, "FIGURES", names.get("FIGURES", {}), callable, "functions that draw")
    return Study(path, experiment, grids, presets, figures)


def check_rules(study: Study) -> None:
    """Let ``studies/rules.py`` refuse ``studies/NAME/study.py`` before it is run, if there is such a file.

    Raises:
        ValueError: naming the file, and what its function ``check(module)`` misses in it.
    """
    path = study.file.resolve()
    rules = path.parents[1] / "rules.py"
    if rules.parent.name == "studies" and rules.is_file():
        try:
            module_of(rules).check(module_of(path))
        except ValueError as error:
            raise ValueError(f"{study.file}: {error}") from None


def _by_name(path: Path, name: str, found: Any, fits: Callable[[Any], bool], what: str) -> Mapping[str, Any]:
    if isinstance(found, Mapping) and all(isinstance(key, str) and fits(value) for key, value in found.items()):
        return found
    raise ValueError(f"{path}: {name}: expected {what} by name, got {shortened(repr(found))}")


def _root_of(path: Path) -> Path:
    """The folder that holds ``studies/NAME/study.py``."""
    return path.parents[min(2, len(path.parents) - 1)]


def load_module(path: Path) -> ModuleType:
    """The module of a study's file, ``studies/NAME/study.py``; ``ValueError`` naming the file, if it fails."""
    root = str(_root_of(path.resolve()))
    if root not in sys.path:  # for `studies._lib`, which is installed nowhere, also when a figure imports it later
        sys.path.append(root)
    return module_of(path)


def with_study(experiment: AnySwept, study: Study) -> AnySwept:
    """The experiment with the grids, models and figures of a study beside its own."""
    found, table = object.__new__(type(experiment)), experiment.table
    vars(found).update(
        vars(experiment),
        Grid=experiment.Grid.with_presets(study.presets),
        presets={**experiment.presets, **study.presets},
        scales={**experiment.scales, **study.grids},
        table=replace(table, figures={**table.figures, **study.figures}),
    )
    return found
