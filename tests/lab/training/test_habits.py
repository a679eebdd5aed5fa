"""What is noted of a training, and when it ends early."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dat.experiments.language.experiment import LanguageModelling
from dat.training.configs import LoopConfig, OptimConfig, StepLoopConfig
from dat.training.distributed import ALONE
from dat.training.interrupt import Interrupted, StopOnSignal
from dat.training.loop import Trainer
from dat.training.measuring import stream_sizes
from dat.training.metrics import MetricsLog, read_rows
from dat.training.runs import resume_run, start_run
from dat.training.saved_weights import whose_weights
from dat.training.sharding_groups import blocks_of
from tests.lab.experiments.language.conftest import named, tiny_config
from tests.support.processes import together
from tests.support.refusals import refused
from tests.support.runs import assert_same_run, fit_until_stopped

from .test_loop import LOOP as EPOCHS
from .test_loop import make_trainer as make_small_trainer
from .test_loop import stop_after, weights
from .test_placement import COPIED, HYBRID, OPTIM, SHARDED, make_trainer

LANGUAGE = LanguageModelling()
LOOP = StepLoopConfig(steps=4, batch_size=8, micro_batch_size=3, eval_every=0, checkpoint_every=0, report_every=2)


pytestmark = pytest.mark.usefixtures("endless")


def rows_of(workers: Any, machine: Any, path: Path, **changes: Any) -> list[dict[str, Any]]:
    trainer = make_trainer(workers, machine, **{"loop": LOOP, **changes})
    trainer.fit(MetricsLog(path, unit="report") if workers.first else None)
    return read_rows(path) if workers.first else []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "machine", "clip"),
    [(2, COPIED, 0.1), (2, SHARDED, None), pytest.param(4, HYBRID, 0.1, marks=pytest.mark.slow)],
    ids=["copies, clipped", "sharded", "sharded in twos, clipped"],
)
def test_the_norm_of_the_gradient(tmp_path, size, machine, clip):
    """Before clipping, the mean over the steps of a row, however the model is divided."""
    optim, norms = replace(OPTIM, grad_clip=clip), []
    trainer = make_trainer(loop=LOOP, optim=optim)
    add = trainer._add_gradients

    def noted(indices):
        passes = add(indices)
        squares = [p.grad.square().sum() for p in trainer.problem.model.parameters() if p.grad is not None]
        norms.append(float(torch.stack(squares).sum().sqrt()))
        return passes

    trainer._add_gradients = noted
    trainer.fit()
    expected = [(norms[0] + norms[1]) / 2, (norms[2] + norms[3]) / 2]
    found = together(size, lambda workers: rows_of(workers, machine, tmp_path / "rows.jsonl", optim=optim))[0]
    assert [row["grad_norm"] for row in found] == pytest.approx(expected, rel=1e-10)
    assert not any("train_grad_norm" in row for row in found)


def test_the_norm_of_a_row_that_an_older_version_began_is_not_known(tmp_path):
    fit_until_stopped(make_small_trainer(tmp_path / "c", stop_after(2)))
    trainer = make_small_trainer(tmp_path / "c")
    load = trainer._load_state
    trainer._load_state = lambda s: load({**s, "sums": {k: v for k, v in s["sums"].items() if "_" not in k}})
    assert trainer.resume()
    trainer.fit(MetricsLog(tmp_path / "m.jsonl"))
    norms = [row["grad_norm"] for row in read_rows(tmp_path / "m.jsonl")]
    assert norms[0] is None and all(norm > 0 for norm in norms[1:])


def test_sizes_of_the_residual_stream(tmp_path):
    """After each block, of the examples that the last step began with; training is as it is without."""
    plain = make_trainer(loop=LOOP)
    plain.fit()
    loop = replace(LOOP, activation_stats=True)
    trainer, seen = make_trainer(loop=loop), []
    hooks = [
        block.register_forward_hook(lambda *given: seen.append(given[2]) if not torch.is_grad_enabled() else None)
        for block in blocks_of(trainer.problem.model)
    ]
    trainer.fit(MetricsLog(tmp_path / "rows.jsonl", unit="report"))
    assert all(map(torch.equal, weights(plain), weights(trainer)))
    rows = read_rows(tmp_path / "rows.jsonl")
    expected = [[float(stream.square().mean().sqrt()) for stream in seen[i : i + 2]] for i in (0, 2)]
    assert [[row["rms_block_0"], row["rms_block_1"]] for row in rows] == [pytest.approx(pair) for pair in expected]
    for hook in hooks:
        hook.remove()
    model, problem = trainer.problem.model.train(), trainer.problem
    batch = problem.train.batch(torch.arange(3))
    for dropout in (module for module in model.modules() if isinstance(module, torch.nn.Dropout)):
        dropout.p = 0.5
    sizes = [stream_sizes(model, batch, problem.loss, trainer.placement) for _ in range(2)]
    assert sizes[0] == sizes[1] and sizes[0]["rms_block_0"] > 0 and model.training
    assert not any(block._forward_hooks for block in blocks_of(model))
    small = make_small_trainer(loop=replace(EPOCHS, activation_stats=True))
    small.fit(MetricsLog(tmp_path / "small.jsonl"))  # of a model without blocks there are none
    assert not any(key.startswith("rms") for row in read_rows(tmp_path / "small.jsonl") for key in row)


@pytest.mark.parametrize("calls", [2, 3])
def test_sizes_are_of_the_first_call_of_each_block(calls):
    """Losses that run the model again, as those that look at heads do, change neither their number nor their values."""
    trainer = make_trainer(loop=LOOP)
    model, problem, batch = trainer.problem.model, trainer.problem, trainer.problem.train.batch(torch.arange(3))
    once = stream_sizes(model, batch, problem.loss, trainer.placement)

    def again(model, batch):
        value = problem.loss(model, batch)
        for call in range(1, calls):
            problem.loss(model, problem.train.batch(torch.arange(call, 3)))
        return value

    assert len(once) == len(blocks_of(model)) and stream_sizes(model, batch, again, trainer.placement) == once


@pytest.mark.parametrize("machine", [COPIED, pytest.param(SHARDED, marks=pytest.mark.slow)], ids=["copies", "sharded"])
def test_sizes_in_several_processes(tmp_path, machine):
    """Of what all of them took in the first pass."""
    changes = {"loop": replace(LOOP, micro_batch_size=None, activation_stats=True)}
    expected = rows_of(ALONE, COPIED, tmp_path / "one.jsonl", **changes)
    found = together(2, lambda workers: rows_of(workers, machine, tmp_path / "two.jsonl", **changes))[0]
    for key in ("rms_block_0", "rms_block_1", "grad_norm"):
        assert [row[key] for row in found] == pytest.approx([row[key] for row in expected], rel=1e-10)


def overfitting(folder: Path, **loop: Any) -> Any:
    """A run whose validation loss rises soon: each step is far too large."""
    config = tiny_config(folder)
    rates = replace(config.optim, lr=0.5, schedule="constant", warmup_steps=0, average_decay=0.1)
    given = {"steps": 40, "eval_every": 2, "checkpoint_every": 0, "report_every": 0, "stop_patience": 3, **loop}
    return replace(config, optim=rates, loop=replace(config.loop, **given))


@pytest.mark.parametrize("nans", [(0,), (1,), (0, 1), (0, 1, 2, 3, 4)], ids=str)
def test_a_loss_that_is_no_number_is_never_the_lowest(nans):
    """At any place among the evaluations; if all losses are NaN, none improves."""
    trainer = make_small_trainer(loop=replace(EPOCHS, stop_patience=3))
    losses = [math.nan if place in nans else 9.0 - place for place in range(5)]
    trainer.watched = [{"epoch": n + 1, "step": n + 1, "val_loss": loss} for n, loss in enumerate(losses)]
    assert trainer.best == trainer.watched[0 if len(nans) == 5 else 4] and trainer.ended_early is (len(nans) == 5)


@pytest.mark.slow
def test_training_ends_when_nothing_improves(tmp_path):
    """So many evaluations after the lowest loss; the last weights are the final ones, and the best are kept."""
    folder = start_run(LANGUAGE, overfitting(tmp_path))
    rows, result = read_rows(folder.metrics), folder.read_result()
    losses = [row["val_loss"] for row in rows]
    best = losses.index(min(losses))
    assert len(losses) == best + 4 < 20 and result["ended_early"] is True
    assert result["steps"] == rows[-1]["step"] and result["loss"]["val"] == losses[-1]
    assert (result["best"]["step"], result["best"]["val_loss"]) == (rows[best]["step"], min(losses))
    kept = [int(path.name.rpartition("-")[2]) for path in folder.checkpoints.all()]
    assert result["best"]["step"] in kept and len(kept) <= 2
    best = result["best"]["step"]
    told = f"the average of the weights of step {result['steps']}, the last ones; the best ones are of step {best}, in "
    assert whose_weights(folder).startswith(told)
    [path] = [path for path in folder.checkpoints.all() if path.name.endswith(f"-{best:08d}")]
    assert whose_weights(folder, path) == f"the average of the weights of step {best}, the best ones"
    result = start_run(LANGUAGE, named(overfitting(tmp_path, steps=4), "short")).read_result()
    assert (result["ended_early"], result["steps"]) == (False, 4)


@pytest.mark.slow
@pytest.mark.parametrize("before", [3, pytest.param(0, marks=pytest.mark.slow)])
def test_stopped_and_resumed_it_ends_at_the_same_step(tmp_path, monkeypatch, before):
    """Stopped some steps before the end, or in the last evaluation."""
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = start_run(LANGUAGE, overfitting(tmp_path / "whole"))
    last, done = whole.read_result()["steps"] - before, [0]
    step = Trainer.train_step
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Trainer, "train_step", lambda self, *a: (step(self, *a), done.append(self.step)))
        patch.setattr(StopOnSignal, "__call__", lambda self: done[-1] >= last)
        start_run(LANGUAGE, overfitting(tmp_path / "parts"))
    parts = resume_run(LANGUAGE, tmp_path / "parts" / "runs" / "run")
    assert_same_run(parts, whole)
    assert parts.read_result()["best"] == whole.read_result()["best"]


def test_epochs_end_early_too(tmp_path):
    loop = LoopConfig(epochs=30, batch_size=16, eval_batch_size=7, eval_every=1, checkpoint_every=0, stop_patience=2)
    trainer = make_small_trainer(tmp_path / "c", loop=loop, optim=OptimConfig(lr=0.3))
    trainer.fit()
    assert trainer.ended_early and trainer.epoch < 30 and trainer.best is not None
    assert trainer.epoch == trainer.best["epoch"] + 2


PATIENT = replace(LOOP, eval_every=1, stop_patience=2)


EXPECTED = r"loop\.stop_patience: expected"

test_patience_that_is_none = refused(
    (lambda: LoopConfig(stop_patience=3, eval_every=0), rf"{EXPECTED} null with loop\.eval_every=0, got 3"),
    (lambda: LoopConfig(stop_patience=0), f"{EXPECTED} an integer of at least 1 or null, got 0"),
    (lambda: LANGUAGE.Grid(loop=PATIENT), f"{EXPECTED} null in a grid, got 2"),
    (lambda: make_trainer(loop=PATIENT, sets={}), f"{EXPECTED} null without a validation set, got 2"),
)
