"""Optional dependencies: imported where they are used, with an error that names the extra to install."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, *, extra: str) -> Any:
    """Import and return ``module``, a dependency of the optional extra named ``extra``.

    Raises:
        ImportError: if the module is missing; the message holds the ``pip`` command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        root = module.partition(".")[0]
        raise ImportError(f'{root!r} could not be imported ({error}): pip install "dual-attention[{extra}]"') from error
