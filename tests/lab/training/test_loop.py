"""The training loop on a toy problem that knows nothing of Relational Games."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from dat.training.checkpoint import Checkpoints
from dat.training.configs import LoopConfig, OptimConfig, StepLoopConfig
from dat.training.loop import CHECK_LOSS_EVERY, Diverged, Trainer
from dat.training.measuring import RunningMeans, mean_measures
from dat.training.metrics import MetricsLog, read_rows
from dat.training.optim import learning_rate
from dat.training.problem import Problem, TensorExamples
from dat.training.progress import Progress
from dat.training.seeding import derive_seed, epoch_order
from tests.support.refusals import refused
from tests.support.runs import failing_at, fit_until_stopped, without_time

N, WIDTH = 50, 6
LOOP = LoopConfig(epochs=4, batch_size=16, eval_batch_size=7, eval_every=2, checkpoint_every=1)


class Rows:
    """Regression data: y is the sum of x."""

    def __init__(self, n: int, seed: int) -> None:
        self.x = torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self.x)

    def batch(self, indices):
        return self.x[indices], self.x[indices].sum(1, keepdim=True)


def squared_error(model, batch):
    x, y = batch
    error = model(x) - y
    return error.square().mean(), {"absolute": error.detach().abs().mean()}


def make_trainer(folder: Path | None = None, stop: Callable[[], bool] = lambda: False, **changes) -> Trainer:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1))
    settings = {"loss": squared_error, "optim": OptimConfig(lr=0.01), "loop": LOOP, "seed": 3, **changes}
    problem = Problem(model, Rows(N, 0), settings["loss"], {"val": Rows(20, 1), "test": Rows(30, 2)})
    checkpoints = Checkpoints(folder) if folder is not None else None
    config = SimpleNamespace(**{key: settings[key] for key in ("optim", "loop", "seed")})
    return Trainer(problem, config, checkpoints=checkpoints, stop=stop, progress=changes.get("progress"))


def stop_after(looks: int) -> Callable[[], bool]:
    """A stop condition that becomes true when it is looked at for the ``looks + 1``-th time."""
    counter = itertools.count()
    return lambda: next(counter) >= looks


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in trainer.problem.model.parameters()]


def test_training_lowers_the_loss(tmp_path):
    trainer = make_trainer(loop=LoopConfig(epochs=30, batch_size=16, eval_every=0))
    log = MetricsLog(tmp_path / "metrics.jsonl")
    final = trainer.fit(log)
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert [row["epoch"] for row in rows] == list(range(1, 31))
    assert rows[-1]["train_loss"] < 0.3 * rows[0]["train_loss"]
    assert set(final) == {"val_loss", "val_absolute", "test_loss", "test_absolute"}
    assert final["test_loss"] < rows[0]["train_loss"]
    assert trainer.step == 30 * 4  # 50 examples in batches of 16: the last, partial one is kept


def test_train_means_weigh_every_example_alike(tmp_path):
    trainer = make_trainer(optim=OptimConfig(lr=1e-30), loop=LoopConfig(epochs=1, batch_size=16, eval_every=0))
    trainer.problem.model[2].p = 0.0
    log = MetricsLog(tmp_path / "metrics.jsonl")
    trainer.fit(log)
    x, y = Rows(N, 0).batch(torch.arange(N))
    expected = float((trainer.problem.model(x) - y).square().mean().detach())
    assert read_rows(tmp_path / "metrics.jsonl")[0]["train_loss"] == pytest.approx(expected, rel=1e-5)


def test_evaluation_is_rows_and_epochs_asked_for(tmp_path):
    make_trainer().fit(MetricsLog(tmp_path / "metrics.jsonl"))
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert ["val_loss" in row for row in rows] == [False, True, False, True]
    assert not any("test_loss" in row for row in rows)


@pytest.mark.parametrize("looks", [0, 1, 3, 4, 6, 9, 13, 17, 21, 23, 26])
def test_stop_anywhere_and_resume_gives_the_same_numbers(tmp_path, looks):
    """Looks 0 to 25 cover steps, batches of the evaluation during training and of the final one."""
    whole = make_trainer()
    whole_log = MetricsLog(tmp_path / "whole.jsonl")
    expected = whole.fit(whole_log)

    fit_until_stopped(make_trainer(tmp_path / "checkpoints", stop_after(looks)), MetricsLog(tmp_path / "parts.jsonl"))
    second = make_trainer(tmp_path / "checkpoints")
    assert second.resume()
    torch.manual_seed(99)  # whatever the process did meanwhile
    third = make_trainer(tmp_path / "checkpoints")
    assert third.resume()
    log = MetricsLog(tmp_path / "parts.jsonl", epochs_done=third.epoch)
    assert third.fit(log) == expected
    assert all(torch.equal(a, b) for a, b in zip(weights(third), weights(whole), strict=True))
    assert without_time(read_rows(tmp_path / "parts.jsonl")) == without_time(read_rows(tmp_path / "whole.jsonl"))


def test_crash_resumes_from_the_last_checkpoint(tmp_path):
    whole = make_trainer()
    expected = whole.fit(MetricsLog(tmp_path / "whole.jsonl"))
    with failing_at(10):
        make_trainer(tmp_path / "checkpoints").fit(MetricsLog(tmp_path / "parts.jsonl"))
    again = make_trainer(tmp_path / "checkpoints")
    assert again.resume() and again.epoch == 2
    assert again.fit(MetricsLog(tmp_path / "parts.jsonl", epochs_done=again.epoch)) == expected
    assert without_time(read_rows(tmp_path / "parts.jsonl")) == without_time(read_rows(tmp_path / "whole.jsonl"))


def test_rows_written_after_the_last_checkpoint_are_written_once(tmp_path):
    loop = LoopConfig(epochs=4, batch_size=16, eval_every=0, checkpoint_every=3)
    with failing_at(9):  # in the third epoch: two rows are written, nothing is saved
        make_trainer(tmp_path / "c", loop=loop).fit(MetricsLog(tmp_path / "m.jsonl"))
    assert len(read_rows(tmp_path / "m.jsonl")) == 2
    again = make_trainer(tmp_path / "c", loop=loop)
    assert not again.resume()
    again.fit(MetricsLog(tmp_path / "m.jsonl", epochs_done=again.epoch))
    assert [row["epoch"] for row in read_rows(tmp_path / "m.jsonl")] == [1, 2, 3, 4]


def test_a_run_ends_shorter_runs_on_its_way(tmp_path):
    """What is measured after an epoch is what a run of so many epochs ends with, and the rest goes on as without."""
    final = make_trainer().fit()
    measured = make_trainer(loop=replace(LOOP, measure_at=(1, 3, 4)))
    log = MetricsLog(tmp_path / "metrics.jsonl")
    assert measured.fit(log) == final
    shorter = {epochs: make_trainer(loop=replace(LOOP, epochs=epochs)).fit() for epochs in (1, 3)}
    expected = [{"epoch": epochs, "step": 4 * epochs, **means} for epochs, means in {**shorter, 4: final}.items()]
    assert measured.measured == expected
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert ["test_loss" in row for row in rows] == [True, False, True, True]
    assert "val_loss" in rows[1] and rows[2]["test_loss"] == shorter[3]["test_loss"]


@pytest.mark.parametrize("looks", [6, 14, 20, 24, 30])
def test_what_was_measured_before_a_stop_is_kept(tmp_path, looks):
    loop = replace(LOOP, measure_at=(1, 3))
    whole = make_trainer(loop=loop)
    expected = whole.fit()
    fit_until_stopped(make_trainer(tmp_path / "checkpoints", stop_after(looks), loop=loop))
    again = make_trainer(tmp_path / "checkpoints", loop=loop)
    assert again.resume()
    assert again.fit() == expected and again.measured == whole.measured
    assert again.watched == whole.watched and [row["epoch"] for row in whole.watched] == [2, 4]


def test_the_seed_decides_the_order(tmp_path):
    results = [make_trainer(seed=seed).fit() for seed in (3, 3, 4)]
    assert results[0] == results[1] != results[2]


def test_order_is_a_permutation_that_changes_with_the_epoch():
    orders = [epoch_order(100, 0, epoch) for epoch in (0, 1)]
    assert all(torch.equal(order.sort().values, torch.arange(100)) for order in orders)
    assert not torch.equal(*orders)
    assert torch.equal(orders[0], epoch_order(100, 0, 0))


def test_derived_seeds_differ_by_use():
    assert len({derive_seed(0, "a"), derive_seed(0, "b"), derive_seed(1, "a"), derive_seed(0, "a", 0)}) == 4
    assert derive_seed(0, "weights") == 133441691874178746  # the same on every machine


def test_nan_stops_training_with_one_line(tmp_path):
    def broken(model, batch):
        loss, metrics = squared_error(model, batch)
        return loss * float("nan"), metrics

    with pytest.raises(Diverged, match=r"loss became nan in epoch 1 .*optim\.lr"):
        make_trainer(tmp_path / "checkpoints", loss=broken).fit()
    assert not (tmp_path / "checkpoints").exists()  # nothing broken is saved


def test_waiting_for_the_device_counts_as_training_and_evaluation_does_not(monkeypatch):
    """A device that works while the loop goes on is waited for where a number is read: at means, not in a step."""
    clock = [0.0]

    def passing(seconds, call):
        def timed(*arguments):
            clock[0] += seconds
            return call(*arguments)

        return timed

    monkeypatch.setattr("dat.training.loop.time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(RunningMeans, "means", passing(10, RunningMeans.means))
    shown = Progress()
    shown.step = lambda *, epoch, numbers: numbers()  # a display of every step
    trainer = make_trainer(loss=passing(1, squared_error), progress=shown)
    trainer.fit()
    reads = trainer.step + 2 * LOOP.epochs  # at the end of each epoch the loss is checked, and its row is made
    reads += trainer.step // CHECK_LOSS_EVERY
    assert (trainer.step, trainer.seconds) == (16, 16 + 10 * reads) and clock[0] > trainer.seconds


@pytest.mark.parametrize("training", [True, False])
def test_evaluate_leaves_the_mode_and_uses_no_dropout(training):
    trainer = make_trainer()
    model = trainer.problem.model.train(training)
    *_, frozen = model.modules()
    frozen.eval()
    means = [mean_measures(model, Rows(30, 2), squared_error, batch_size=size) for size in (7, 30)]
    assert model.training is training and not frozen.training
    assert means[0] == pytest.approx(means[1], rel=1e-5)


def test_means_over_parts_of_examples_do_not_depend_on_the_batches():
    """Those of the loss by :attr:`Problem.weigh`, of metrics by theirs; in a batch there may be none of a metric."""
    parts, x = torch.tensor([3, 1, 0, 2, 5, 0, 0, 4, 1, 2]), Rows(10, 2).x
    examples = TensorExamples(x, x.sum(1, keepdim=True), parts)

    def loss(model, batch):
        x, y, n = batch
        error = (model(x) - y).detach().squeeze(1)
        mean = (error.square() * (n + 1)).sum() / (n + 1).sum()
        found = {"signed/a": (error * n).sum() / n.sum()} if n.any() else {}
        return mean, {"absolute": error.abs().mean(), **found}

    weights = {"loss": lambda batch: (batch[2] + 1).sum(), "signed": lambda batch: batch[2].sum()}
    trainer = make_trainer()
    problem = replace(trainer.problem, loss=loss, weigh=weights["loss"], metric_weights={"signed": weights["signed"]})
    assert problem.weights == weights
    means = [mean_measures(problem.model, examples, loss, batch_size=n, weights=problem.weights) for n in (1, 3, 4, 10)]
    assert all(found == pytest.approx(means[-1], rel=1e-5) for found in means)
    trainer.problem = replace(problem, evaluation={"val": examples})
    assert trainer.evaluate(("val",)) == pytest.approx({f"val_{name}": x for name, x in means[-1].items()}, rel=1e-5)


def test_steps_in_which_nothing_is_scored_may_be_taken_in_micro_batches():
    """Of all examples only the first is scored: the weights take the same steps, and the loss stays finite."""
    x = Rows(8 * 16, 0).x
    examples = TensorExamples(x, x.sum(1, keepdim=True), torch.arange(8 * 16) == 0)

    def loss(model, batch):
        x, y, scored = batch
        return ((model(x) - y).square().squeeze(1) * scored).sum() / scored.sum().clamp(min=1), {}

    ends = []
    for size in (None, 4):
        trainer = make_trainer(loop=StepLoopConfig(steps=8, batch_size=16, eval_every=4, micro_batch_size=size))
        trainer.problem.model[2].p = 0.0  # dropout would draw other masks
        trainer.problem = replace(
            trainer.problem, train=examples, evaluation={}, loss=loss, weigh=lambda batch: batch[2].sum()
        )
        rows = []
        trainer.fit(SimpleNamespace(log=rows.append, mark=lambda: None))
        ends.append(([row["train_loss"] for row in rows], weights(trainer)))
    torch.testing.assert_close(*ends)


def test_gradient_clipping_bounds_the_first_update():
    kinds = {clip: make_trainer(optim=OptimConfig(lr=0.1, grad_clip=clip)) for clip in (None, 1e-9)}
    norms = {}
    for clip, trainer in kinds.items():
        seen = []
        step = trainer.optimizer.step
        trainer.optimizer.step = lambda trainer=trainer, seen=seen, step=step: (
            seen.append(sum(p.grad.norm() ** 2 for p in trainer.problem.model.parameters()) ** 0.5),
            step(),
        )
        trainer.fit()
        norms[clip] = max(float(n) for n in seen)
    assert norms[1e-9] <= 1.01e-9 < norms[None]


def test_learning_rate_schedule():
    config = OptimConfig(lr=1.0, schedule="cosine", warmup_steps=4)
    rates = [learning_rate(config, step, 24) for step in range(24)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[14] == pytest.approx(0.5) and rates[-1] < 0.02
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert learning_rate(OptimConfig(lr=0.3), 17, 24) == 0.3


test_an_empty_set_is_refused = refused(
    (0, {}, "train: expected at least one"),
    (1, {"val": Rows(0, 0)}, "evaluation: expected at least one example in val, got an empty set"),
    by=lambda n, sets: Problem(nn.Linear(1, 1), Rows(n, 0), squared_error, sets),
)
