"""A better DAT? On games between matched emoji, beside the runs of that study."""

from dataclasses import replace
from typing import Any

from dat.training.configs import LoopConfig
from studies.better_dat.models import CHANGES, OF_GAMES
from studies.better_dat.study import ROWS as OF_GAMES_ROWS
from studies.better_dat.study import rated
from studies.emoji_games.experiment import EmojiSets
from studies.emoji_matched.experiment import EmojiMatchedGrid
from studies.emoji_matched.rule import N_TEST, N_TRAIN

EXPERIMENT = "studies/emoji_matched/experiment.py:EmojiMatched"
PRESETS, LR_OF = rated({"gate": OF_GAMES["gate"], **{name: OF_GAMES[name] for name in CHANGES}})
MODELS = tuple(name for name in PRESETS if not name.startswith("gate"))
"""The gate and the other rivals are trained in the study of matched emoji, from the same seeds on the same scenes."""
RATES = EmojiMatchedGrid.with_presets(PRESETS)(
    out="runs/better-dat-emoji",
    seeds=2,
    sizes=(N_TRAIN,),
    models=MODELS,
    lr_of={name: rate for name, rate in LR_OF.items() if name in MODELS},
    data=EmojiSets(n_test=N_TEST, n_unseen=N_TEST),
    loop=LoopConfig(epochs=50, batch_size=64, eval_every=0, checkpoint_every=0),
)
GRIDS: dict[str, Any] = {
    "rates": RATES,
    "chosen": replace(
        RATES,
        out="runs/better-dat-emoji-chosen",
        seeds=10,
        loop=replace(RATES.loop, epochs=100, measure_at=(50,)),
    ),
}
ROWS = OF_GAMES_ROWS | {
    "untrained rule": "five distances with one threshold each, studies/emoji_matched/rule.py",
    "steps": "800 and 1,600",
    "failed": "below 60 % on emoji never trained on",
}
