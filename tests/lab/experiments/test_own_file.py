"""An experiment in the user's own file is trained, resumed, evaluated, swept and plotted through the command line."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dat.checkpoints import open_checkpoint
from dat.experiments import EXPERIMENTS, experiment_named, experiment_of, files
from dat.sweeps.experiment import swept
from dat.training.problem import TensorExamples
from tests.lab.cli.commands import dat, printed, refusal
from tests.support.refusals import refusals, refused
from tests.support.runs import stopping

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "my_experiment.py"
QUICK = ("--machine.threads=1", "--output.tensorboard=false", "--seed=1", "--output.name=a")


@pytest.fixture(autouse=True)
def beside(tmp_path, monkeypatch):
    """A folder with a copy of the example, of which this process knows nothing."""
    shutil.copy(EXAMPLE, tmp_path / "mine.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(files, "_named", {})
    monkeypatch.setattr(sys, "path", [*sys.path])


def result(run: str) -> dict:
    return json.loads(Path(run, "result.json").read_text())


def test_the_example_is_small():
    lines = EXAMPLE.read_text().splitlines()
    assert sum(bool(line) for line in lines) < 60


def test_it_is_trained_resumed_and_evaluated(capsys):
    assert "linear, 16 examples" in printed(capsys, "train", "mine.py", *QUICK, "--output.folder=whole")
    with stopping(3):
        assert dat("train", "mine.py", *QUICK, "--output.folder=parts") == 130
    assert "dat: interrupted; continue with: dat train mine.py --resume parts/a" in capsys.readouterr().err
    assert "experiment: mine.py:Sums" in Path("parts/a/config.yaml").read_text().splitlines()
    assert Path("parts/a/mine.py").read_bytes() == EXAMPLE.read_bytes()
    torch.manual_seed(99)
    assert dat("train", "mine.py:Sums", "--resume", "parts/a") == 0
    assert Path("parts/a/model.safetensors").read_bytes() == Path("whole/a/model.safetensors").read_bytes()
    assert result("parts/a")["loss"] == result("whole/a")["loss"]
    words = ["evaluate", "parts/a", "--json", "--machine.threads=1", "--experiment=mine.py"]
    numbers = json.loads(printed(capsys, *words))["val"]
    assert numbers == {"loss": result("parts/a")["loss"]["val"], **numbers} and numbers["examples"] == 32
    assert open_checkpoint("parts/a").kind == "sums run"
    assert "sums run" in printed(capsys, "info", "parts/a", "--experiment", "parts/a/mine.py")
    assert "parameters" in printed(capsys, "estimate", "parts/a", "--experiment", "mine.py")
    assert dat("train", "mine.py", "--config=parts/a/config.yaml", "--output.name=b") == 0
    assert "expected an experiment with a picture of its data" in refusal(capsys, "data", "mine.py", "--out=x.png")


def test_what_a_run_names_is_not_run_unless_the_user_names_it(capsys, monkeypatch):
    assert dat("train", "mine.py", *QUICK) == 0
    monkeypatch.setattr(files, "_named", {})
    Path("mine.py").write_text("open('ran', 'w')")
    Path("runs/a/mine.py").write_text("open('ran', 'w')")
    assert refusal(capsys, "train", "language", "--config=runs/a/config.yaml")
    said = "of the experiment mine.py:Sums, a Python file, which is run only if you name it (read it first): "
    for command in ("evaluate", "info", "explore", "estimate"):
        error = refusal(capsys, command, "runs/a")
        assert said in error and "--experiment mine.py:Sums" in error
    with pytest.raises(ValueError, match="which is run only if you name it"):
        open_checkpoint("runs/a")
    assert not Path("ran").exists()
    Path("mine.py").unlink()
    assert "name it (read it first): --experiment runs/a/mine.py:Sums" in refusal(capsys, "evaluate", "runs/a")
    Path("runs/a/mine.py").unlink()
    assert "but there is no mine.py here; name its file: --experiment FILE.py" in refusal(capsys, "evaluate", "runs/a")


@pytest.mark.slow
def test_it_is_swept_and_plotted(capsys):
    command = ["reproduce", "mine.py", "--out=grid"]
    assert "4 cells, 0 done, 4 to run" in printed(capsys, *command, "--dry_run", "--workers=1")
    assert not Path("grid").exists()
    out = printed(capsys, *command, "--workers=2", "--seeds=2")
    assert "8 to run on 2 processes" in out and "8/8" in out
    names = {".lock", "cells", "checksums.json", "comparison.md", "figures", "grid.yaml", "results.csv"}
    assert {path.name for path in Path("grid").iterdir()} == names
    table = Path("grid/comparison.md").read_text()
    assert table.startswith("# Measured\n") and "| kind | 8 | 16 |" in table and "of 2 trials." in table
    written = printed(capsys, "plot", "mine.py", "grid", "--out=plots", "--kinds=[deep]").split()
    assert written == ["plots/results.csv", "plots/comparison.md", "plots/curves.png"]
    assert "linear" not in Path("plots/results.csv").read_text()


@pytest.mark.slow
def test_processes_of_torchrun_load_it():
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "-m", "dat"]
    done = subprocess.run([*command, "train", "mine.py", *QUICK], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert result("runs/a")["processes"] == 2


def test_a_scale_is_a_grid_that_comes_with_it(capsys):
    """What precedes it is overridden, what follows it counts."""
    for words, trials in ((["--seeds=5", "--scale", "tiny"], 2), (["--scale=tiny", "--seeds=3"], 3)):
        out = printed(capsys, "reproduce", "mine.py", "--dry_run", *words, "--workers=1")
        assert f"tiny: {trials} trials of each point" in out


def test_installed_packages_bring_experiments(capsys, monkeypatch):
    package = Path("sums-1.0.dist-info")
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: sums\nVersion: 1.0\n")
    points = "[dat.experiments]\nsums = mine:Sums\nlanguage = os:system\n"
    (package / "entry_points.txt").write_text(points)
    sys.path.insert(0, str(Path.cwd()))
    out = printed(capsys, "--help")
    assert re.search(r"^  sums +of the package sums$", out, re.MULTILINE) and "FILE.py" in out
    assert "mine" not in sys.modules
    assert experiment_named("language").name == "language"
    assert dat("train", "sums", *QUICK) == 0
    assert "experiment: sums" in Path("runs/a/config.yaml").read_text().splitlines()
    assert dat("evaluate", "runs/a", "--machine.threads=1") == 0
    del sys.modules["mine"]


def test_a_run_says_which_experiment_it_is_of(capsys):
    assert dat("train", "mine.py", *QUICK) == 0
    shutil.copy("mine.py", "other.py")
    for words, message in (
        (["language", "--resume", "runs/a"], "runs/a/config.yaml: a run of mine.py:Sums, not of language"),
        (["relational-games", "--config=runs/a/config.yaml"], "expected one of 'relational-games', got mine.py:Sums"),
        (["other.py", "--config=runs/a/config.yaml"], "experiment: expected other.py:Sums, got 'mine.py:Sums'"),
    ):
        assert message in refusal(capsys, "train", *words)


BASE = "from examples.my_experiment import Sums\n"


@refusals(
    (None, "missing.py", r"missing\.py: no such file"),
    ("x = 1", "a.py", r"a\.py: expected a subclass of dat\.training\.experiment\.Experiment, found none"),
    (BASE, "a.py", "found none"),
    (f"{BASE}class A(Sums): pass\nclass B(Sums): pass", "a.py", r"one experiment, got A, B; name one: a\.py:CLASS"),
    (f"{BASE}class A(Sums): pass", "a.py:C", r"a\.py: expected one of its experiments A, got C"),
    ("x = 1\nx.y", "a.py", r"a\.py: 'int' object has no attribute 'y'.* \(line 2\)"),
    ("x = ", "a.py", r"a\.py: invalid syntax"),
    (f"{BASE}from dat.experiments.sequences.config import RecallConfig\nclass A(Sums): Config = RecallConfig", "a.py",
     r"a\.py: RecallConfig\.experiment: expected a field of the type str"),
    of="text, name",
    error=(ValueError, FileNotFoundError),
)  # fmt: skip
def test_files_that_are_no_experiment(text, name, error, message):
    if text is not None:
        Path("a.py").write_text(text)
    with pytest.raises(error, match=message):
        experiment_named(name)


def test_a_file_imports_what_lies_beside_it_and_is_run_once():
    Path("helpers_of_mine.py").write_text("print('imported')\n")
    Path("a.py").write_text(f"import helpers_of_mine\n{BASE}class A(Sums): pass\nclass B(Sums): pass\n")
    assert type(experiment_named("a.py:A")) is type(experiment_named("./a.py:A"))
    assert type(experiment_named(str(EXAMPLE))).__module__ == "examples.my_experiment"


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"experiment": "recall", "task": "same"}, "recall"),
        ({"task": "same", "data": {}, "model": {}, "loop": {}}, "relational-games"),
        ({"data": {}, "model": {}, "loop": {}}, "language"),
    ],
)
def test_older_runs_are_known_by_their_keys(values, name):
    assert experiment_of(values, "run").name == name


test_what_is_refused = refused(
    (lambda: experiment_of({"x": 1}, "run"), "run: not the configuration of a run"),
    (lambda: experiment_of({"experiment": "chess"}, "run"), "run: experiment: expected one of"),
    (lambda: experiment_of({"experiment": "theorem-1"}, "run"),
     "run: of the experiment theorem-1.*--experiment studies/theorem_1/experiment.py"),
    (lambda: experiment_of({"experiment": "digit-games"}, "run"), "--experiment studies/digit_games/experiment.py"),
    (lambda: swept(SimpleNamespace(name="single")), "single: expected an experiment with a grid"),
    (lambda: TensorExamples(torch.zeros(6), torch.zeros(5)), "tensors: expected as many examples in each, got 6 and 5"),
)  # fmt: skip


def test_moved_experiments_say_where_they_are(capsys):
    message = "theorem-1 is the file studies/theorem_1/experiment.py of the repository now"
    assert "theorem-1" not in EXPERIMENTS and message in refusal(capsys, "train", "theorem-1")


def test_examples_of_tensors():
    examples = TensorExamples(torch.arange(6).view(6, 1), torch.arange(6))
    assert len(examples[:4]) == 4 and examples[4:].batch(torch.tensor([1]))[1].tolist() == [5]
