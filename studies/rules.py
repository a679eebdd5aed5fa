"""Rule of the house for studies announced since 29 November 2026: rows without which a comparison could be trivial.

``dat reproduce NAME --study studies/FOLDER/study.py`` asks :func:`check` before it runs anything.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

ROWS = {
    "untrained rule": "a rule without training, and the file that computes it",
    "linear gate": "the model of its grids that is a Transformer under a linear output gate",
    "rotary positions": "'every arm', 'no order' where nothing has one, 'places': every arm has a vector for each, or "
    "'compared' where some arms have them, and the others other positions",
    "steps": "optimiser steps, beside epochs",
    "rates": "'own rates' or 'one rate'",
    "failed": "the runs that count as failed; its tables show their share",
}
"""Keys of the mapping ``ROWS`` in a study's file, and what each says."""
OLDER = frozenset(
    [
        "digit_games",
        "emoji",
        "emoji_games",
        "images",
        "language",
        "length",
        "looking_inside",
        "mathematics",
        "recall",
        "relation_size",
        "relational_games",
        "rivals",
        "shifted_objects",
        "theorem_1",
    ]
)
"""Studies that were announced before the rule: they run as they are. None is added."""


def check(study: ModuleType) -> None:
    """Refuse a study that leaves out a row.

    Raises:
        ValueError: naming what is missing, or what does not fit the study's grids.
    """
    if Path(str(study.__file__)).resolve().parent.name in OLDER:
        return
    rows: Any = getattr(study, "ROWS", None)
    rows = rows if isinstance(rows, Mapping) else {}
    missing = [f"{row} ({what})" for row, what in ROWS.items() if not str(rows.get(row) or "").strip()]
    if missing:
        raise ValueError(f"ROWS: expected a text for each row of studies/rules.py, lacks {'; '.join(missing)}")
    models = {name: grid.presets.get(name) for grid in study.GRIDS.values() for name in grid.models}
    rotary = {name: _is_rotary(model) for name, model in models.items()}
    _expect(rows, "linear gate", {*models, *getattr(study, "PRESETS", ())}, "a model of its grids or presets")
    orders = ["every arm", "places", "compared"]
    _expect(rows, "rotary positions", [*orders, "no order"] if {*rotary.values()} == {None} else orders)
    if rows["rotary positions"] == "places":
        plain = [name for name, model in models.items() if not getattr(model, "places", False)]
    else:
        plain = [name for name, has in rotary.items() if has is False]
        if rows["rotary positions"] == "compared" and len(plain) < len(rotary):
            plain = []
    if plain:
        raise ValueError(f"ROWS['rotary positions']: expected them in every arm, not so in {', '.join(plain)}")
    _expect(rows, "rates", ["own rates", "one rate"])


def _expect(rows: Mapping[str, Any], row: str, allowed: Collection[str], words: str = "") -> None:
    if rows[row] not in allowed:
        raise ValueError(f"ROWS[{row!r}]: expected {words or ' or '.join(allowed)}, got {rows[row]!r}")


def _is_rotary(model: Any) -> bool | None:
    """Whether a model's attention has rotary positions; None if its configuration knows no order."""
    if hasattr(model, "pos_enc_type"):
        return model.pos_enc_type == "RoPE"
    return model.rope_theta is not None if hasattr(model, "rope_theta") else None
