"""Callbacks and trackers see a training and change nothing of it; one that fails is left out, and one line says so."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from dat import _own_code
from dat.experiments.language.experiment import LanguageModelling
from dat.training.callbacks import Callback, Callbacks, RunView
from dat.training.configs import OutputConfig
from dat.training.metrics import MetricsLog, read_rows
from dat.training.runs import resume_run, start_run
from dat.training.trackers import WANDB_ID, TensorBoard, WandB
from tests.lab.experiments.language.conftest import named, tiny_config
from tests.support.processes import together
from tests.support.refusals import refusals
from tests.support.runs import assert_same_run, fit_until_stopped, interrupted

from .test_loop import make_trainer as make_small_trainer
from .test_loop import stop_after, weights
from .test_placement import COPIED, SHARDED
from .test_placement import make_trainer as make_language_trainer

LANGUAGE = LanguageModelling()
HERE = f"{__name__}:"


class Notes(Callback):
    """What it was called with, after it has done all that could disturb a training."""

    notes: ClassVar[list[Any]] = []

    def on_step(self, run, row):
        torch.manual_seed(0)
        if run.model is not None:
            run.model.eval()
        self.notes.append(("step", run.step, None if row is None else row["step"], run.means()["loss"]))

    def on_evaluation(self, run, row):
        torch.randn(3)
        self.notes.append(("evaluation", run.step, row["val_loss"]))
        if run.model is not None:
            self.notes.append([parameter.detach().clone() for parameter in run.model.parameters()])

    def on_end(self, run, numbers):
        self.notes.append(("end", run.step, numbers))


class Fails(Notes):
    method = "on_step"

    def __getattribute__(self, name):
        if name == type(self).method:
            raise RuntimeError("the disk\nis full")
        return super().__getattribute__(name)


class Spoils(Callback):
    def on_evaluation(self, run, row):
        with torch.no_grad():
            next(run.model.parameters()).mul_(2)


class Unmade(Callback):
    def __init__(self, needed):
        pass


@pytest.fixture(autouse=True)
def given(monkeypatch):
    monkeypatch.setattr(Notes, "notes", [])
    monkeypatch.setattr(_own_code, "_given", [f"{HERE}{kind.__name__}" for kind in (Notes, Fails, Spoils, Unmade)])


def called(config: Any, *kinds: type, **output: Any) -> Any:
    names = tuple(f"{HERE}{kind.__name__}" for kind in kinds)
    return replace(config, output=replace(config.output, callbacks=names, **output))


def kept(tag: str) -> list[Any]:
    return [note for note in Notes.notes if note[0] == tag]


def test_what_they_are_told(tmp_path):
    """Every step, each row and evaluation once, and the end; numbers and weights are those without."""
    config = tiny_config(tmp_path)
    plain, run = start_run(LANGUAGE, config), start_run(LANGUAGE, called(named(config, "called"), Notes))
    rows = read_rows(run.metrics)
    assert_same_run(run, plain)
    at = {row["step"]: row for row in rows}
    assert [note[1:3] for note in kept("step")] == [(step, step if step in at else None) for step in range(1, 8)]
    assert all(note[3] == at[note[1]]["train_loss"] for note in kept("step") if note[1] in at)
    assert kept("evaluation") == [("evaluation", step, at[step]["val_loss"]) for step in (3, 6, 7)]
    assert kept("end") == [("end", 7, {"val_loss": run.read_result()["loss"]["val"]})]


@pytest.mark.parametrize("looks", [0, 6, 13])
def test_stopped_and_resumed(tmp_path, looks):
    """Dropout goes on from the same state, with callbacks and without."""
    view = lambda: RunView(tmp_path, SimpleNamespace())  # noqa: E731
    whole = make_small_trainer()
    expected = whole.fit(MetricsLog(tmp_path / "whole.jsonl"))
    first = make_small_trainer(tmp_path / "c", stop_after(looks))
    fit_until_stopped(first, MetricsLog(tmp_path / "parts.jsonl"), Callbacks([("notes", Notes())], view()))
    assert kept("end") == [("end", first.step, None)]
    again = make_small_trainer(tmp_path / "c")
    assert again.resume()
    log = MetricsLog(tmp_path / "parts.jsonl", epochs_done=again.epoch)
    assert again.fit(log, Callbacks([("notes", Notes())], view())) == expected
    assert all(map(torch.equal, weights(again), weights(whole)))
    steps = [note[1] for note in kept("step")]
    assert sorted({*steps}) == [*range(1, 17)] and len(steps) <= 17  # an evaluation that was stopped is repeated


def test_an_evaluation_has_the_average(tmp_path):
    config = tiny_config(tmp_path)
    config = replace(config, optim=replace(config.optim, average_decay=0.5))
    plain, run = start_run(LANGUAGE, config), start_run(LANGUAGE, called(named(config, "called"), Notes))
    assert run.weights.read_bytes() == plain.weights.read_bytes()
    last = [note for note in Notes.notes if isinstance(note, list)][-1]
    trainer = torch.load(run.checkpoints.all()[-1] / "state.pt")["optimizer"]["state"]
    averages = [entry["average"] for entry in trainer.values()]
    assert len(averages) > 5
    assert all(any(a.shape == b.shape and torch.equal(a, b) for b in last) for a in averages)


@pytest.mark.parametrize("method", ["on_step", "on_evaluation", "on_end"])
def test_one_that_fails(tmp_path, capsys, monkeypatch, method):
    """It is left out, the others are not, and one line says so, once."""
    monkeypatch.setattr(Fails, "method", method)
    config = tiny_config(tmp_path)
    plain, run = start_run(LANGUAGE, config), start_run(LANGUAGE, called(named(config, "called"), Fails, Notes))
    said = [line for line in capsys.readouterr().err.splitlines() if "failed" in line]
    assert len(said) == 1 and said[0].startswith(f"dat: {HERE}Fails failed in {method} (the disk is full (RuntimeError")
    assert said[0].endswith("training goes on without it")
    assert run.weights.read_bytes() == plain.weights.read_bytes()
    assert [note[1] for note in kept("step")][-1] == 7 and len(kept("end")) == 1


@refusals(
    (lambda run: start_run(LANGUAGE, called(run, Spoils)), ".*Spoils: expected a callback that leaves the weights"),
    (lambda run: start_run(LANGUAGE, called(run, Unmade)), ".*Unmade: .*missing 1 required positional argument"),
    (lambda run: (_own_code._given.clear(), start_run(LANGUAGE, called(run, Notes))),
     r".*Notes is run only if you name it \(read it first\)"),
    (lambda _: OutputConfig(callbacks=("a.py:A", "a.py:A")), "expected different classes"),
)  # fmt: skip
def test_those_that_are_refused(tmp_path, call, error, message):
    with pytest.raises(error, match=rf"output\.callbacks: {message}"):
        call(tiny_config(tmp_path))
    assert "Notes is run" not in message or not (tmp_path / "runs" / "run").exists()


def trained(workers: Any, machine: Any, folder: Path) -> list[Any]:
    """Notes of a training, and whether the model was there."""

    class Calls(Callback):
        def on_step(self, run, row):
            if run.model is not None:
                run.model(torch.zeros(1, 4, dtype=torch.int64))
            seen.append(run.model is not None)

    seen: list[bool] = []
    trainer = make_language_trainer(workers, machine)
    callbacks = Callbacks([("calls", Calls())], RunView(folder, trainer.config)) if workers.first else None
    final = trainer.fit(None, callbacks)
    return [seen, final["val_loss"]]


@pytest.mark.parametrize(
    ("machine", "whole"),
    [(COPIED, True), pytest.param(SHARDED, False, marks=pytest.mark.slow)],
    ids=["copies", "sharded"],
)
def test_two_processes(tmp_path, endless, machine, whole):
    """The first one calls them; it can call a model of its own, and is given none that it has a part of."""
    expected = make_language_trainer().fit()["val_loss"]
    found = together(2, trained, machine, tmp_path)
    assert found[0][0] == [whole] * 6 and found[1][0] == []
    assert found[0][1] == pytest.approx(expected, rel=1e-10)


class FakeRun:
    def __init__(self, how: dict[str, Any], fails_at: int | None) -> None:
        self.how, self.logged, self.finished, self._fails_at = how, [], 0, fails_at

    def log(self, numbers, step=None):
        if step == self._fails_at:
            raise ConnectionError("no network")
        self.logged.append((step, numbers))

    def finish(self):
        self.finished += 1


@pytest.fixture
def fake(monkeypatch):
    """A module in the place of a tracker, and the runs that it has begun."""

    def install(name: str, fails_at: int | None = None) -> list[FakeRun]:
        runs: list[FakeRun] = []

        def init(**how):
            if fails_at == 0:
                raise SystemExit("log in first")
            runs.append(FakeRun(how, fails_at))
            return runs[-1]

        module: Any = ModuleType(name)
        module.init = init
        monkeypatch.setitem(sys.modules, name, module)
        return runs

    return install


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_trackers(tmp_path, fake, name):
    """They get the numbers of each row at its step, and the end; a stopped run goes on under the same name."""
    runs, config = fake(name), tiny_config(tmp_path)
    run = start_run(LANGUAGE, called(config, tracker=name, project="mine"))
    rows = read_rows(run.metrics)
    assert [step for step, _ in runs[0].logged] == [*(row["step"] for row in rows), 7]
    for (_, numbers), row in zip(runs[0].logged, rows, strict=False):
        wanted = {"train/loss": row["train_loss"], "grad/norm": row["grad_norm"], "lr": row["lr"]}
        assert wanted.items() <= numbers.items() and ("val/loss" in numbers) == ("val_loss" in row)
    assert runs[0].logged[-1][1] == {"final/val_loss": run.read_result()["loss"]["val"]} and runs[0].finished == 1
    assert (runs[0].how["project"], runs[0].how["name"], runs[0].how["resume"]) == ("mine", "run", "allow")
    assert json.loads(json.dumps(runs[0].how["config"]))["loop"]["steps"] == 7
    with interrupted(7):
        start_run(LANGUAGE, called(named(config, "parts"), tracker=name))
    parts = resume_run(LANGUAGE, tmp_path / "runs" / "parts", online=None)
    assert runs[1].how == runs[2].how and runs[1].how["project"] == "language" and runs[1].finished == 1
    assert parts.weights.read_bytes() == run.weights.read_bytes()
    if name == "wandb":
        assert runs[1].how["id"] == (parts.path / WANDB_ID).read_text() != runs[0].how["id"]


def test_a_project_is_named_after_the_file_of_an_experiment(tmp_path, fake):
    runs, config = fake("wandb"), replace(tiny_config(tmp_path), experiment="its/my_experiment.py:Sums")
    WandB().on_step(SimpleNamespace(config=config, folder=tmp_path, step=1), {"loss": 1.0})
    assert runs[0].how["project"] == "my_experiment.py-Sums"


@pytest.mark.parametrize("fails_at", [0, 4])
def test_trackers_that_fail(tmp_path, fake, capsys, fails_at):
    """As they begin, or later."""
    config = tiny_config(tmp_path)
    fake("wandb", fails_at)
    plain, run = start_run(LANGUAGE, config), start_run(LANGUAGE, called(named(config, "tracked"), tracker="wandb"))
    said = [line for line in capsys.readouterr().err.splitlines() if "failed" in line]
    assert len(said) == 1 and said[0].startswith("dat: output.tracker wandb failed in on_step (")
    assert_same_run(run, plain)


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_trackers_that_are_not_installed(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf'pip install "relational-attention\[{name}\]"'):
        start_run(LANGUAGE, called(tiny_config(tmp_path), tracker=name))
    assert not (tmp_path / "runs" / "run").exists()
    with pytest.raises(ValueError, match=r"output\.project: expected a text to print with output\.tracker"):
        OutputConfig(project="mine")


def test_tensorboard_of_a_run_that_begins_again(tmp_path):
    """It was killed before its first checkpoint."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for value in (1.0, 2.0):
        tensorboard = TensorBoard(tmp_path, None)
        for step in (1, 2):
            tensorboard.on_step(SimpleNamespace(step=step), {"train_loss": value})
        tensorboard.on_end(SimpleNamespace(step=2), None)
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(1, 2.0), (2, 2.0)]


def test_tensorboard(tmp_path):
    """The numbers of each row at its step, whole or resumed."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    config = called(tiny_config(tmp_path), tensorboard=True)
    with interrupted(7):
        start_run(LANGUAGE, config)
    run = resume_run(LANGUAGE, tmp_path / "runs" / "run")
    events = accumulator.EventAccumulator(str(run.tensorboard)).Reload()
    for key, tag in (("train_loss", "train/loss"), ("val_loss", "val/loss"), ("lr", "lr")):
        found = [(event.step, event.value) for event in events.Scalars(tag)]
        expected = [(row["step"], pytest.approx(row[key], rel=1e-6)) for row in read_rows(run.metrics) if key in row]
        assert found == expected
