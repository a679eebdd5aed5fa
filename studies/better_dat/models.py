"""The DATs of three experiments, each with one change of :mod:`.parts`, and the models beside them."""

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from dat.data.relational_games import num_classes
from dat.experiments.relational_games.config import GamesModelConfig
from dat.experiments.relational_games.presets import PRESETS as GAMES
from dat.training.experiment import without_values
from studies.better_dat.parts import Change, change
from studies.kinship.config import PRESETS as KINSHIP
from studies.kinship.config import KinshipModelKeys
from studies.matrices.model import PRESETS as MATRICES
from studies.matrices.model import MatricesModelKeys
from studies.relational_games.toolbox import toolbox

CHANGES: tuple[Change, ...] = ("bound", "bounded", "read")
NAMES = {
    "dat": "DAT",
    "bound": "DAT, bound messages",
    "bounded": "DAT, bounded distances",
    "read": "DAT, read directly",
    "squared": "DAT, squared distances",
    "transformer": "Transformer",
    "gate": "Transformer, linear gate",
    "corelnet": "CoRelNet",
    "softmax": "CoRelNet, softmax",
}
"""Arms, in the order of tables."""


@dataclass(frozen=True, kw_only=True)
class BetterGames(GamesModelConfig):
    """A DAT over cells of images, changed."""

    change: Change = "bound"
    """What is changed."""

    def finished(self, model: Any) -> nn.Module:
        return change(super().finished(model), self.change, num_classes("same"))


@dataclass(frozen=True, kw_only=True)
class BetterMatrices(MatricesModelKeys):
    """A DAT over panels, changed."""

    change: Change = "bound"
    """What is changed."""

    def build(self, panel: tuple[int, ...], *, seed: int) -> Any:
        return change(super().build(panel, seed=seed), self.change)

    def empty(self, panel: tuple[int, ...]) -> Any:
        with without_values():
            return change(super().empty(panel), self.change)


@dataclass(frozen=True, kw_only=True)
class BetterKinship(KinshipModelKeys):
    """A causal DAT, changed."""

    change: Change = "bound"
    """What is changed."""

    def _build(self, vocab_size: int) -> Any:
        return change(super()._build(vocab_size), self.change)


def changed(kind: Any, base: Any, changes: tuple[Change, ...] = CHANGES, **keys: Any) -> dict[str, Any]:
    """A model with each of the changes, by name."""
    return {name: kind(**{**vars(base), **keys, "name": name, "change": name}) for name in changes}


OF_GAMES: dict[str, Any] = {
    "dat": GAMES["dat-0+2-sym"],
    **changed(BetterGames, GAMES["dat-0+2-sym"]),
    "squared": GAMES["dat-0+2-sym-squared-distance"],
    "transformer": GAMES["transformer-128-h2-matched"],
    "gate": toolbox("gated-objects", carries="objects", gate="identity"),
    "corelnet": GAMES["corelnet"],
    "softmax": GAMES["corelnet-softmax"],
}
PLACES = {"pos_enc_type": "none"}
OF_MATRICES: dict[str, Any] = {
    "dat": replace(MATRICES["dat"], **PLACES),
    **changed(BetterMatrices, MATRICES["dat"], **PLACES),
    "squared": replace(MATRICES["dat"], rel_score="squared_distance", **PLACES),
    "transformer": replace(MATRICES["transformer"], dff=148, **PLACES),
    "gate": replace(MATRICES["transformer-gate"], dff=116, **PLACES),
    "corelnet": MATRICES["corelnet"],
}
"""Panels have places, and no rotary positions, which bounded distances do not know beside them."""
OF_KINSHIP: dict[str, Any] = {
    "dat": KINSHIP["DAT-symbolic"],
    **changed(BetterKinship, KINSHIP["DAT-symbolic"], ("bound",)),
    "transformer": KINSHIP["T"],
    "gate": KINSHIP["T-gate"],
}
