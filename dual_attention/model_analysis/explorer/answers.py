"""The answers of a session to what its pages ask, by path."""

from __future__ import annotations

from collections.abc import Mapping

from .images import IMAGE_BYTES, ImageSession
from .opening import Explored
from .requests import Answer, text_of
from .session import Session
from .streaming import generated
from .switches import switch_effects


def answers_of(session: Explored) -> Mapping[str, Answer]:
    """What a session answers."""
    return _of_texts(session) if isinstance(session, Session) else _of_images(session)


def _of_texts(session: Session) -> Mapping[str, Answer]:
    return {
        "/record": Answer(lambda request: {"recording": session.packed(text_of(request))}),
        "/intervene": Answer(lambda request: switch_effects(session, request)),
        "/generate": Answer(lambda request: generated(session, request)),
    }


def _of_images(session: ImageSession) -> Mapping[str, Answer]:
    def sample(request: Mapping[str, object]) -> dict[str, object]:
        name = text_of(request, "sample")
        if name not in session.samples:  # a file of this machine, say, which no page may ask for
            raise ValueError(f"sample: expected one of {', '.join(session.samples)}, got {name!r}")
        return {"recording": session.packed(name)}

    return {
        "/sample": Answer(sample),
        "/image": Answer(lambda data: {"recording": session.packed_file(data)}, IMAGE_BYTES, takes_bytes=True),
    }
