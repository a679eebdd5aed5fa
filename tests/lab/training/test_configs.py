"""Configurations: checked values, every key explained, text and back."""

import dataclasses
from dataclasses import replace
from typing import get_args

import pytest

from dat.cli.demo import DemoConfig
from dat.data.relational_games import EXTRA_TASKS, TASKS
from dat.experiments.language.config import LanguageConfig
from dat.experiments.language.grid import LanguageGrid
from dat.experiments.relational_games.baseline_config import (
    AbstractorConfig,
    CoRelNetConfig,
    ESBNConfig,
    PrediNetConfig,
)
from dat.experiments.relational_games.config import (
    TASK_NAMES,
    GamesDataConfig,
    GamesModelConfig,
    RelationalGamesConfig,
    Task,
)
from dat.experiments.relational_games.grid import GamesGrid
from dat.experiments.relational_games.presets import PRESETS
from dat.training.config_io import build_parser, commented_yaml, field_help, parse_config, read_config
from dat.training.configs import LoopConfig, MachineConfig, OptimConfig
from tests.support.refusals import refused

CONFIGS = (RelationalGamesConfig, GamesGrid, DemoConfig, LanguageConfig, LanguageGrid)


def keys(kind: type, prefix: str = "") -> list[tuple[type, str, str]]:
    """(dataclass, field, dotted key) of every leaf."""
    found = []
    for field in dataclasses.fields(kind):
        value = field.default if field.default is not dataclasses.MISSING else field.default_factory()
        if dataclasses.is_dataclass(value):
            found.extend(keys(type(value), f"{prefix}{field.name}."))
        else:
            found.append((kind, field.name, prefix + field.name))
    return found


@pytest.mark.parametrize("kind", CONFIGS)
def test_help_explains_every_key(kind):
    text = " ".join(build_parser(kind, prog="dat", description="").format_help().split())
    assert len(keys(kind)) >= 7
    for owner, name, key in keys(kind):
        explanation = field_help(owner)[name]
        assert len(explanation) >= 6, key
        assert f"--{key} " in text, key
        assert explanation[:40].replace(" ", "") in text.replace(" ", ""), key


@pytest.mark.parametrize("kind", CONFIGS)
def test_yaml_round_trip_with_a_comment_on_every_key(kind, tmp_path):
    config = kind(first_seed=7) if hasattr(kind, "first_seed") else kind(seed=7)
    (tmp_path / "c.yaml").write_text(commented_yaml(config))
    assert read_config(kind, tmp_path / "c.yaml") == config
    lines = commented_yaml(config).splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if not line.lstrip().startswith("#"):
            assert before.lstrip().startswith("# "), line


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_yaml(name, tmp_path):
    config = RelationalGamesConfig(model=PRESETS[name])
    (tmp_path / "c.yaml").write_text(commented_yaml(config))
    assert read_config(RelationalGamesConfig, tmp_path / "c.yaml") == config


def test_dotted_overrides_come_after_the_file(tmp_path):
    (tmp_path / "c.yaml").write_text("optim: {lr: 0.5}\ndata: {n_train: 7}\n")
    parser = build_parser(RelationalGamesConfig, prog="dat", description="")
    arguments = ["--config", str(tmp_path / "c.yaml"), "--optim.lr", "0.25", "--optim.betas=[0.8, 0.9]"]
    config, _ = parse_config(parser, RelationalGamesConfig, arguments)
    assert (config.optim.lr, config.optim.betas, config.data.n_train) == (0.25, (0.8, 0.9), 7)
    assert isinstance(config.optim.betas, tuple)


test_impossible_values = refused(
    (lambda: OptimConfig(lr=0), r"optim\.lr: expected a positive number, got 0"),
    (lambda: OptimConfig(betas=(0.9, 1.0)), r"optim\.betas: expected two numbers in \[0, 1\)"),
    (lambda: OptimConfig(grad_clip=-1.0), r"optim\.grad_clip"),
    (lambda: LoopConfig(epochs=0), r"loop\.epochs: expected an integer of at least 1, got 0"),
    (lambda: LoopConfig(eval_every=-1), r"loop\.eval_every"),
    (lambda: LoopConfig(epochs=9, measure_at=(5, 10)), r"measure_at: expected different epochs from 1 to 9 .*10\)"),
    (lambda: LoopConfig(measure_at=(5, 5)), r"loop\.measure_at: expected different epochs"),
    (lambda: MachineConfig(threads=0), r"machine\.threads"),
    (lambda: GamesDataConfig(n_train=0), r"data\.n_train"),
    (lambda: GamesModelConfig(d_model=129), r"model\.d_model: expected a multiple of the 2 heads, got 129"),
    (lambda: GamesModelConfig(n_heads_ra=0), "at least 1, got 0"),
    (lambda: GamesModelConfig(dropout_rate=1.0), r"model\.dropout_rate"),
    (lambda: GamesModelConfig(symbol_neighbours=0), r"model\.symbol_neighbours"),
    (lambda: GamesModelConfig(architecture="corelnet", dropout_rate=1.0), r"model\.dropout_rate"),
    (lambda: GamesModelConfig(corelnet=CoRelNetConfig()),
     r"model\.corelnet: expected null with model\.architecture=dat, got CoRelNetConfig"),
    (lambda: GamesModelConfig(architecture="esbn", predinet=PrediNetConfig()), r"model\.predinet: expected null with"),
    (lambda: GamesModelConfig(architecture="abstractor", d_model=126), r"model\.d_model: expected a multiple of the 4"),
    (lambda: GamesModelConfig(architecture="abstractor", symbols="position_relative"),
     r"model\.symbols: expected symbols that are not relative to positions in an Abstractor"),
    (lambda: AbstractorConfig(n_heads=0), r"model\.abstractor\.n_heads"),
    (lambda: PrediNetConfig(n_relations=0), r"model\.predinet\.n_relations"),
    (lambda: PrediNetConfig(key_dim=0), r"model\.predinet\.key_dim"),
    (lambda: CoRelNetConfig(dff=0), r"model\.corelnet\.dff"),
    (lambda: ESBNConfig(hidden_dim=0), r"model\.esbn\.hidden_dim"),
    (lambda: GamesGrid(models=("nobody",)), "models: expected names among .*got 'nobody'"),
    (lambda: GamesGrid(sizes=()), "sizes"),
    (lambda: setattr(RelationalGamesConfig(), "seed", 3), dataclasses.FrozenInstanceError, "seed"),
)  # fmt: skip


def test_an_architecture_has_the_defaults_of_its_group():
    assert GamesModelConfig(architecture="esbn").esbn == GamesModelConfig(architecture="esbn").baseline == ESBNConfig()
    assert GamesModelConfig(architecture="esbn").corelnet is GamesModelConfig().baseline is None
    assert not GamesModelConfig(architecture="esbn").relational


def test_tasks_are_those_of_the_data():
    assert TASK_NAMES == TASKS
    assert set(get_args(Task)) <= {*TASKS, *EXTRA_TASKS}


def test_run_name_and_data_seed():
    config = RelationalGamesConfig(seed=4)
    assert config.run_name == "occurs-dat-0+2-sym-n1000-seed4"
    assert config.data_seed == 4
    assert replace(config, data=GamesDataConfig(seed=9)).data_seed == 9
