"""The experiments of finished studies are files, as a user's own are: they are trained by file name."""

import json
import re
from pathlib import Path

import pytest

from dat.cli.main import main
from dat.experiments import MOVED, files
from tests.lab.cli.commands import printed
from tests.support.processes import fork_workers

ROOT = Path(__file__).resolve().parents[3]
QUICK = ("--output.progress=false", "--output.tensorboard=false", "--machine.threads=1", "--output.name=a")
SMALL = {
    "theorem-1": ("--preset=symmetric", "--model.width=8", "--loop.steps=2", "--data.n_val=8", "--data.n_test=50"),
    "digit-games": ("--preset=corelnet", "--task=same", "--data.n_train=8", "--loop.epochs=1", "--data.n_test=6"),
}
GRIDS = {
    "theorem-1": ("--widths=[8]", "--seeds=1", "--loop.steps=2", "--data.n_val=8", "--data.n_test=50"),
    "digit-games": ("--tasks=[same]", "--sizes=[8]", "--models=[corelnet]", "--seeds=1", "--loop.epochs=1"),
}


def test_gaps_that_hardly_any_draw_has_are_refused(capsys):
    file = str(ROOT / MOVED["theorem-1"])
    assert main(["train", file, "--data.senders=512", *QUICK]) == 2
    assert "data.margin: expected a number from 0 to 0.015625, got 0.05" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", MOVED)
def test_one_is_trained_and_opened_also_where_it_was_built_in(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file = str(ROOT / MOVED[name])
    assert main(["train", file, *SMALL[name], *QUICK]) == 0
    measured = json.loads(Path("runs/a/result.json").read_text())
    config, checksums = Path("runs/a/config.yaml"), Path("runs/a/checksums.json")
    config.write_text(re.sub("(?m)^experiment: .*$", f"experiment: {name}", config.read_text()))
    kept = json.loads(checksums.read_text())
    checksums.write_text(json.dumps({key: value for key, value in kept.items() if key != "config.yaml"}))
    numbers = json.loads(printed(capsys, "evaluate", "runs/a", "--experiment", file, "--json", "--machine.threads=1"))
    assert numbers["test"]["loss"] == pytest.approx(measured["loss"]["test"])
    monkeypatch.setattr(files, "_named", {})
    assert main(["evaluate", "runs/a"]) == 2
    assert f"of the experiment {name}, a file of the repository: --experiment {MOVED[name]}" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", MOVED)
def test_one_is_swept(name, tmp_path, monkeypatch):
    fork_workers(monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", str(ROOT / MOVED[name]), "--out=grid", "--workers=1", "--quiet", *GRIDS[name]]) == 0
    assert main(["plot", str(ROOT / MOVED[name]), "grid", "--out=plots"]) == 0
    assert Path("plots/results.csv").read_text().count("\n") == Path("grid/results.csv").read_text().count("\n") > 1
