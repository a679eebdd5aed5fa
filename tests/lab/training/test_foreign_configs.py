"""Configurations of runs and grids that a stranger may have written: no module is imported, no file is followed."""

import pytest

from dat.sweeps.experiment import AnySwept
from dat.sweeps.grid import GridFolder
from dat.training.config_io import build_parser, parse_config, read_config
from examples.my_experiment import Sums, SumsConfig, SumsGrid

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
def test_no_module_is_imported_and_no_file_is_followed(tmp_path, monkeypatch, text):
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Optim: pass\n")
    (tmp_path / "optim.yaml").write_text("lr: 0.5\n")
    path = tmp_path / "c.yaml"
    path.write_text(text)
    parser = build_parser(SumsConfig, prog="dat", description="")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
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
