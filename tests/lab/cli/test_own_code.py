"""Objectives in files of the user's own, on the command line: copied, and never run because a run names them."""

import shutil
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from dat import _own_code
from dat.cli.main import main
from dat.training.metrics import read_rows
from tests.lab.cli.commands import refusal
from tests.support.documents import ROOT
from tests.support.processes import dat_together
from tests.support.runs import stopping

from .text_runs import RESUME, losses, one_line, words

EXAMPLES = ROOT / "examples" / "objectives.py"
OBJECTIVE = "mine.py:NextLatent"


@pytest.fixture(autouse=True)
def mine(folder, monkeypatch):
    """A copy of the examples, of which this process knows nothing."""
    shutil.copy(EXAMPLES, folder / "mine.py")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(_own_code, "_given", [])
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.slow
def test_it_is_trained_resumed_and_opened(capsys, monkeypatch):
    assert main(words(loop__objective=OBJECTIVE, output__name="whole")) == 0
    with stopping(5):
        assert main(words(loop__objective=OBJECTIVE)) == 130
    hint = "dat train language --resume runs/run --code mine.py:NextLatent"
    assert hint in capsys.readouterr().err
    assert Path("runs/run/mine.py").read_bytes() == EXAMPLES.read_bytes()
    monkeypatch.setattr(_own_code, "_given", [])
    Path("mine.py").write_text("open('ran', 'w')")
    message = "(read it first): --code runs/run/mine.py:NextLatent"
    assert f"loop.objective: mine.py:NextLatent is run only if you name it {message}" in refusal(capsys, *RESUME)
    Path("mine.py").unlink()
    again = ["train", "language", "--config=runs/run/config.yaml", "--output.name=other"]
    assert "read it first" in refusal(capsys, *again) and not Path("ran").exists()
    assert message in refusal(capsys, *RESUME)
    assert main(["train", "language", "--resume=runs/run", "--code", "runs/run/mine.py"]) == 0
    weights = [Path("runs", name, "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert weights[0] == weights[1]
    monkeypatch.setattr(_own_code, "_given", [])
    for command in (["evaluate", "runs/run"], ["generate", "runs/run", "3 times"], ["info", "runs/run"]):
        assert main(command) == 0
    checkpoint = str(max(Path("runs/run/checkpoints").iterdir()))
    assert main(["generate", checkpoint, "3 times"]) == 0
    assert "train_next_latent" in read_rows(Path("runs/run/metrics.jsonl"))[0]


@pytest.mark.slow
def test_callbacks_are_named_alike(capsys, monkeypatch):
    shutil.copy(ROOT / "examples" / "callbacks.py", "mine_too.py")
    option = "--output.callbacks=[mine_too.py:Samples]"
    assert main(words(output__name="plain")) == 0
    with stopping(6):
        assert main([*words(loop__objective="mine.py:NextToken"), option]) == 130
    said = capsys.readouterr()
    assert "--resume runs/run --code mine.py:NextToken --code mine_too.py:Samples" in said.err
    assert "step 4 of 8" in said.out
    assert (Path("runs/run/mine_too.py").read_bytes()) == Path("mine_too.py").read_bytes()
    monkeypatch.setattr(_own_code, "_given", [])
    message = "output.callbacks: mine_too.py:Samples is run only if you name it"
    assert message in refusal(capsys, *RESUME, "--code=mine.py")
    assert main(["train", "language", "--resume=runs/run", "--code=mine.py", "--code", "mine_too.py"]) == 0
    assert "failed" not in capsys.readouterr().err
    weights = [Path("runs", name, "model.safetensors").read_bytes() for name in ("plain", "run")]
    assert weights[0] == weights[1]
    lines = Path("runs/run/samples.txt").read_text().splitlines()
    assert [line.partition(":")[0] for line in lines][-2:] == ["step 4", "step 8"] and "'The " in lines[-1]


def test_files_of_the_same_name(capsys):
    Path("other").mkdir()
    shutil.copy(ROOT / "examples" / "callbacks.py", "other/mine.py")
    command = [*words(loop__objective="mine.py:NextToken"), "--output.callbacks=[other/mine.py:Samples]"]
    assert "expected a name other than that of" in refusal(capsys, *command) and not Path("runs/run").exists()


@pytest.mark.parametrize("form", ["--key={}", "{}", "[{}, b.py:B]", "{{KEY: '{}'}}"])
def test_a_file_in_a_folder_of_two_words_is_found(form):
    Path("my own").mkdir()
    shutil.copy(EXAMPLES, "my own/mine.py")
    found = _own_code.given_in(["train", form.format("my own/mine.py:NextLatent")])
    assert found == ["my own/mine.py:NextLatent", *(["b.py:B"] if "b.py" in form else [])]


def test_the_same_command_again(capsys):
    """`--resume auto` stands beside the objective and names it by that."""
    with stopping(5):
        assert main([*words(loop__objective=OBJECTIVE), "--resume", "auto"]) == 130
    assert main([*words(loop__objective=OBJECTIVE), "--resume", "auto"]) == 0
    for objective, message in (
        ("mine.py:Nothing", "mine.py: expected one of its objectives NextToken, NextLatent, "),
        ("other.py:A", "loop.objective: other.py: no such file"),
    ):
        assert message in refusal(capsys, *words(loop__objective=objective, output__name="other"))
    assert not Path("runs/other").exists()


@pytest.mark.slow
def test_two_processes_that_share_the_model(folder):
    """Begun by two, each with a part of its parameters, which are made without values; ended by one."""
    command = words(machine__parallel="shard", loop__objective=OBJECTIVE)
    whole = [*command, "--output.name=whole"]
    assert main([*whole, "--machine.parallel=replicate"]) == 0
    with stopping(5):
        ended = dat_together(command, command, folder=folder)
        assert {process.status for process in ended} == {130}, ended
    assert main(["train", "language", "--resume=runs/run", "--code=mine.py"]) == 0
    runs = [folder / "runs" / name for name in ("run", "whole")]
    assert losses(runs[0]) == pytest.approx(losses(runs[1]), rel=2e-6)
    rows = [[row["train_next_latent"] for row in read_rows(run / "metrics.jsonl")] for run in runs]
    assert rows[0] == pytest.approx(rows[1], rel=1e-5)
    early = [load_file(run / "checkpoints" / "report-00008-step-00000008" / "model.safetensors") for run in runs]
    assert early[0].keys() == early[1].keys() and "objective.0.weight" in early[0]


def test_files_that_differ_among_processes(folder, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    (other / "mine.py").write_text(f"{EXAMPLES.read_text()}\n# another\n")
    command = words(loop__objective=OBJECTIVE)
    ended = dat_together(command, command, folder=[folder, other])
    assert "code: expected the same in all 2 processes" in one_line(ended)
