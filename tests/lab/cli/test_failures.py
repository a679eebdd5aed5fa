"""What goes wrong in several processes that train: one line from one of them, the others end, nothing is lost."""

import os
import signal
from pathlib import Path

import pytest

from dat.training import distributed
from dat.training.loop import Trainer
from dual_attention._base import files
from tests.support.processes import Ended, dat_together

from . import text_runs
from .text_runs import OPTIONS, RESUME, TEXT, losses, one_line


def words(**changes: object) -> list[str]:
    """The command of a training that shows no progress, however slow it is."""
    return text_runs.words(output__progress="false", **changes)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Losses of the steps of a run that nothing happens to."""
    place = tmp_path_factory.mktemp("whole")
    (place / "text.txt").write_text(TEXT, encoding="utf-8")
    assert dat_together(words(), folder=place)[0].status == 0
    return losses(place / "runs" / "run")


def checkpoints(run: Path) -> list[str]:
    """Names of what is in the folder of checkpoints."""
    return sorted(path.name for path in (run / "checkpoints").iterdir())


FULL = [("replicate", "model.safetensors"), pytest.param("shard", "state.pt", marks=pytest.mark.slow)]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize(("parallel", "name"), FULL)
def test_a_full_disk(folder, expected, monkeypatch, parallel, name):
    """At the second checkpoint; the first stays, and training goes on from it when there is room."""
    opened = files.opened_without_links

    def full(path: str, flags: int) -> int:
        return opened("/dev/full" if f".{name}." in path and "step-00000006" in path else path, flags)

    with monkeypatch.context() as patch:
        patch.setattr(files, "opened_without_links", full)
        ended = dat_together(*[words(machine__parallel=parallel)] * 2, folder=folder)
    message, run = one_line(ended), folder / "runs" / "run"
    assert message.startswith("dat: error: [Errno 28] No space left on device: ") and message.endswith(f"{name}'")
    assert checkpoints(run) == ["report-00003-step-00000003"]
    assert [each.status for each in dat_together(RESUME, RESUME, folder=folder)] == [0, 0]
    assert losses(run) == pytest.approx(expected, rel=1e-6)


def test_a_loss_that_is_no_number(folder):
    """The line says where and what to try; what was saved before can be trained on."""
    wrong = words(optim__lr=1e25, optim__grad_clip=None, optim__warmup_steps=5)
    message = one_line(dat_together(wrong, wrong, folder=folder))
    assert message.startswith("dat: error: the loss became nan in step") and "try a smaller optim.lr" in message
    run = folder / "runs" / "run"
    assert not (run / "result.json").exists() and not list(run.glob("checkpoints/.*"))


@pytest.mark.slow
def test_weights_that_are_no_numbers_are_not_saved(folder, monkeypatch):
    """After a step whose loss was finite; in one of two processes."""
    train_step = Trainer.train_step

    def spoilt(trainer: Trainer, indices) -> None:
        train_step(trainer, indices)
        if trainer.step == 6 and trainer.workers.rank == 1:
            parameter = next(trainer.problem.model.parameters()).data
            getattr(parameter, "to_local", lambda: parameter)().fill_(float("inf"))

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", spoilt)
        message = one_line(dat_together(*[words(machine__parallel="shard")] * 2, folder=folder))
    assert message.startswith("dat: error: weights became infinite or NaN in step 6: try a smaller optim.lr")
    assert checkpoints(folder / "runs" / "run") == ["report-00003-step-00000003"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", ["before the first step", pytest.param("while the first one saves", marks=pytest.mark.slow)]
)
def test_a_lost_process(folder, expected, monkeypatch, place):
    """The second of two is killed; the first says so in one line, as long as it lives."""

    def die(*_: object) -> None:
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)

    spoilt = {"before the first step": (Trainer, "resume"), "while the first one saves": (Trainer, "_save")}
    owner, name = spoilt[place]
    method = getattr(owner, name)

    def dying(trainer: Trainer, *arguments):
        if trainer.step >= 3 or name == "resume":
            die()
        return method(trainer, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dying)
        ended = dat_together(words(), words(), folder=folder)
    assert [process.status for process in ended] == [2, -signal.SIGKILL]
    message = one_line([ended[0], Ended(2, *ended[1][1:])])
    assert message.startswith("dat: error: another process of the 2 ended without a word")
    assert [each.status for each in dat_together(RESUME, RESUME, folder=folder)] == [0, 0]
    assert losses(folder / "runs" / "run") == pytest.approx(expected, rel=1e-6)


def test_processes_that_cannot_reach_another_one(folder, monkeypatch):
    """It died after it had told its address, so the others fail to connect; one of them says so."""
    refused = "Gloo connectFullMesh failed with timed out connecting: SO_ERROR: Connection refused"

    def unreachable(*_: object, **__: object) -> None:
        raise RuntimeError(refused)

    monkeypatch.setattr(distributed.dist, "init_process_group", unreachable)
    message = one_line(dat_together(words(), words(), folder=folder))
    assert message.startswith("dat: error: another process of the 2 ended without a word") and refused in message


def test_options_are_those_of_the_other_tests():
    """Checkpoints after steps 3 and 6, which these tests count on."""
    assert (OPTIONS["loop.checkpoint_every"], OPTIONS["loop.steps"]) == (3, 8)
