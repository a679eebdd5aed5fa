"""Rivals of relational attention as arms of equal size: on games here, and beside it on sequences and language."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dat.experiments.heads import RivalName
from dat.experiments.language.model_keys import LanguageModelKeys
from dat.experiments.language.presets import PRESETS as LANGUAGE
from dat.experiments.relational_games.config import EPOCHS, GamesModelConfig
from dat.experiments.relational_games.grid import GamesGrid, GridData
from dat.experiments.relational_games.presets import toolbox
from dat.experiments.sequences.model import SequenceModelKeys
from dat.experiments.sequences.presets import PRESETS as SEQUENCES
from dat.training.configs import LoopConfig
from dat.training.metrics import Row

EXPERIMENT = "relational-games"
SEEDS = 3
FIRST_SEED = 40

DFF: dict[RivalName, tuple[int, int, int]] = {
    "differential": (300, 266, 255),
    "simplicial": (216, 204, 192),
    "latent": (354, 308, 296),
    "stick_breaking": (301, 268, 256),
    "multi_token": (301, 267, 254),
    "tensor_product": (341, 296, 272),
    "slot_pair": (344, 300, 288),
    "value_residual": (301, 268, 256),
}
"""Widths of feed-forward blocks in games, sequences and language that make the rivals as large as the Transformers."""

GAMES_ARMS: dict[str, GamesModelConfig] = {
    **{name: toolbox(name, dff[0], carries="objects", heads=name) for name, dff in DFF.items()},
    "gated": toolbox("gated", 258, carries="objects", gate="sigmoid"),
}
POSITIONS = SEQUENCES["T-positions"]
SEQUENCE_ARMS: dict[str, SequenceModelKeys] = {
    model.name: model
    for model in (
        *(replace(POSITIONS, name=name, heads=name, dff=dff[1]) for name, dff in DFF.items()),
        replace(POSITIONS, name="gated", output_gate="sigmoid", dff=236),
        replace(SEQUENCES["DAT-symbolic"], name="DAT-positions", pos_enc_type="pos_emb", dff=224),
    )
}
TINY = replace(LANGUAGE["T-tiny"], name="T-tiny-positions", pos_enc_type="pos_emb", context=128, dff=256)
LANGUAGE_ARMS: dict[str, LanguageModelKeys] = {
    model.name: model
    for model in (
        TINY,
        *(replace(TINY, name=name, heads=name, dff=dff[2]) for name, dff in DFF.items() if name != "simplicial"),
        replace(TINY, name="gated", output_gate="sigmoid", dff=224),
        replace(LANGUAGE["DAT-tiny"], name="DAT-tiny-positions", pos_enc_type="pos_emb", context=128, dff=243),
    )
}
"""Without 2-simplicial attention, of which a step takes some forty times as long as the Transformer's."""

PRESETS: dict[str, Any] = GAMES_ARMS
GRIDS: dict[str, Any] = {
    "rivals": GamesGrid.with_presets(PRESETS)(
        out="runs/rivals-games",
        tasks=("same", "occurs"),
        sizes=(500,),
        models=("transformer-128-h2-matched", "dat-0+2-sym", *GAMES_ARMS),
        seeds=SEEDS,
        first_seed=FIRST_SEED,
        data=GridData(n_val=1000, n_test=4000, n_heldout=1000),
        loop=LoopConfig(epochs=EPOCHS, eval_every=0, checkpoint_every=0),
    )
}
TABLES: dict[str, Callable[[], str]] = {}
FIGURES: Mapping[str, Callable[[Sequence[Row], Path], None]] = {}
