"""Rivals of relational attention as arms of equal size: on games here, and beside it on sequences and language."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from dat.experiments.language.model_keys import LanguageModelKeys
from dat.experiments.language.presets import PRESETS as LANGUAGE
from dat.experiments.relational_games.config import EPOCHS, GamesModelConfig
from dat.experiments.relational_games.grid import GamesGrid, GridData
from dat.experiments.relational_games.presets import PRESETS as GAMES
from dat.experiments.sequences.model import SequenceModelKeys
from dat.experiments.sequences.presets import PRESETS as SEQUENCES
from dat.training.configs import LoopConfig
from dat.training.metrics import Row
from studies._lib.tables import Frame, by_seed, differences, failed, markdown, read_results
from studies.relational_games.toolbox import toolbox
from studies.rivals.models import GamesRival, rival

EXPERIMENT = "relational-games"
SEEDS = 3
FIRST_SEED = 40

DFF: dict[str, tuple[int, int, int]] = {
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

PLAIN = GAMES["transformer-128-h2"]
GAMES_ARMS: dict[str, GamesModelConfig] = {
    **{name: GamesRival(**{**vars(PLAIN), "name": name, "rival": name, "dff": dff[0]}) for name, dff in DFF.items()},
    "gated": toolbox("gated", 258, carries="objects", gate="sigmoid"),
}
POSITIONS = SEQUENCES["T-positions"]
SEQUENCE_ARMS: dict[str, SequenceModelKeys] = {
    model.name: model
    for model in (
        *(rival(POSITIONS, name, dff[1]) for name, dff in DFF.items()),
        replace(POSITIONS, name="gated", output_gate="sigmoid", dff=236),
        replace(SEQUENCES["DAT-symbolic"], name="DAT-positions", pos_enc_type="pos_emb", dff=224),
    )
}
TINY = replace(LANGUAGE["T-tiny"], name="T-tiny-positions", pos_enc_type="pos_emb", context=128, dff=256)
LANGUAGE_ARMS: dict[str, LanguageModelKeys] = {
    model.name: model
    for model in (
        TINY,
        *(rival(TINY, name, dff[2]) for name, dff in DFF.items() if name != "simplicial"),
        replace(TINY, name="gated", output_gate="sigmoid", dff=224),
        replace(LANGUAGE["DAT-tiny"], name="DAT-tiny-positions", pos_enc_type="pos_emb", context=128, dff=243),
    )
}
"""Rivals without 2-simplicial attention, of which a step takes some forty times as long as the Transformer's."""

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
ROTARY = replace(TINY, name="T-tiny-rotary", pos_enc_type="RoPE")
"""A control for the order of tokens: the Transformer with rotary positions in place of learned ones."""
CONFIRM = {
    "sequences": ("latent", "stick_breaking", "gated", "simplicial"),
    "language": ("stick_breaking", "multi_token", "tensor_product"),
}
"""Rivals by family that three seeds have ahead of the DAT, which run again."""


def confirming(grid: Any, family: str) -> Any:
    """The grid of a family with the Transformer, the DAT and :data:`CONFIRM`, and ten new seeds."""
    transformer, dat, _ = FAMILIES[family]
    models = (transformer, dat, *CONFIRM[family])
    return replace(grid, out=f"{grid.out}-confirm", models=models, seeds=10, first_seed=50)


# Analysis: every rival beside the Transformer and the DAT, as ANNOUNCED.md fixes it -----------------------------------

FOLDER = Path(__file__).parent
FAMILIES = {
    "games": ("transformer-128-h2-matched", "dat-0+2-sym", 2.0),
    "sequences": ("T-positions", "DAT-positions", 2.0),
    "language": ("T-tiny-positions", "DAT-tiny-positions", 0.02),
}
"""Transformer, DAT, and the difference that counts, in points or bits per byte, by family."""
LEVEL = 0.05


