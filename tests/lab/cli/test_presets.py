"""Presets, and grids by name."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dat.cli import reproduce, train
from dat.experiments import EXPERIMENTS
from dat.experiments.relational_games.config import RelationalGamesConfig
from dat.experiments.relational_games.experiment import RelationalGames
from dat.experiments.relational_games.presets import ORDER, PRESETS
from dat.sweeps.experiment import swept
from dat.training.config_io import parse_config
from tests.lab.cli.commands import QUIET, dat, games, shown

pytestmark = pytest.mark.usefixtures("here")

GAMES = RelationalGames()


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDER)
def test_every_model_of_the_comparison_trains(name):
    """A step of each model at its full size."""
    assert dat("train", "relational-games", "--preset", name, *games(), *QUIET, "--output.name=run") == 0
    assert json.loads(Path("runs/run/result.json").read_text())["model"] == name


def test_a_preset_overrides_what_precedes_it_and_yields_to_what_follows(capsys):
    words = ["--model.d_model=1", "--preset=transformer-144-h8", "--model.dff", "7", "--seed", "3"]
    config, options = parse_config(train.run_parser("dat", GAMES), RelationalGamesConfig, words)
    model = replace(PRESETS["transformer-144-h8"], dff=7)
    assert config == RelationalGamesConfig(seed=3, model=model) and options.preset == "transformer-144-h8"
    help = " ".join(shown(capsys, "train", "relational-games", "--help").split())
    assert "Fill all keys of the model, those given before it too, with a named one: " in help


def test_a_preset_replaces_the_architecture_of_another():
    """Also what it says in groups of keys; what follows may change a part of them."""
    words = ["--preset=corelnet", "--preset=predinet", "--preset=abstractor", "--model.abstractor.n_heads=8"]
    model = parse_config(train.run_parser("dat", GAMES), RelationalGamesConfig, words)[0].model
    wanted = replace(PRESETS["abstractor"], abstractor=replace(PRESETS["abstractor"].abstractor, n_heads=8))
    assert model == wanted


def test_print_config_shows_the_preset(capsys):
    out = shown(capsys, "train", "relational-games", "--preset", "rca-1+1", "--model.dff=7", "--print_config")
    assert "ra_type: rca" in out and "dff: 7" in out


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_scale_is_its_grid(name):
    """The options that a scale stands for give the grid again."""
    experiment = swept(EXPERIMENTS[name].load())
    for scale, grid in experiment.scales.items():
        parser = reproduce.grid_parser("dat", experiment)
        found, options = parse_config(parser, experiment.Grid, ["--out=elsewhere", "--scale", scale])
        assert found == grid and options.scale == scale
