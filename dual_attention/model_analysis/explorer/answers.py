"""The answers of a session to what its pages ask, by path."""

from __future__ import annotations

from collections.abc import Mapping

from .requests import Answer, text_of
from .session import Session
from .switches import switch_effects


def answers_of(session: Session) -> Mapping[str, Answer]:
    """What a session answers."""
    return {
        "/record": Answer(lambda request: {"recording": session.packed(text_of(request))}),
        "/intervene": Answer(lambda request: switch_effects(session, request)),
    }
