"""Classes in Python files of the user's own, ``FILE.py`` or ``FILE.py:CLASS``, or in packages, ``MODULE:CLASS``.

Code is run because somebody named it, never because a configuration does: opening a stranger's run is safe.
"""

import filecmp
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import shlex
import sys
import traceback
import typing
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from dual_attention._base.words import shortened

from ._errors import in_one_line

FILE = re.compile(r"(?P<file>.*\.py)(?::(?P<kind>\w+))?", re.DOTALL)
"""The name of a class in a file."""
MODULE = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<kind>\w+)")
"""The name of a class in a package."""
OPTION = "--code"
"""Option by which the user names what a configuration names."""

_given: list[str] = []  # names that the user has given to this process


def give(*names: str) -> None:
    """Let configurations name these files and classes from now on."""
    _given.extend(names)


def all_given() -> tuple[str, ...]:
    """The names that the user has given to this process, for others that it starts."""
    return (*_given,)


def given_in(words: list[str]) -> list[str]:
    """The names of classes in the words of a command, which may be in a list or after a key; those of files that are
    there may have spaces and other marks.
    """
    parts = words
    for mark in (r"^--[^=]*=", r"[=,'\"\[\]{}]+", r"\s+"):
        parts = [own.strip() for one in parts for own in ([one] if _is_there(one) else re.split(mark, one))]
    return [part for part in parts if FILE.fullmatch(part) or MODULE.fullmatch(part)]


def _is_there(name: str) -> bool:
    return FILE.fullmatch(name) is not None and os.path.isfile(file_of(name))


def class_named(name: str, base: type, key: str, *, source: object = None) -> type[Any]:
    """The class that a key of a configuration names, if the user has named it, too.

    Args:
        base: of which it is a subclass.
        source: the run folder, if the configuration is from there; it keeps a copy of the file.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming the key, if the user has not named it, or it is no such class.
    """
    file = FILE.fullmatch(name)
    module = MODULE.fullmatch(name) if file is None else None
    if file is None and module is None:
        raise ValueError(f"{key}: expected FILE.py:CLASS or MODULE:CLASS, got {shortened(repr(name))}")
    given = check_given(name, key, source=source)
    if module is not None:
        try:
            kind = getattr(importlib.import_module(module["module"]), module["kind"])
        except Exception as error:
            raise ValueError(f"{key}: {name}: {in_one_line(error)}") from error
        if not is_subclass(kind, base):
            raise ValueError(f"{key}: {name}: expected a subclass of {base.__module__}.{base.__name__}")
        return kind
    match, path = FILE.fullmatch(given), file_of(given)
    assert file is not None and match is not None
    try:
        return class_in(module_of(path), path, file["kind"] or match["kind"], base)
    except (FileNotFoundError, ValueError) as error:
        raise type(error)(f"{key}: {error}") from error


def check_given(name: str, key: str, *, source: object = None) -> str:
    """The name that the user has given for the class that a key names; ``ValueError`` if there is none.

    Args:
        source: as of :func:`class_named`.
    """
    given = _as_given(name)
    if given is None:
        found = name if source is None else here_or_in(Path(str(source)), name)
        raise ValueError(f"{key}: {name} is run only if you name it (read it first): {OPTION} {shlex.quote(found)}")
    return given


def files_named(names: Iterable[str], *more: Path) -> list[Path]:
    """The files of those classes that are in files which the user has named, and ``more`` files.

    Raises:
        ValueError: if two of them have the same name, so that a folder cannot hold both.
    """
    paths = [file_of(given) for name in names if FILE.fullmatch(given := _as_given(name) or "")]
    found: dict[str, Path] = {}
    for path in (path.resolve() for path in (*more, *paths)):
        if found.setdefault(path.name, path) != path:
            raise ValueError(f"{path}: expected a name other than that of {found[path.name]}, for a folder of both")
    return [*found.values()]


def _as_given(name: str) -> str | None:
    """The name that the user has given for a class; None: nothing."""
    return next((given for given in reversed(_given) if is_meant(name, given)), None)


def is_meant(name: str, given: str) -> bool:
    """Whether a name of a class is meant by what the user has given. A file may have moved, but not its name."""
    ours, theirs = FILE.fullmatch(name), FILE.fullmatch(given)
    if ours is None or theirs is None:
        return name == given
    same = Path(ours["file"]).name == Path(theirs["file"]).name
    return same and (theirs["kind"] is None or theirs["kind"] == ours["kind"])


def file_of(name: str) -> Path:
    """The file of a class that is in a file."""
    return Path(os.path.expanduser(name.rpartition(".py")[0] + ".py"))


def here_or_in(folder: Path, name: str) -> str:
    """The name of a class, in the copy of its file that a run's folder keeps if the same file is not here."""
    if FILE.fullmatch(name) is None:
        return name
    here, copy = file_of(name), folder / file_of(name).name
    same = here.is_file() and (not copy.is_file() or filecmp.cmp(here, copy, shallow=False))
    return name if same else f"{copy}{name.rpartition('.py')[2]}"


def module_of(file: Path) -> ModuleType:
    """The module of a file: the one that is imported already, or a new one.

    Modules beside the file can be imported by it, as by a script.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming the file, if it cannot be run.
    """
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


def what_failed(error: BaseException, code: Any) -> str:
    """An error in the code of the user's, in one line, with that of the file.

    Args:
        code: a class in that file, or an object of it.
    """
    module = sys.modules.get((code if inspect.isclass(code) else type(code)).__module__)
    file = getattr(module, "__file__", None)
    return f"{in_one_line(error)}{_line_in(Path(file), error) if file else ''}"


def _line_in(path: Path, error: BaseException) -> str:
    """The last line of a file that an error, or its cause, went through, in words."""
    traces = [reason.__traceback__ for reason in (error, error.__cause__) if reason is not None]
    steps = (step for trace in traces for step in traceback.walk_tb(trace))
    lines = [line for frame, line in steps if frame.f_code.co_filename == str(path)]
    return f" (line {lines[-1]})" if lines else ""


def is_subclass(kind: Any, base: type) -> bool:
    """Whether it is a class that derives from ``base``; in Python 3.10, ``tuple[int, ...]`` claims to be a class."""
    return inspect.isclass(kind) and typing.get_origin(kind) is None and issubclass(kind, base)


def class_in(module: ModuleType, file: Path, name: str | None, base: type) -> Any:
    """The class of a module's own that is a subclass of ``base``, the one of that name if it is given.

    Raises:
        ValueError: naming the file, if there is none, or several and none was named.
    """
    kinds = {
        kind.__name__: kind
        for kind in vars(module).values()
        if is_subclass(kind, base) and kind.__module__ == module.__name__
        if not inspect.isabstract(kind)
    }
    noun = base.__name__.lower()
    if not kinds:
        raise ValueError(f"{file}: expected a subclass of {base.__module__}.{base.__name__}, found none")
    if name is None and len(kinds) > 1:
        raise ValueError(f"{file}: expected one {noun}, got {', '.join(kinds)}; name one: {file}:CLASS")
    if name is not None and name not in kinds:
        raise ValueError(f"{file}: expected one of its {noun}s {', '.join(kinds)}, got {name}")
    return kinds[name or next(iter(kinds))]
