"""Runs of Relational Games: a complete folder, the same numbers again, and nothing overwritten."""

import json
import os
import shutil
import signal
from dataclasses import replace

import numpy
import pytest
import torch

from dat.data.relational_games import generate_images
from dat.data.relational_games.official import official_path
from dat.experiments.relational_games.experiment import RelationalGames
from dat.training import runs
from dat.training.interrupt import Interrupted
from dat.training.metrics import read_rows
from dat.training.progress import Progress
from dat.training.run_folder import RunFolder
from dat.training.runs import evaluate_run, resume_run, start_run
from tests.lab.training.conftest import tiny_config
from tests.support.refusals import refusals

GAMES = RelationalGames()
FINAL = ("accuracy", "loss", "parameters", "steps")


def final(folder):
    return {key: folder.read_result()[key] for key in FINAL}


class Signals(Progress):
    """Sends this process a real SIGINT at one step."""

    def __init__(self, at: int) -> None:
        self.left = at

    def step(self, **_):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> RunFolder:
    """A run that was not stopped; not to be changed."""
    config = tiny_config(tmp_path_factory.mktemp("whole"), "run")
    return start_run(GAMES, replace(config, output=replace(config.output, tensorboard=True)))


def test_a_run_leaves_everything_in_its_folder(whole):
    folder = whole
    assert {path.name for path in folder.path.iterdir()} == {
        ".lock",
        "checksums.json",
        "config.yaml",
        "metrics.jsonl",
        "tensorboard",
        "checkpoints",
        "model.safetensors",
        "result.json",
        "curves.png",
    }
    assert list(folder.tensorboard.iterdir())
    assert folder.curves.read_bytes().startswith(b"\x89PNG")
    result = json.loads(folder.result.read_text())
    assert set(result["accuracy"]) == {"val", "test", "hexominoes", "stripes"}
    assert result["steps"] == 9 and result["threads"] == 1 and result["versions"]["torch"] == torch.__version__
    rows = read_rows(folder.metrics)
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert rows[-1]["val_accuracy"] == result["accuracy"]["val"]


def test_sigint_saves_and_resume_reaches_the_same_numbers(tmp_path, monkeypatch, whole):
    config = tiny_config(tmp_path, "parts")
    for number, at in enumerate((4, 3)):  # in the middle of the second epoch, then at the end of it
        before = signal.getsignal(signal.SIGINT)
        with monkeypatch.context() as patch, pytest.raises(Interrupted):
            patch.setattr(runs, "choose_progress", lambda _, at=at: Signals(at))
            start_run(GAMES, config) if number == 0 else resume_run(GAMES, tmp_path / "parts")
        assert signal.getsignal(signal.SIGINT) is before
        assert not (tmp_path / "parts" / "result.json").exists()
    torch.manual_seed(123)
    assert final(resume_run(GAMES, tmp_path / "parts")) == final(whole)
    rows = [read_rows(path / "metrics.jsonl") for path in (whole.path, tmp_path / "parts")]
    assert [row["train_loss"] for row in rows[0]] == [row["train_loss"] for row in rows[1]]


@pytest.fixture
def run(whole, tmp_path) -> RunFolder:
    """The same, to be changed."""
    return RunFolder(shutil.copytree(whole.path, tmp_path / "run"))


@refusals(
    (True, "run", r"run: a finished run is never overwritten; .*--output\.name"),
    (True, None, "the run is finished"),
    (False, "run", r"unfinished run; continue it with --resume .*run"),
    (True, "other", "other: exists and is no run folder"),
    of="finished, name",
    error=FileExistsError,
)
def test_nothing_is_overwritten(tmp_path, run, finished, name, error, message):
    (tmp_path / "other").mkdir()
    if not finished:
        run.result.unlink()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(error, match=message):
        resume_run(GAMES, run.path) if name is None else start_run(GAMES, tiny_config(tmp_path, name))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_an_impossible_run_leaves_no_folder(tmp_path):
    config = tiny_config(tmp_path, "run")
    config = replace(config, data=replace(config.data, official_folder=str(tmp_path / "nowhere")))
    with pytest.raises((ValueError, OSError), match="nowhere"):
        start_run(GAMES, config)
    assert not (tmp_path / "run").exists()


def test_official_files_are_all_there_and_of_the_task(tmp_path):
    def write(objects, of="same"):
        games = generate_images(of, 200, objects=objects, seed=0)
        images, labels = games.images.permute(0, 2, 3, 1).numpy(), games.labels.numpy()
        numpy.savez(official_path(tmp_path, "same", objects), images=images, labels=labels)

    config = tiny_config(tmp_path, "run")
    data = replace(config.data, n_train=16, n_val=8, n_test=8, official_folder=str(tmp_path))
    config = replace(config, task="same", data=data)
    write("pentominoes")
    write("hexominoes")
    message = r"data\.official_folder: .* lacks same_stripes\.npz and holds same_hexos"
    with pytest.raises(FileNotFoundError, match=message):
        GAMES.prepare(config, cache=tmp_path)
    write("stripes", "occurs")
    with pytest.raises(ValueError, match=r"same_stripes\.npz: expected images of task 'same', .* another task's file"):
        GAMES.prepare(config, cache=tmp_path)
    write("stripes")
    assert set(GAMES.prepare(config, cache=tmp_path).problem.evaluation) == {"val", "test", "hexominoes", "stripes"}
    assert GAMES.identity(config)["generator"] == 0


@pytest.mark.parametrize("path", ["nothing", "."])
@pytest.mark.parametrize("act", [resume_run, evaluate_run])
def test_no_run_folder(tmp_path, path, act):
    with pytest.raises(FileNotFoundError, match="not a run folder"):
        act(GAMES, tmp_path / path)


def test_an_unfinished_run_is_not_evaluated(run):
    run.result.unlink()
    with pytest.raises(FileNotFoundError, match="not finished; continue it with --resume"):
        evaluate_run(GAMES, run.path)
