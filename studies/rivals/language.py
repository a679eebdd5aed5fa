"""The rivals as small language models, on the documentation of Python."""

from dataclasses import replace
from typing import Any

from dat.experiments.language.grid import LanguageGrid
from studies.rivals.study import FIRST_SEED, LANGUAGE_ARMS, ROTARY, SEEDS, confirming

EXPERIMENT = "language"
PRESETS: dict[str, Any] = {**LANGUAGE_ARMS, ROTARY.name: ROTARY}
GRIDS: dict[str, Any] = {
    "rivals": LanguageGrid.with_presets(PRESETS)(
        out="runs/rivals-language", steps=(400,), models=tuple(LANGUAGE_ARMS), seeds=SEEDS, first_seed=FIRST_SEED
    )
}
CONFIRMED = confirming(GRIDS["rivals"], "language")
GRIDS["confirm"] = replace(CONFIRMED, models=(*CONFIRMED.models, ROTARY.name))
