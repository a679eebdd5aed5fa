"""Objectives of the user's own: trained, stopped, resumed and divided among processes as the loss of the experiment."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from dat import _own_code
from dat.checkpoints import open_checkpoint
from dat.experiments.language.experiment import LanguageModelling
from dat.experiments.language.problem import build_language_model, language_loss
from dat.training.checkpoint import WEIGHTS
from dat.training.configs import StepLoopConfig
from dat.training.distributed import ALONE
from dat.training.loop import Trainer
from dat.training.metrics import MetricsLog, read_rows
from dat.training.objective import Objective, with_objective
from dat.training.placement import place_model
from dat.training.problem import Problem
from dat.training.runs import evaluate_run, resume_run, start_run
from tests.lab.experiments.language.conftest import named, tiny_config
from tests.support.processes import together
from tests.support.refusals import refusals, refused
from tests.support.runs import assert_same_run, interrupted, without_time

from .test_loop import make_trainer as make_small_trainer
from .test_placement import COPIED, CPU, MODEL, OPTIM, SHARDED, SHARING, Endless

LANGUAGE = LanguageModelling()
HERE = f"{__name__}:"


@dataclass
class Head(Objective):
    """Parameters of its own that are used before the model, some that never are, and a buffer that counts."""

    weight: float = 0.5

    def begin(self, model, device):
        dtype = torch.float64 if model.layers.final_out.weight.dtype == torch.float64 else torch.float32
        self.own = nn.ModuleDict({"head": nn.Linear(16, 257), "idle": nn.Linear(3, 3)}).to(dtype)
        self.own.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        return self.own

    def __call__(self, model, *inputs, **arguments):
        tokens, targets = inputs
        self.own.calls += model.training
        size = self.own["head"].weight.square().mean()
        hidden = model.hidden(tokens, **arguments)
        first = model.loss_from_hidden(hidden, targets)
        second = F.cross_entropy(self.own["head"](hidden[:, :-1]).flatten(0, 1), targets[:, 1:].flatten())
        return first + self.weight * (second + size), {"first": first, "second": second}


class Default(Objective):
    def __call__(self, model, *inputs, **arguments):
        return model(*inputs, loss_only=True, **arguments).loss, {}


class Returns(Objective):
    """What a test says."""

    value: Any = None

    def __call__(self, model, *inputs, **arguments):
        return type(self).value(model(*inputs, **arguments).loss)


class NoBeginning(Default):
    def begin(self, model, device):
        raise RuntimeError("no teacher")


@pytest.fixture(autouse=True)
def given(monkeypatch):
    monkeypatch.setattr(_own_code, "_given", [])
    for kind in (Head, Default, Returns, NoBeginning):
        _own_code.give(f"{HERE}{kind.__name__}")


def taught(config: Any, kind: type, **loop: Any) -> Any:
    return replace(config, loop=replace(config.loop, objective=f"{HERE}{kind.__name__}", **loop))


def averaged(config: Any) -> Any:
    return replace(config, optim=replace(config.optim, average_decay=0.9))


def test_the_default_as_an_objective(tmp_path):
    """The same numbers to the bit, dropout and micro-batches included; no perplexity of a loss that may be another."""
    config = tiny_config(tmp_path)
    plain, own = start_run(LANGUAGE, config), start_run(LANGUAGE, named(taught(config, Default), "own"))
    assert plain.weights.read_bytes() == own.weights.read_bytes()
    for before, now in zip(*(without_time(read_rows(run.metrics)) for run in (plain, own)), strict=True):
        assert now == {name: value for name, value in before.items() if name != "train_perplexity"}
        assert "train_perplexity" in before


@pytest.mark.sweep(3)
@pytest.mark.parametrize("looks", [1, 4, 10])
def test_stopped_and_resumed(tmp_path, looks):
    """With its parameters, their average and its buffers, which the final weights are without."""
    config = averaged(taught(tiny_config(tmp_path), Head, objective_options={"weight": 0.25}))
    whole = start_run(LANGUAGE, named(config, "whole"))
    with interrupted(looks):
        start_run(LANGUAGE, named(config, "parts"))
    parts = resume_run(LANGUAGE, tmp_path / "runs" / "parts")
    assert_same_run(parts, whole)
    last = [load_file(run.checkpoints.all()[-1] / WEIGHTS) for run in (whole, parts)]
    own = [name for name in last[0] if name.startswith("objective.")]
    assert len(own) == 5 and all(torch.equal(last[0][name], last[1][name]) for name in last[0])
    assert int(last[0]["objective.calls"]) == 7 * 2  # micro-batches: the trial before the run is not counted
    assert not any(name.startswith("objective.") for name in load_file(whole.weights))
    assert whole.read_result()["parameters"] == sum(t.numel() for t in open_checkpoint(whole.path).model.parameters())


def test_a_run_is_opened_without_it(tmp_path, monkeypatch):
    run = start_run(LANGUAGE, averaged(taught(tiny_config(tmp_path), Head)))
    monkeypatch.setattr(_own_code, "_given", [])
    numbers = evaluate_run(LANGUAGE, run.path)["val"]
    assert numbers["loss"] == run.read_result()["loss"]["val"]
    weights, early = (open_checkpoint(path).model.state_dict() for path in (run.path, run.checkpoints.latest()))
    assert all(torch.equal(weights[name], early[name]) for name in weights)  # both the average after the last step


def test_warm_starts_leave_its_parameters_as_drawn(tmp_path):
    """From a run that has none, and of a run that has none from one that has."""
    config = tiny_config(tmp_path)
    start_run(LANGUAGE, config)
    folder = str(tmp_path / "runs" / "run")
    second = start_run(LANGUAGE, named(taught(config, Head, weights_from=folder, steps=1), "second"))
    checkpoint = str(second.checkpoints.latest())
    start_run(LANGUAGE, named(replace(config, loop=replace(config.loop, weights_from=checkpoint)), "third"))


def trained(workers: Any, machine: Any, path: Any, layers: int = MODEL.n_layers, **loop: Any) -> dict[str, Any]:
    """Rows, final numbers and weights of a training in float64, or in float32 if its products are rounded."""
    given = {"steps": 4, "batch_size": 8, "report_every": 1, "eval_every": 2, **loop}
    config: Any = SimpleNamespace(
        optim=OPTIM, loop=StepLoopConfig(**given, objective=f"{HERE}Head"), seed=3, machine=machine
    )
    low, keys = machine.autocast, replace(MODEL, n_layers=layers)
    model = build_language_model(keys.language_config(257), seed=4).to(torch.float32 if low else torch.float64)
    sets = {"val": Endless(16, 1)}
    problem = Problem(model, Endless(21, 0), language_loss(low), sets, own_loss=language_loss(low, own=True))
    problem = with_objective(problem, config, CPU)
    trainer = Trainer(problem, config, placement=place_model(problem, CPU, machine, workers))
    final = trainer.fit(MetricsLog(path, unit="report") if workers.first else None)
    weights = {name: tensor.clone() for name, tensor in trainer.placement.weights().items()}
    return {"rows": read_rows(path) if workers.first else [], "final": final, "weights": weights}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "machine", "micro"),
    [(2, COPIED, 3), (2, SHARDED, 3), pytest.param(3, COPIED, None, marks=pytest.mark.slow)],
    ids=["copies, in parts", "sharded, in parts", "three copies"],
)
def test_several_processes(tmp_path, size, machine, micro):
    """The numbers, gradients and weights of one process, its own parameters among them."""
    batch = {"batch_size": 6} if size == 3 else {}
    expected = trained(ALONE, COPIED, tmp_path / "one.jsonl", **batch)
    how = {"micro_batch_size": micro, **batch}
    found = together(size, lambda workers: trained(workers, machine, tmp_path / "several.jsonl", **how))[0]
    assert found["final"] == pytest.approx(expected["final"], rel=1e-10)
    for row, wanted in zip(found["rows"], expected["rows"], strict=True):
        for key in ("train_loss", "train_first", "train_second", "grad_norm"):
            assert row[key] == pytest.approx(wanted[key], rel=1e-10), key
    for name, tensor in expected["weights"].items():
        if name != "objective.calls":
            torch.testing.assert_close(found["weights"][name], tensor, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "backend"), [(COPIED, "eager"), (SHARDED, "aot_eager")], ids=["copies", "sharded"])
def test_several_processes_with_compiled_blocks(tmp_path, monkeypatch, machine, backend):
    """By parts of the compiler that need no C++."""
    compile = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda self: compile(self, backend=backend))
    how = {"steps": 2, "eval_batch_size": 8, "layers": 1}
    expected = trained(ALONE, COPIED, tmp_path / "one.jsonl", **how)
    compiled = replace(machine, compile=True)
    found = together(2, lambda workers: trained(workers, compiled, tmp_path / "several.jsonl", **how))[0]
    assert found["final"] == pytest.approx(expected["final"], rel=1e-9)
    for name, tensor in expected["weights"].items():
        if name != "objective.calls":
            torch.testing.assert_close(found["weights"][name], tensor, rtol=1e-9, atol=1e-9)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("machine", [COPIED, pytest.param(SHARDED, marks=pytest.mark.slow)], ids=["copies", "sharded"])
def test_several_processes_in_bfloat16(tmp_path, machine):
    """Nearly the numbers of one process in bfloat16, its own parameters in float32 throughout."""
    machine = replace(machine, precision="bfloat16")
    alone = trained(ALONE, machine, tmp_path / "one.jsonl")
    found = together(2, lambda workers: trained(workers, machine, tmp_path / "several.jsonl"))[0]
    exact = trained(ALONE, COPIED, tmp_path / "exact.jsonl")
    assert found["final"]["val_loss"] != pytest.approx(exact["final"]["val_loss"], rel=1e-7)
    for row, wanted in zip(found["rows"], alone["rows"], strict=True):
        for key in ("train_loss", "train_first", "train_second"):
            assert row[key] == pytest.approx(wanted[key], rel=5e-3), key
    assert {t.dtype for name, t in found["weights"].items() if name != "objective.calls"} == {torch.float32}


@refusals(
    (lambda loss: (loss.expand(3), {}), r"expected a scalar loss, got float32 \(3,\)"),
    (lambda loss: (1.5, {}), "expected a scalar loss, got float"),
    (lambda loss: (loss.long(), {}), r"expected a scalar loss, got int64 \(\)"),
    (lambda loss: (loss.detach(), {}), "a loss that depends on parameters, got one without a graph"),
    (lambda loss: loss, r"expected a loss and a mapping of numbers, got float32 \(\)"),
    (lambda loss: (loss, {"x": loss[None]}), r"scalar tensors, by names other than loss, got 'x': float32 \(1,\)"),
    (lambda loss: (loss, {"loss": loss}), "names other than loss, got 'loss'"),
    (lambda loss: loss.nothing, r"no attribute 'nothing' \(AttributeError.*line \d+\)"),
    of="value",
    error=(TypeError, ValueError),
)
def test_objectives_that_return_something_else(tmp_path, monkeypatch, value, error, message):
    """They are refused by name before there is a folder."""
    monkeypatch.setattr(Returns, "value", value)
    with pytest.raises(error, match=rf"loop\.objective: {HERE}Returns: .*{message}"):
        start_run(LANGUAGE, taught(tiny_config(tmp_path), Returns))
    assert not (tmp_path / "runs" / "run").exists()


def test_numbers_that_come_and_go(tmp_path, monkeypatch):
    calls: list[int] = []
    value = lambda loss: (calls.append(1), (loss, {"x": loss} if len(calls) < 3 else {}))[1]  # noqa: E731
    monkeypatch.setattr(Returns, "value", value)
    with pytest.raises(ValueError, match="expected the numbers x in each batch, got none"):
        start_run(LANGUAGE, taught(tiny_config(tmp_path), Returns))


def placed(name: str = f"{HERE}Head", machine: Any = COPIED, **changes: Any) -> None:
    _own_code.give(name)
    config: Any = SimpleNamespace(loop=StepLoopConfig(objective=name), seed=0, machine=machine)
    with_objective(replace(make_small_trainer().problem, **changes), config, CPU)


OWN_LOSS = language_loss(own=True)


KEY = r"loop\.objective"


def begun(folder: Path, kind: type[Objective], options: Any) -> None:
    start_run(LANGUAGE, taught(tiny_config(folder), kind, objective_options=options))


test_what_is_refused = refused(
    (lambda path: begun(path, Head, {"wieght": 1.0}), r"loop\.objective_options\.wieght: there is no such key"),
    (lambda path: begun(path, Head, {"weight": "much"}), r"objective_options\.weight: expected a number, got much"),
    (lambda path: begun(path, Default, {"k": 2}), r"objective_options: expected null, since .*Default is no dataclass"),
    (lambda path: begun(path, NoBeginning, None), r"NoBeginning: no teacher \(RuntimeError"),
    (lambda _: StepLoopConfig(objective_options={"k": 2}), rf"{KEY}_options: expected null without loop\.objective"),
    (lambda _: LANGUAGE.Grid(loop=StepLoopConfig(objective="a.py:A")), f"{KEY}: expected null in a grid"),
    (lambda _: placed(), f"{KEY}: expected null in this experiment, got "),
    (lambda _: placed(machine=SHARING, own_loss=OWN_LOSS), rf"{KEY}: expected null with machine\.context_parallel"),
    (lambda _: placed("nothing", own_loss=OWN_LOSS), rf"{KEY}: expected FILE\.py:CLASS or MODULE:CLASS, got 'nothing'"),
    (lambda _: placed("os:path", own_loss=OWN_LOSS), f"{KEY}: os:path: expected a subclass of dat"),
    by=lambda call, *, tmp_path: call(tmp_path),
)
