"""``dat train NAME --resume auto``, or a restart: begins a run, continues it, and finds that it is finished."""

from pathlib import Path

import pytest

from dat.training.loop import Trainer
from tests.lab.cli.commands import dat, fails, shown
from tests.support.processes import dat_together

from .text_runs import losses, words

AUTO = ("--resume", "auto")


@pytest.fixture
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def stop_at(monkeypatch, last: int) -> None:
    step = Trainer.train_step
    monkeypatch.setattr(Trainer, "train_step", lambda self, *a: step(self, *a) if self.step < last else 1 / 0)


@pytest.mark.parametrize("name", ["run", None], ids=["named", "unnamed"])
def test_begun_continued_and_finished(inside, monkeypatch, capsys, name):
    command = [*words(output__name=name, output__progress="false"), *AUTO]
    with monkeypatch.context() as patch:
        stop_at(patch, 4)
        assert dat(*command) == 2
    (run,) = (path.parent for path in Path("runs").glob("*/config.yaml"))
    assert f"dat: {run}: a new run\n" in capsys.readouterr().err
    assert dat(*command) == 0
    out, err = capsys.readouterr()
    assert f"dat: {run}: the run goes on from report-00003-step-00000003\n" in err and f"run folder: {run}" in out
    assert dat(*command) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"dat: {run}: the run is finished\n")
    assert dat(*words(output__name="whole", output__progress="false")) == 0
    assert losses(run) == losses(Path("runs/whole")) and len(list(Path("runs").glob("*/config.yaml"))) == 2


@pytest.mark.parametrize("count", ["SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"])
def test_a_command_started_again_does_as_with_auto(inside, monkeypatch, capsys, count):
    """It refuses other settings, continues the run, and then ends well, so that no scheduler starts it for ever."""
    command = words(output__progress="false")
    with monkeypatch.context() as patch:
        stop_at(patch, 4)
        assert dat(*command) == 2
    monkeypatch.setenv(count, "1")
    other = fails(capsys, *words(output__progress="false", loop__steps=9))
    assert "loop.steps: expected 8, as in runs/run/config.yaml, or another output.name, got 9" in other
    for said in ("the run goes on from report-00003-step-00000003", "the run is finished"):
        assert dat(*command) == 0 and f"dat: runs/run: {said}\n" in capsys.readouterr().err


@pytest.mark.slow
def test_other_settings(inside, capsys):
    """Without a name, they have a folder of their own; under the name of another run they are refused."""
    assert dat(*words(output__progress="false"), *AUTO) == 0
    other = words(output__progress="false", optim__lr=0.02)
    error = fails(capsys, *other, *AUTO)
    assert "optim.lr: expected 0.01, as in runs/run/config.yaml, or another output.name, got 0.02" in error
    for rate in (0.01, 0.02):
        unnamed = words(output__name=None, output__progress="false", optim__lr=rate)
        assert dat(*unnamed, *AUTO) == 0 and "a new run" in capsys.readouterr().err
        assert dat(*unnamed, *AUTO) == 0 and "is finished" in capsys.readouterr().err


def test_a_folder_of_that_name(inside, capsys):
    """``./auto`` is a run, as any other that stands alone."""
    assert dat(*words(output__folder=".", output__name="auto", output__progress="false")) == 0
    assert "the run is finished" in fails(capsys, "train", "language", "--resume", "./auto")
    assert "stands alone" in fails(capsys, "train", "language", "--resume", "./auto", "--seed=1")


@pytest.mark.parametrize("option", [["--resume", ""], ["--resume="]], ids=["two words", "one word"])
def test_no_name_begins_no_run(inside, capsys, option):
    """A script whose variable is empty passes it."""
    assert "resume: expected a run folder or auto, got ''" in fails(capsys, "train", "language", *option)
    assert not Path("runs").exists()


@pytest.mark.parametrize("given", [("--resume", "nowhere"), ("--resume=runs/run",)], ids=" ".join)
def test_a_run_is_not_printed_as_settings(inside, capsys, given):
    """Those of a run are in its folder; with auto they are the command's own."""
    assert "--resume RUN stands alone" in fails(capsys, "train", "language", *given, "--print_config")
    assert "stands alone" in fails(capsys, "train", "language", "--print_config", *given)
    assert "lr: 0.01" in shown(capsys, *words(), *AUTO, "--print_config")


@pytest.mark.slow
def test_several_processes(folder):
    command = [*words(), *AUTO]
    for said in ("a new run", "the run is finished"):
        ended = dat_together(command, command, folder=folder)
        assert [process.status for process in ended] == [0, 0], ended
        assert sum(f"runs/run: {said}" in process.err for process in ended) == 1
