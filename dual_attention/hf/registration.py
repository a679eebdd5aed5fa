"""Telling the Auto classes of transformers about our configurations as soon as there are any, without importing it.

transformers is large, and reading a folder of weights does not need it. So its table of configurations gets ours when
somebody imports it, or at once if it is there; the first configuration that is made brings the models along.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

__all__ = ["register_when_imported"]

_TABLE = "transformers.models.auto.configuration_auto"


def register_when_imported() -> None:
    """Register the configurations of this room with ``AutoConfig`` now, or else when transformers defines that."""
    if sys.modules.get(_TABLE) is not None:
        _register()
    elif not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport())


def _register() -> None:
    with suppress(ImportError):  # of another version of transformers; the names that need it say so
        from .configuration import register_configurations

        register_configurations()


class _AfterImport(MetaPathFinder):
    """Finder of the module with the table, which registers our configurations once that has been imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _TABLE:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        run = loader.exec_module

        def run_and_register(module: ModuleType) -> None:
            run(module)
            _register()

        loader.exec_module = run_and_register
        return spec
