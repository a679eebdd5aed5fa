"""Tables of what is refused."""

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any

import pytest


def refusals(*rows: tuple[Any, ...], of: str = "call", error: type[BaseException] = ValueError) -> pytest.MarkDecorator:
    """Parametrise a test over the columns ``of``, then ``error`` and ``message``, whose message names the row.

    A row without an error of its own expects ``error``.
    """
    full = 3 + of.count(",")
    filled = [row if len(row) == full else (*row[:-1], error, row[-1]) for row in rows]
    return pytest.mark.parametrize(f"{of}, error, message", filled, ids=[str(row[-1]) for row in rows])


def refused(*rows: tuple[Any, ...], by: Callable[..., Any] = lambda call: call()) -> Callable[..., None]:
    """Make a test that ``by`` refuses the columns of every row, which expects ``ValueError`` unless it names one.

    Keyword-only parameters of ``by`` are fixtures.
    """
    parameters = signature(by).parameters.values()
    fixtures = [one.replace(kind=one.POSITIONAL_OR_KEYWORD) for one in parameters if one.kind is one.KEYWORD_ONLY]
    full = 2 + len(parameters) - len(fixtures)
    filled = [row if len(row) == full else (*row[:-1], ValueError, row[-1]) for row in rows]

    def test(row: tuple[Any, ...], **given: Any) -> None:
        *columns, error, message = row
        with pytest.raises(error, match=message):
            by(*columns, **given)

    row = Parameter("row", Parameter.POSITIONAL_OR_KEYWORD)
    test.__signature__ = Signature([row, *fixtures])  # type: ignore[attr-defined]
    return pytest.mark.parametrize("row", filled, ids=[str(row[-1]) for row in rows])(test)
