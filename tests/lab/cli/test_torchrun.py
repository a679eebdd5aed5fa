"""`dat train` in several processes: the same command, the same results, and one line for what is wrong."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dat.checkpoints import open_checkpoint
from dat.cli import train
from dat.training import together
from dat.training.configs import RunConfig
from dat.training.experiment import AnyExperiment
from dat.training.metrics import read_rows
from dat.training.run_folder import RunFolder
from tests.lab.cli.commands import games
from tests.support.processes import dat_alone, dat_together
from tests.support.runs import stopping, without_time

from .text_runs import RESUME, TEXT, losses, one_line, words


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process without torchrun; not to be changed."""
    place = tmp_path_factory.mktemp("alone")
    (place / "text.txt").write_text(TEXT, encoding="utf-8")
    dat_alone(words(), place)
    return place / "runs" / "run"


@pytest.mark.parametrize("parallel", ["replicate", pytest.param("shard", marks=pytest.mark.slow)])
def test_the_same_command_in_two_processes(folder, alone, parallel, monkeypatch):
    """A complete run folder, written by the first process, with the numbers of one process."""
    monkeypatch.undo()  # the picture is a part of it
    command = words(machine__parallel=parallel)
    first, second = dat_together(command, command, folder=folder)
    assert (first.status, second.status) == (0, 0), first.err + second.err
    assert (first.out + second.out).count("run folder: runs/run") == 1 and "Traceback" not in first.err + second.err
    run = folder / "runs" / "run"
    assert {path.name for path in run.iterdir()} == {path.name for path in alone.iterdir()}
    assert losses(run) == pytest.approx(losses(alone), rel=2e-6)
    result, expected = (json.loads((path / "result.json").read_text()) for path in (run, alone))
    assert result["processes"] == 2 and "processes" not in expected
    assert result["loss"]["val"] == pytest.approx(expected["loss"]["val"], rel=2e-6)
    for name in ("steps", "tokens", "parameters", "val_tokens"):
        assert result[name] == expected[name]
    weights, wanted = (load_file(path / "model.safetensors") for path in (run, alone))
    assert weights.keys() == wanted.keys()
    assert all(torch.allclose(weights[name], wanted[name], atol=1e-4) for name in wanted)
    assert open_checkpoint(str(run)).model.get_num_params() > 0


def test_what_it_prints(folder):
    command = words(optim__warmup_steps=50)
    first, second = dat_together(command, command, folder=folder)
    assert (first.status, second.status) == (0, 0)
    assert first.out.count("run folder: runs/run") == 1 and first.err.count("dat: the warm-up") == 1
    assert second.out == "" and "dat" not in second.err


@pytest.mark.slow
def test_a_run_goes_on_in_other_numbers_of_processes(folder):
    """Begun by two processes, continued by three, ended by one, which has no part but the whole model."""
    sharded = words(loop__batch_size=12, machine__parallel="shard")
    assert [ended.status for ended in dat_together(sharded, folder=folder)] == [0]
    run = (folder / "runs" / "run").rename(folder / "runs" / "expected").with_name("run")
    for size, command, looks, status in ((2, sharded, 2, 130), (3, RESUME, 3, 130), (1, RESUME, 99, 0)):
        with stopping(looks):
            ended = dat_together(*([command] * size), folder=folder)
        assert {process.status for process in ended} == {status}
        said = [process.err for process in ended if "interrupted" in process.err]
        assert len(said) == (status == 130) and all("-m dat train language --resume" in err for err in said)
    assert losses(run) == pytest.approx(losses(run.with_name("expected")), rel=2e-6)
    again = dat_alone(["evaluate", "runs/run", "--json", "--machine.threads=1"], folder)
    assert json.loads(again)["val"]["loss"] == pytest.approx(read_rows(run / "metrics.jsonl")[-1]["val_loss"], rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "size", "message"),
    [
        ({"loop__batch_size": 4}, 3, "loop.batch_size: expected a multiple of the 3 processes, got 4"),
        ({"loop__steps": "many"}, 2, "loop.steps: expected an integer, got many"),
        ({"data__path": "nowhere.txt"}, 2, "data.path: no such file or folder: nowhere.txt"),
        ({"machine__shard_size": 2}, 2, "machine.shard_size: expected null with machine.parallel=replicate, got 2"),
        ({"data__path": "short.txt"}, 4, "data: expected at least one example for each of the 4 processes, got 3"),
    ],
)
def test_wrong_settings_are_said_once(folder, changes, size, message):
    ended = dat_together(*([words(**changes)] * size), folder=folder)
    assert f"dat: error: {message}" in one_line(ended)
    assert not (folder / "runs" / "run").exists()


