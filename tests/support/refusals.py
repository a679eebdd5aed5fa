"""Tables of what is refused."""

from __future__ import annotations

from typing import Any

import pytest


def refusals(*rows: tuple[Any, ...], of: str = "call", error: type[BaseException] = ValueError) -> pytest.MarkDecorator:
    """Parametrise a test over the columns ``of``, then ``error`` and ``message``, whose message names the row.

    A row without an error of its own expects ``error``.
    """
    full = 3 + of.count(",")
    filled = [row if len(row) == full else (*row[:-1], error, row[-1]) for row in rows]
    return pytest.mark.parametrize(f"{of}, error, message", filled, ids=[str(row[-1]) for row in rows])
