"""The average of the weights: what it is the mean of; training does not see it, evaluations see nothing else."""

from dataclasses import replace

import pytest
import torch

from dat.training.configs import OptimConfig
from dat.training.measuring import mean_measures
from dat.training.metrics import MetricsLog, read_rows
from tests.support.refusals import refusals
from tests.support.runs import fit_until_stopped, without_time

from .test_loop import LOOP, make_trainer, squared_error, stop_after, weights
from .test_placement import OPTIM
from .test_placement import make_trainer as make_language_trainer
from .test_saved_state import FIRST, GROUP, changed, newest, stopped_checkpoints

AVERAGED = OptimConfig(lr=0.01, average_decay=0.5)


def raw(trainer) -> list[torch.Tensor]:
    """The weights that training goes on with, once it has ended."""
    return [trainer.optimizer.state[parameter]["average"] for parameter in trainer.problem.model.parameters()]


def test_the_mean_that_it_is():
    """Over few steps at first, then by the decay: 2/11, 3/12, ... of what was, until that is more than 0.5."""
    trainer, seen = make_trainer(optim=AVERAGED), []
    step = trainer.train_step
    trainer.train_step = lambda indices: (step(indices), seen.append(weights(trainer)))
    trainer.fit()
    expected = [weight.double() for weight in seen[0]]
    for steps, after in enumerate(seen[1:], start=2):
        decay = min(0.5, (1 + steps) / (10 + steps))
        expected = [decay * mean + (1 - decay) * now for mean, now in zip(expected, after, strict=True)]
    for found, mean in zip(weights(trainer), expected, strict=True):
        torch.testing.assert_close(found.double(), mean, rtol=1e-5, atol=1e-7)
    assert all(map(torch.equal, raw(trainer), seen[-1]))


@pytest.mark.parametrize("changes", [{}, {"optimizer": "adamw", "weight_decay": 0.1, "grad_clip": 0.1}])
def test_training_does_not_see_it(tmp_path, changes):
    """Rows of training and weights are those without it to the bit; evaluations are of the average alone."""
    plain = make_trainer(optim=replace(OptimConfig(lr=0.01), **changes))
    plain.fit(MetricsLog(tmp_path / "plain.jsonl"))
    averaged = make_trainer(optim=replace(AVERAGED, **changes))
    final = averaged.fit(MetricsLog(tmp_path / "averaged.jsonl"))
    assert all(map(torch.equal, raw(averaged), weights(plain)))
    rows = [read_rows(tmp_path / name) for name in ("plain.jsonl", "averaged.jsonl")]
    assert [row["train_loss"] for row in rows[0]] == [row["train_loss"] for row in rows[1]]
    assert rows[0][1]["val_loss"] != rows[1][1]["val_loss"]
    problem = averaged.problem
    means = mean_measures(problem.model, problem.evaluation["val"], squared_error, batch_size=7)
    assert {f"val_{name}": mean for name, mean in means.items()} == {k: v for k, v in final.items() if "val" in k}


@pytest.mark.parametrize("looks", [0, 1, 6, 9, 10, 23, 26])
def test_stopped_anywhere_and_resumed(tmp_path, looks):
    """Looks fall between steps, and between batches of evaluations, while the model has the average."""
    whole = make_trainer(optim=AVERAGED)
    expected = whole.fit(MetricsLog(tmp_path / "whole.jsonl"))
    first = make_trainer(tmp_path / "c", stop_after(looks), optim=AVERAGED)
    fit_until_stopped(first, MetricsLog(tmp_path / "parts.jsonl"))
    again = make_trainer(tmp_path / "c", optim=AVERAGED)
    assert again.resume()
    assert again.fit(MetricsLog(tmp_path / "parts.jsonl", epochs_done=again.epoch)) == expected
    assert all(map(torch.equal, weights(again), weights(whole))) and all(map(torch.equal, raw(again), raw(whole)))
    assert without_time(read_rows(tmp_path / "parts.jsonl")) == without_time(read_rows(tmp_path / "whole.jsonl"))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_every_parameter_has_one(optimizer):
    """Under any optimiser, sharded or not; what does not train is its own average."""
    optim = replace(OPTIM, optimizer=optimizer, average_decay=0.9)
    trainer = make_language_trainer(optim=optim, dtype=torch.float32)
    trainer.fit()
    trained = [parameter for parameter in trainer.problem.model.parameters() if parameter.requires_grad]
    assert len(trained) > 10 and all("average" in trainer.optimizer.state[parameter] for parameter in trained)


@pytest.mark.parametrize("decay", [0, 1, -0.1, 1.5, float("nan")])
def test_decays_that_are_none(decay):
    with pytest.raises(ValueError, match=r"optim\.average_decay: expected a number between 0 and 1 or null, got"):
        OptimConfig(average_decay=decay)


@pytest.fixture
def stopped(tmp_path):
    return stopped_checkpoints(tmp_path, optim=AVERAGED)


@refusals(
    ((*FIRST, "average"), torch.zeros(1), r"average: expected torch.float32 \(16, 6\)"),
    ((*FIRST, "average"), torch.full((16, 6), float("nan")), "average: expected finite"),
    (FIRST, lambda entry: {k: v for k, v in entry.items() if k != "average"}, "the entries average, exp_avg"),
    ((*GROUP, "average_decay"), 0.9, r"average_decay: expected 0\.5, got 0\.9"),
    of="keys, to",
)
def test_an_average_that_does_not_fit(stopped, keys, to, error, message):
    path = newest(stopped)
    torch.save(changed(torch.load(path), *keys, to=to), path)
    with pytest.raises(error, match=message):
        make_trainer(stopped, optim=AVERAGED).resume()


def test_a_run_goes_on_as_it_was_begun(stopped):
    """With its average, or without one."""
    with pytest.raises(ValueError, match=r"average_decay: expected None, got 0\.5; if the run has other settings now"):
        make_trainer(stopped, optim=OptimConfig(lr=0.01)).resume()


@pytest.mark.slow
def test_parts_of_it(tmp_path, endless, monkeypatch):
    """A process that writes and reads its checkpoints in parts."""
    monkeypatch.setattr("dat.training.placement.Placement.saves_parts", True)
    optim = replace(OPTIM, average_decay=0.9)
    whole = make_language_trainer(optim=optim, loop=LOOP)
    expected = whole.fit()
    first = make_language_trainer(optim=optim, loop=LOOP, folder=tmp_path / "c")
    first.stop = lambda: first.step >= 5
    fit_until_stopped(first)
    again = make_language_trainer(optim=optim, loop=LOOP, folder=tmp_path / "c")
    assert again.resume() and (min((tmp_path / "c").iterdir()) / "shards").is_dir()
    assert again.fit() == expected
    assert all(map(torch.equal, weights(again), weights(whole)))