def test_processes_with_different_settings(folder):
    message = one_line(dat_together(words(), words(optim__lr=0.02), folder=folder))
    assert "settings: expected the same in all 2 processes, got 'lr: 0.02' in process 1 on " in message
    assert message.endswith("and 'lr: 0.01' in process 0")


@pytest.mark.slow
def test_a_folder_that_another_process_does_not_see(folder, tmp_path, monkeypatch):
    """As on two machines without a common disk: the second process runs in a folder of its own."""
    monkeypatch.setattr(together, "SECONDS_UNTIL_SEEN", 0.3)
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for place in (here, elsewhere):
        place.mkdir()
        (place / "text.txt").write_text(TEXT, encoding="utf-8")
    ended = dat_together(words(), words(), folder=[here, elsewhere])
    message = one_line(ended)
    assert "runs/run: expected a folder that all 2 processes see, but process 1 on " in message
    assert "(output.folder)" in message


@pytest.mark.slow
def test_a_run_that_is_there_is_not_overwritten(folder, alone):
    dat_together(words(loop__steps=2), words(loop__steps=2), folder=folder)
    message = one_line(dat_together(words(loop__steps=2), words(loop__steps=2), folder=folder))
    assert "a finished run is never overwritten" in message
    assert "the run is finished; there is nothing to resume" in one_line(dat_together(RESUME, RESUME, folder=folder))


def test_processes_with_different_code(folder, monkeypatch):
    """A file of the package that is another one on the machine of the second process."""
    installed, file = train.installed_code, "dual_attention/attention.py"

    def changed(experiment: AnyExperiment, config: RunConfig) -> str:
        own = "0" if os.environ["RANK"] == "0" else "1"
        lines = installed(experiment, config).splitlines()
        return "\n".join(f"{line[:-1]}{own}" if line.startswith(file) else line for line in lines)

    monkeypatch.setattr(train, "installed_code", changed)
    message = one_line(dat_together(words(), words(), folder=folder))
    assert f"code: expected the same in all 2 processes, got '{file} " in message and "in process 1 on " in message
    assert not (folder / "runs" / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "parallel", "expected"),
    [
        (1, "replicate", "state.pt: optimizer"),
        pytest.param(2, "shard", "shards: the weights do not fit DualAttnTransformerLM", marks=pytest.mark.slow),
    ],
)
def test_a_checkpoint_of_another_model(folder, size, parallel, expected):
    for name, width in (("run", 16), ("other", 32)):
        command = words(output__name=name, model__d_model=width, machine__parallel=parallel)
        with stopping(2):
            dat_together(*[command] * size, folder=folder)
    shutil.rmtree(folder / "runs" / "run" / "checkpoints")
    shutil.copytree(folder / "runs" / "other" / "checkpoints", folder / "runs" / "run" / "checkpoints")
    message = one_line(dat_together(RESUME, RESUME, folder=folder))
    assert expected in message and "if the run has other settings now" in message and "remove" not in message


@pytest.mark.slow
def test_one_writer_at_a_time(folder):
    with stopping(2):
        dat_together(words(), words(), folder=folder)
    with RunFolder(folder / "runs" / "run").locked():
        assert "run: in use by process" in one_line(dat_together(RESUME, RESUME, folder=folder))


SMALL = {
    "relational-games": [
        *(*games(25, 8, epochs=3), "--model.dropout_rate=0", "--loop.batch_size=8", "--loop.eval_every=1"),
        *("--model.d_model=16", "--model.dff=16", "--model.n_layers=1", "--model.rel_proj_dim=4"),
    ],
    "length": [  # whose examples have different numbers of scored tokens
        *("--task=argsort", "--data.longest=4", "--data.lengths=[4,5]", "--data.n_val=9", "--data.n_test=9"),
        *("--model.d_model=16", "--model.n_layers=1", "--loop.steps=4", "--loop.batch_size=8", "--loop.report_every=1"),
        *("--loop.eval_every=2", "--loop.micro_batch_size=3", "--optim.warmup_steps=1"),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_other_experiments(folder, name):
    common = ["train", name, *SMALL[name], "--machine.device=cpu", "--machine.threads=1", "--output.tensorboard=false"]
    for size in (1, 2):
        command = [*common, f"--output.name={size}"]
        ended = dat_together(*[command] * size, folder=folder)
        assert {process.status for process in ended} == {0}, ended
    one, two = (without_time(read_rows(folder / "runs" / str(size) / "metrics.jsonl")) for size in (1, 2))
    for found, expected in zip(two, one, strict=True):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
