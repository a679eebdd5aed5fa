"""Interventions in files: JSON that a person can read and write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any

from ..._base.files import read_json_object, write_json
from ..._base.words import suggestion
from .kinds import KINDS, Intervention
from .rotated import Rotated
from .targets import Target

FORMAT = 1
MOST_ROTATIONS = 8


def save_interventions(path: str | PathLike[str], interventions: Intervention | Sequence[Intervention]) -> None:
    """Write interventions to a JSON file. Sources, which are data, are not part of them.

    >>> save_interventions("study.json", [Ablate(Target("relation")), Scale(Target("head"), 0.5)])
    >>> len(load_interventions("study.json"))
    2
    """
    listed = [interventions] if isinstance(interventions, Intervention) else list(interventions)
    write_json(Path(path), {"format": FORMAT, "interventions": [each.as_json() for each in listed]})


def load_interventions(path: str | PathLike[str]) -> list[Intervention]:
    """Read interventions from a JSON file; ``ValueError`` naming it, if it is no JSON or one of them is wrong.

    >>> save_interventions("study.json", Scale(Target("head"), 0.5))
    >>> load_interventions("study.json")[0].as_json()
    {'kind': 'scale', 'target': {'mediator': 'head'}, 'factor': 0.5}
    """
    content = read_json_object(Path(path))
    try:
        if content.get("format") != FORMAT or not isinstance(content.get("interventions"), list):
            raise ValueError(f"expected a format of {FORMAT} and a list of interventions")
        return [intervention_from_json(each) for each in content["interventions"]]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def intervention_from_json(content: Mapping[str, Any], *, rotations: int = 0) -> Intervention:
    """An intervention from what :meth:`.Intervention.as_json` returns.

    Args:
        rotations: around it, of which ``MOST_ROTATIONS`` are taken.

    >>> intervention = Scale(Target("head", layers=0), 0.5)
    >>> intervention_from_json(intervention.as_json()) == intervention
    True
    """
    if not isinstance(content, Mapping):
        raise TypeError(f"intervention: expected an object, got {content!r}")
    given = dict(content)
    name = given.pop("kind", None)
    if name == Rotated.kind:
        _check_names(name, given, Rotated)
        if rotations == MOST_ROTATIONS:
            raise ValueError(f"change: expected at most {MOST_ROTATIONS} rotations within each other, got more")
        return Rotated(intervention_from_json(given.pop("change", {}), rotations=rotations + 1), **given)
    if name not in KINDS:
        raise ValueError(f"kind: expected one of {', '.join(KINDS)}, {Rotated.kind}, got {name!r}")
    kind: Any = KINDS[name]
    target = given.pop("target", None)
    if not isinstance(target, Mapping):
        raise TypeError(f"target: expected an object, got {target!r}")
    _check_names("target", target, Target)
    _check_names(name, given, kind)
    return kind(Target(**target), **given)


def _check_names(what: str, given: Mapping[str, Any], kind: Any) -> None:
    known = [about.name for about in fields(kind) if about.init]
    for name in given:
        if name not in known:
            raise ValueError(f"{what}: expected {', '.join(known)}, got {name!r}{suggestion(str(name), known)}")