def measured(family: str, grid: str) -> Frame:
    """The measure of a family, the higher the better: a line for each seed, a column for each arm."""
    rows = read_results(FOLDER / f"results/{family}-{grid}.csv")
    if family == "games":
        return by_seed(rows, "model", "test", points=["task"])
    if family == "sequences":
        return by_seed(rows, "model", "accuracy")
    return -by_seed(rows, "model", "bits_per_byte")


def compared(family: str, grid: str) -> str:
    """Arms and their differences from the Transformer and from the DAT; with readings, unless the family runs again."""
    table, (transformer, dat, counts) = measured(family, grid), FAMILIES[family]
    rivals = sorted(
        (arm for arm in table if arm not in (transformer, dat, ROTARY.name)), key=lambda arm: -table[arm].mean()
    )
    less_t = differences(table, [(arm, transformer) for arm in rivals])
    dat_less = differences(table, [(dat, arm) for arm in rivals])
    digits, again = 1 if counts > 1 else 3, grid == "rivals" and family in CONFIRM
    lines = [
        {"arm": name, "mean": f"{abs(table[arm].mean()):.{digits}f}", "less Transformer": "", "DAT less it": "", "": ""}
        for name, arm in (("Transformer", transformer), ("DAT", dat))
    ]
    lines[1]["less Transformer"] = _told(differences(table, [(dat, transformer)]).iloc[0], digits)
    if family == "games":
        lines = [line | _by_task(arm) for line, arm in zip(lines, (transformer, dat), strict=True)]
    for arm, ours, theirs in zip(rivals, less_t.to_dict("records"), dat_less.to_dict("records"), strict=True):
        readings = (
            _reading(ours, counts, "helps", "costs"),
            _reading(theirs, counts, "behind the DAT", "ahead of the DAT"),
        )
        lines.append(
            {
                "arm": arm.replace("_", "-"),
                "mean": f"{abs(table[arm].mean()):.{digits}f}",
                "less Transformer": _told(ours, digits),
                "DAT less it": _told(theirs, digits),
                "": ", ".join(word for word in readings if word) or "undecided",
            }
            | ({"": "runs again" if arm in CONFIRM[family] else "not read"} if again else {})
            | (_by_task(arm) if family == "games" else {})
        )
    return markdown(pd.DataFrame(lines))


def _by_task(arm: str) -> dict[str, str]:
    """Mean accuracy of an arm in games by task, and its failed runs."""
    rows = read_results(FOLDER / "results/games-rivals.csv").query("model == @arm")
    means = {f"`{task}`": f"{own['test'].mean():.1f}" for task, own in rows.groupby("task")}
    return {**means, "failed": failed(rows["test"].tolist())}


def beside_the_control(grid: str = "confirm") -> str:
    """Language: all arms less the Transformer with rotary positions, each difference by itself."""
    table, digits = measured("language", grid), 3
    arms = sorted((arm for arm in table if arm != ROTARY.name), key=lambda arm: -table[arm].mean())
    lines = [
        {
            "arm": arm.replace("_", "-"),
            "less rotary": f"{found['mean']:+.{digits}f} ± {found['half']:.{digits}f}",
            "p": f"{found['p']:.2g}",
        }
        for arm in arms
        for found in differences(table, [(arm, ROTARY.name)]).to_dict("records")
    ]
    lines.append(
        {"arm": ROTARY.name, "less rotary": f"{abs(table[ROTARY.name].mean()):.{digits}f} bits per byte", "p": ""}
    )
    return markdown(pd.DataFrame(lines))


def _told(found: Mapping[str, Any], digits: int) -> str:
    return f"{found['mean']:+.{digits}f} ± {found['half']:.{digits}f} ({found['holm']:.2g})"


def _reading(found: Mapping[str, Any], counts: float, above: str, below: str) -> str:
    if found["holm"] >= LEVEL or abs(found["mean"]) < counts:
        return ""
    return above if found["mean"] > 0 else below


TABLES: dict[str, Callable[[], str]] = {
    path.stem: partial(compared, *path.stem.split("-")) for path in sorted((FOLDER / "results").glob("*.csv"))
}
TABLES["language-control"] = beside_the_control
FIGURES: Mapping[str, Callable[[Sequence[Row], Path], None]] = {}
