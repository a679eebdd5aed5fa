"""The public names of the library, for its reference and for the test of their examples.

A module is public if it has ``__all__`` and no part of its name begins with an underscore, or if another exports it.
Below a package that has ``__all__`` only the modules listed there are public. A name that several modules export
belongs to the first of them.
"""

import doctest
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Iterator
from types import ModuleType
from typing import Any

PACKAGE = "dual_attention"


def _modules(name: str, exported: bool = False) -> Iterator[ModuleType]:
    module = importlib.import_module(name)
    names = getattr(module, "__all__", None)
    if exported or names is not None:
        yield module
    for found in pkgutil.iter_modules(getattr(module, "__path__", [])):
        listed = found.name in (names or ()) and inspect.ismodule(getattr(module, found.name))
        if found.name[0] != "_" and (names is None or name == PACKAGE or listed):
            yield from _modules(f"{name}.{found.name}", listed)


def _exports(module: ModuleType) -> dict[str, Any]:
    if hasattr(module, "__all__"):
        return {name: getattr(module, name) for name in module.__all__ if not name.startswith("__")}
    return {
        name: value
        for name, value in vars(module).items()
        if name[0] != "_" and getattr(value, "__module__", None) == module.__name__ and is_class_or_function(value)
    }


def public_names() -> dict[str, dict[str, Any]]:
    """Public module -> the names that belong to it, and what they name: classes, functions and other values."""
    taken: set[str] = set()
    pages: dict[str, dict[str, Any]] = {}
    for module in _modules(PACKAGE):
        new = {name: value for name, value in _exports(module).items() if not inspect.ismodule(value)}
        if hasattr(module, "__all__"):
            new = {name: value for name, value in new.items() if name not in taken}
            taken |= new.keys()
        pages[module.__name__] = dict(sorted(new.items()))
    return pages


def is_class_or_function(value: Any) -> bool:
    """Whether a value is a class or a function; others are described where they are assigned."""
    alias = typing.get_origin(value) is not None  # which Python 3.10 takes for a class
    return inspect.isroutine(value) or (inspect.isclass(value) and not alias)


def examples(name: str, value: Any) -> list[doctest.DocTest]:
    """The examples in the docstrings of a public class or function, and of the methods of a class."""
    tests = doctest.DocTestFinder(exclude_empty=True).find(value, name) if is_class_or_function(value) else []
    return [test for test in tests if test.examples]


def without_example(module: str, names: dict[str, Any]) -> list[str]:
    """The classes and functions of a module that have no example."""
    return [
        f"{module}.{name}" for name, value in names.items() if is_class_or_function(value) and not examples(name, value)
    ]
