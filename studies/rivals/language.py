"""The rivals as small language models, on the documentation of Python."""

from typing import Any

from dat.experiments.language.grid import LanguageGrid
from studies.rivals.study import FIRST_SEED, LANGUAGE_ARMS, SEEDS

EXPERIMENT = "language"
PRESETS: dict[str, Any] = LANGUAGE_ARMS
GRIDS: dict[str, Any] = {
    "rivals": LanguageGrid.with_presets(PRESETS)(
        out="runs/rivals-language", steps=(400,), models=tuple(LANGUAGE_ARMS), seeds=SEEDS, first_seed=FIRST_SEED
    )
}
