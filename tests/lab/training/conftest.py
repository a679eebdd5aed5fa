"""Tiny runs of Relational Games: a model of a few thousand parameters on a few images."""

from dataclasses import replace
from pathlib import Path

import pytest

from dat.experiments.relational_games.config import GamesDataConfig, GamesModelConfig, RelationalGamesConfig
from dat.training.configs import LoopConfig, MachineConfig, OptimConfig, OutputConfig

from .test_placement import Endless

TINY_MODEL = GamesModelConfig(name="tiny", d_model=16, dff=16, n_layers=1, n_relations=2, rel_proj_dim=4)


def tiny_config(folder: Path, name: str, **changes) -> RelationalGamesConfig:
    """A run of 3 epochs of 3 steps, with dropout, a partial last batch, evaluations and checkpoints."""
    config = RelationalGamesConfig(
        task="same",
        data=GamesDataConfig(n_train=40, n_val=24, n_test=32, n_heldout=16),
        model=TINY_MODEL,
        optim=OptimConfig(lr=1e-2),
        loop=LoopConfig(epochs=3, batch_size=16, eval_batch_size=20, eval_every=2, checkpoint_every=1),
        machine=MachineConfig(device="cpu", threads=1),
        output=OutputConfig(folder=str(folder), name=name, tensorboard=False, progress=False),
    )
    return replace(config, **changes)


@pytest.fixture
def endless(monkeypatch) -> None:
    """Texts whose sequences go on without an end."""
    monkeypatch.setattr("tests.lab.training.test_placement.Texts", Endless)
