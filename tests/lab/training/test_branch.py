"""Runs that go on from another run's checkpoint: what a shorter run would have given, and nothing else."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dat.experiments.language.config import LanguageConfig, LanguageOptimConfig
from dat.experiments.language.experiment import LanguageModelling
from dat.experiments.relational_games.experiment import RelationalGames
from dat.training.config_io import read_config
from dat.training.configs import LoopConfig, OptimConfig, StepLoopConfig
from dat.training.metrics import read_rows
from dat.training.optim import learning_rate
from dat.training.run_folder import RunFolder
from dat.training.run_names import with_free_name
from dat.training.runs import resume_run, start_run
from tests.lab.experiments.language.conftest import named
from tests.lab.experiments.language.conftest import tiny_config as language_config
from tests.support.processes import together
from tests.support.refusals import refused
from tests.support.runs import failing_at, interrupted, without_time

from .conftest import tiny_config as games_config
from .test_placement import COPIED, OPTIM, SHARDED, make_trainer

LANGUAGE = LanguageModelling()


def long_run(folder: Path, **changes: Any) -> LanguageConfig:
    """A run of 12 steps, stable for 9 and with an average of the weights, whose newest two checkpoints are kept."""
    config = language_config(folder)
    loop = replace(config.loop, steps=12, report_every=2, eval_every=0, checkpoint_every=4)
    optim = replace(config.optim, schedule="wsd", decay_steps=3, average_decay=0.8)
    return named(config, "long", loop=loop, optim=optim, **changes)


@pytest.fixture(scope="module")
def long(tmp_path_factory) -> RunFolder:
    return start_run(LANGUAGE, long_run(tmp_path_factory.mktemp("long")))


def shorter(long: RunFolder, folder: Path, name: str, start: int | None = 8, **changes: Any) -> LanguageConfig:
    """A run of 11 steps that cools down in three, from a step of the long one or, for None, from the start."""
    config = read_config(LanguageConfig, long.config)
    source = None if start is None else str(next(long.checkpoints.folder.glob(f"*-{start:08d}")))
    loop = replace(config.loop, steps=11, eval_every=5, report_every=3, checkpoint_every=0, continue_from=source)
    output = replace(config.output, folder=str(folder), name=name)
    return replace(config, loop=replace(loop, **changes), output=output)


def assert_same_end(found: RunFolder, expected: RunFolder) -> None:
    assert found.read_result()["loss"] == expected.read_result()["loss"]
    assert found.weights.read_bytes() == expected.weights.read_bytes()


@pytest.mark.slow
def test_a_cool_down_is_the_end_of_a_shorter_run(long, tmp_path):
    """To the bit, dropout and the average included: the stable phase is that of all lengths."""
    whole = start_run(LANGUAGE, shorter(long, tmp_path, "whole", None))
    cooled = start_run(LANGUAGE, shorter(long, tmp_path, "cooled"))
    assert_same_end(cooled, whole)
    rows, others = (without_time(read_rows(run.metrics)) for run in (cooled, whole))
    assert [row["step"] for row in rows] == [9, 10, 11]  # the running means begin at the branch
    own = ("step", "lr", "val_loss", "tokens")
    for row, other in zip(rows[1:], others[-2:], strict=True):
        assert {key: row.get(key) for key in own} == {key: other.get(key) for key in own}
    assert rows[-1]["train_loss"] == others[-1]["train_loss"]


def test_a_run_that_goes_on_as_before_is_the_same_run(long, tmp_path, capsys):
    config = shorter(long, tmp_path, "again", 8, steps=12)
    assert_same_end(start_run(LANGUAGE, config), long)
    assert "jumps" not in capsys.readouterr().err


def test_a_learning_rate_that_jumps_is_told(long, tmp_path, capsys):
    """After the end of a schedule, which falls again from its peak; not when such a run is resumed."""
    config = shorter(long, tmp_path, "further", 12, steps=20)
    with failing_at(15):
        start_run(LANGUAGE, config)
    last = learning_rate(config.optim, 11, 12)
    told = f"the learning rate jumps from {last:.3g} in step 12 there to {config.optim.lr:.3g} in step 13"
    assert capsys.readouterr().err.count(told) == 1
    resume_run(LANGUAGE, tmp_path / "further")
    assert "jumps" not in capsys.readouterr().err


@pytest.mark.sweep(3)
@pytest.mark.parametrize("last", [8, 9, 10])
def test_stopped_and_resumed_when_the_other_run_is_gone(long, tmp_path, last):
    """Its checkpoint was copied when the run began, and the whole path to it stands in the configuration."""
    source = RunFolder(shutil.copytree(long.path, tmp_path / "source"))
    expected = start_run(LANGUAGE, shorter(source, tmp_path, "whole"))
    config = shorter(source, tmp_path, "parts")
    with failing_at(last):
        start_run(LANGUAGE, config)
    shutil.rmtree(source.path)
    parts = RunFolder(tmp_path / "parts")
    kept = read_config(LanguageConfig, parts.config).loop.continue_from
    assert kept == str(source.path.resolve() / "checkpoints" / "report-00004-step-00000008")
    assert [path.name for path in parts.checkpoints.all()] == ["report-00001-step-00000008"]
    torch.manual_seed(99)
    resume_run(LANGUAGE, parts.path)
    assert_same_end(parts, expected)
    assert without_time(read_rows(parts.metrics)) == without_time(read_rows(expected.metrics))


def test_a_run_stands_for_its_newest_checkpoint(long, tmp_path):
    config = shorter(long, tmp_path, "run", steps=13)
    config = replace(config, loop=replace(config.loop, continue_from=str(long.path)))
    folder = start_run(LANGUAGE, config)
    assert [row["step"] for row in read_rows(folder.metrics)] == [13]
    unnamed = replace(config, output=replace(config.output, name=None))
    same = replace(unnamed, output=replace(unnamed.output, name=unnamed.run_name))
    folder.path.rename(tmp_path / unnamed.run_name)
    assert with_free_name(unnamed) == unnamed != same  # its folder is that of the same settings
    other = replace(unnamed, loop=replace(unnamed.loop, steps=14))
    assert with_free_name(other).output.name == f"{unnamed.run_name}-2"


@pytest.mark.parametrize("before", [None, 0.8])
def test_an_average_begins_or_ends_with_the_branch(tmp_path, before):
    """Training does not see whether there is one, or was."""
    source = long_run(tmp_path)
    source = start_run(LANGUAGE, replace(source, optim=replace(source.optim, average_decay=before)))
    ends = []
    for name, after in (("with", 0.8), ("without", None)):
        config = shorter(source, tmp_path, name)
        folder = start_run(LANGUAGE, replace(config, optim=replace(config.optim, average_decay=after)))
        ends.append(([row["train_loss"] for row in read_rows(folder.metrics)], folder.weights.read_bytes()))
    assert ends[0][0] == ends[1][0] and ends[0][1] != ends[1][1]


def test_epochs_are_gone_on_with(tmp_path):
    """In the middle of one, too."""
    optim = OptimConfig(lr=1e-2)
    source = start_run(RelationalGames(), games_config(tmp_path, "source", optim=optim))
    loop = LoopConfig(epochs=4, batch_size=16, eval_batch_size=20, eval_every=0, checkpoint_every=0)
    whole = start_run(RelationalGames(), games_config(tmp_path, "whole", loop=loop, optim=optim))
    loop = replace(loop, continue_from=str(source.checkpoints.all()[0]))
    branch = start_run(RelationalGames(), games_config(tmp_path, "branch", loop=loop, optim=optim))
    assert branch.weights.read_bytes() == whole.weights.read_bytes()
    assert [row["epoch"] for row in read_rows(branch.metrics)] == [3, 4]


WRONG = {
    "another seed": ({"seed": 1}, r"seed: expected 0, that of the run in loop\.continue_from, got 1"),
    "another width": ({"model.d_model": 32}, r"model\.d_model: expected 16, that of the run in"),
    "another batch": ({"loop.batch_size": 12}, r"loop\.batch_size: expected 6, that of the run in"),
    "no step left": ({"loop.steps": 8}, r"loop\.steps: expected more than the 8 steps of the checkpoint in"),
    "another optimiser": ({"optim.optimizer": "adam", "optim.weight_decay": 0.0}, "expected the state of adam"),
    "too long a decay": ({"optim.decay_steps": 10}, r"optim\.decay_steps: expected at most 9, the steps after"),
    "no run": ({"loop.continue_from": "nowhere"}, r"loop\.continue_from: nowhere: not a run folder"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_gone_on_with(long, tmp_path, changes, message):
    config: Any = shorter(long, tmp_path, "wrong")
    for key, value in changes.items():
        group, _, name = key.rpartition(".")
        config = replace(config, **({group: replace(getattr(config, group), **{name: value})} if group else changes))
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        start_run(LANGUAGE, config)
    assert "state of adam" in message or not (tmp_path / "wrong").exists()


def test_checkpoints_that_are_not_there(long, tmp_path):
    config, gone = shorter(long, tmp_path, "wrong"), long.checkpoints.folder / "report-00001-step-00000004"
    message = r"step-00000004: no checkpoint; expected one of report-.*08, report-.*12"
    with pytest.raises(FileNotFoundError, match=message):
        start_run(LANGUAGE, replace(config, loop=replace(config.loop, continue_from=str(gone))))


def test_another_text(tmp_path):
    config = shorter(start_run(LANGUAGE, long_run(tmp_path)), tmp_path, "wrong")
    (tmp_path / "text.txt").write_text(1000 * "more", encoding="utf-8")
    with pytest.raises(ValueError, match="the text is not the one that the run began with"):
        start_run(LANGUAGE, config)


def test_a_damaged_checkpoint_of_another_run(long, tmp_path):
    source = RunFolder(shutil.copytree(long.path, tmp_path / "source"))
    weights = source.checkpoints.all()[0] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match=r"damaged or changed .*; name another checkpoint in loop\.continue_from"):
        start_run(LANGUAGE, shorter(source, tmp_path, "wrong"))


LOOP = StepLoopConfig(steps=6, batch_size=4, eval_every=0, checkpoint_every=2, report_every=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "stages",
    [((1, COPIED), (2, COPIED)), pytest.param(((2, SHARDED), (2, SHARDED)), marks=pytest.mark.slow)],
    ids=["copies", "sharded"],
)
def test_any_number_of_processes(tmp_path, stages, endless):
    """Of the source, and of the branch, which then begins with a checkpoint of its own."""
    optim = replace(OPTIM, average_decay=0.8, schedule="wsd", decay_steps=1)

    def run(workers, machine, folder, loop):
        trainer = make_trainer(workers, machine, folder=tmp_path / folder, loop=loop, optim=optim)
        trainer.resume()
        began, final = trainer.step, trainer.fit()
        return began, final, {name: tensor.clone() for name, tensor in trainer.placement.weights().items()}

    (first, machine), (second, other) = stages
    together(first, run, machine, "source", LOOP)
    source = min((tmp_path / "source").iterdir())
    loop = replace(LOOP, steps=5, checkpoint_every=0, continue_from=str(source))
    began, final, weights = together(second, run, other, "branch", loop)[0]
    assert began == 4 and [path.name for path in (tmp_path / "branch").iterdir()] == ["report-00001-step-00000004"]
    _, expected, whole = together(1, run, COPIED, "whole", replace(LOOP, steps=5))[0]
    assert final == pytest.approx(expected, rel=1e-11)
    torch.testing.assert_close(weights, whole, rtol=1e-9, atol=1e-9)


def test_warm_up_stable_decay():
    config = OptimConfig(lr=1.0, schedule="wsd", warmup_steps=2, decay_steps=4)
    rates = [learning_rate(config, step, 10) for step in range(10)]
    assert rates == [0.5, *[1.0] * 5, 1.0, 0.75, 0.5, 0.25]
    fifth = OptimConfig(lr=1.0, schedule="wsd")
    assert [learning_rate(fifth, step, 10) for step in (7, 8, 9)] == [1.0, 1.0, 0.5]
    late = OptimConfig(lr=1.0, schedule="wsd", warmup_steps=9)  # which leaves one step of that fifth
    assert [learning_rate(late, step, 10) for step in (7, 8, 9)] == pytest.approx([8 / 9, 1.0, 1.0])
    low = LanguageOptimConfig(lr=1.0, min_lr=0.6, schedule="wsd", warmup_steps=0, decay_steps=4)
    assert [learning_rate(low, step, 10) for step in (5, 6, 7, 8, 9)] == pytest.approx([1.0, 1.0, 0.9, 0.8, 0.7])


WITHOUT = r"^optim\.decay_steps: expected null without optim\.schedule=wsd, got 3"

test_wrong_settings = refused(
    (lambda: OptimConfig(schedule="cosine", decay_steps=3), WITHOUT),
    (lambda: OptimConfig(decay_steps=3), WITHOUT),
    (lambda: OptimConfig(schedule="wsd", decay_steps=0), r"^optim\.decay_steps: .* at least 1 or null, got 0"),
    (lambda: LANGUAGE.Grid(loop=StepLoopConfig(continue_from="x")), r"loop\.continue_from: .* null in a grid, got 'x'"),
)


def test_interrupted_before_its_first_step(long, tmp_path):
    with interrupted(0):
        start_run(LANGUAGE, shorter(long, tmp_path, "parts"))
    expected = start_run(LANGUAGE, shorter(long, tmp_path, "whole"))
    assert_same_end(resume_run(LANGUAGE, tmp_path / "parts"), expected)
