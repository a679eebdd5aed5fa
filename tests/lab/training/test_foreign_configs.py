"""Configurations of runs and grids that a stranger may have written: no module is imported, no file is followed."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from dat.experiments.language.config import LanguageConfig
from dat.experiments.language.grid import LanguageGrid
from dat.experiments.relational_games.config import GamesModelConfig, RelationalGamesConfig
from dat.experiments.relational_games.grid import GamesGrid
from dat.sweeps.experiment import AnySwept
from dat.sweeps.grid import GridFolder
from dat.training.config_io import build_parser, commented_yaml, parse_config, read_config
from examples.my_experiment import Sums, SumsConfig, SumsGrid


@pytest.mark.parametrize(
    "config",
    [
        RelationalGamesConfig(seed=3, model=GamesModelConfig(architecture="esbn")),
        LanguageConfig(data=replace(LanguageConfig().data, path=("a", "b*.txt"), val_path="c")),
        GamesGrid(sizes=(7, 8), workers=2),
        LanguageGrid(out="somewhere"),
    ],
)
def test_what_was_written_is_read(tmp_path, config):
    (tmp_path / "c.yaml").write_text(commented_yaml(config))
    assert read_config(type(config), tmp_path / "c.yaml") == config


FOREIGN = (
    "optim: {class_path: evil_module.Optim}",
    "optim: {class_path: evil_module.Optim, init_args: {}}",
    "class_path: evil_module.Optim",
    "optim: optim.yaml",
    "config: optim.yaml",
    "optim: {config: optim.yaml}",
    "seed: !!python/object/apply:os.mkdir [ran]",
    "seed: !!python/name:evil_module.Optim",
)


@pytest.mark.parametrize("text", FOREIGN)
def test_no_module_is_imported_and_no_file_is_followed(tmp_path, text):
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Optim: pass\n")
    (tmp_path / "optim.yaml").write_text("lr: 0.5\n")
    path = tmp_path / "c.yaml"
    path.write_text(text)
    parser = build_parser(SumsConfig, prog="dat", description="")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        patch.chdir(tmp_path)
        with pytest.raises(ValueError, match=r"c\.yaml: "):
            read_config(SumsConfig, path)
        with pytest.raises(ValueError, match=r"c\.yaml: "):
            parse_config(parser, SumsConfig, ["--config", str(path)])
    assert not (tmp_path / "ran").exists()


def test_a_grid_from_elsewhere_is_data_as_well(tmp_path):
    toy: AnySwept = Sums()
    folder, grid = GridFolder(toy, tmp_path / "grid"), SumsGrid(out=str(tmp_path / "grid"))
    with folder.locked():
        folder.open(grid)
    text = folder.config.read_text()
    folder.config.write_text(text.replace("workers: null", "workers: {class_path: os.system}"))
    with pytest.raises(ValueError, match=r"grid\.yaml: workers: expected an integer or null, got "):
        folder.open(grid)


def test_aliases_cannot_grow_without_end(tmp_path):
    layers = "\n".join(f"k{i}: &k{i} [{', '.join([f'*k{i - 1}'] * 9)}]" for i in range(1, 30))
    (tmp_path / "c.yaml").write_text(f"k0: &k0 [x]\n{layers}\n")
    began = time.perf_counter()
    with pytest.raises(ValueError, match=r"c\.yaml: .*more"):
        read_config(SumsConfig, tmp_path / "c.yaml")
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize("text", ["[" * 10_000, "{a: " * 10_000, "x: '" + "y" * (1 << 20) + "'"])
def test_size_and_depth_are_bounded(tmp_path, text):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"c\.yaml: ") as caught:
        read_config(SumsConfig, tmp_path / "c.yaml")
    assert len(str(caught.value)) < 500 and "\n" not in str(caught.value)
