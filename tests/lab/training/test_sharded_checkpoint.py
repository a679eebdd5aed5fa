"""Checkpoints that processes write in parts: beside training, checked, visible at once, read by any number of them."""

import copy
import errno
import json
import os
import shutil
import threading
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from dat.training.checkpoint import Checkpoints
from dat.training.configs import StepLoopConfig
from dat.training.loop import Diverged, Trainer
from dat.training.metrics import MetricsLog, read_rows
from dat.training.placement import Placement
from dual_attention._base.checksums import read_checksums
from tests.support.parts import rewritten
from tests.support.processes import together
from tests.support.runs import fit_until_stopped

from .test_loop import weights
from .test_placement import HYBRID, SHARDED, make_trainer

library = pytest.importorskip("torch.distributed.checkpoint.hf_storage")
from torch.distributed.checkpoint.filesystem import FileSystem  # noqa: E402

LOOP = StepLoopConfig(steps=8, batch_size=4, eval_every=0, checkpoint_every=2, report_every=2)


pytestmark = pytest.mark.usefixtures("endless")


@pytest.fixture
def in_parts(monkeypatch):
    """One process that writes its checkpoints as several do."""
    monkeypatch.setattr(Placement, "saves_parts", True)


@pytest.fixture
def may_write(monkeypatch) -> threading.Event:
    """What the writing of parts waits for."""
    event, write = threading.Event(), library.HuggingFaceStorageWriter.write_data
    monkeypatch.setattr(library.HuggingFaceStorageWriter, "write_data", lambda *args: (event.wait(60), write(*args))[1])
    return event


def stopped_at(trainer: Trainer, step: int) -> Trainer:
    """The same trainer after so many steps."""
    trainer.stop = lambda: trainer.step >= step
    return fit_until_stopped(trainer)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


@pytest.mark.slow
def test_files_of_a_checkpoint(tmp_path):
    """Numbers only, each once, one file a process; all have checksums."""

    def save(workers) -> list[int]:
        trainer = make_trainer(workers, SHARDED, folder=tmp_path / "c", loop=LOOP)
        trainer.fit()
        return [parameter.numel() for parameter in trainer.problem.model.parameters()]

    sizes = together(2, save)[0]
    assert names(tmp_path / "c") == ["report-00003-step-00000006", "report-00004-step-00000008"]
    latest = tmp_path / "c" / "report-00004-step-00000008"
    files = sorted((latest / "shards").iterdir())
    assert names(latest) == ["checksums.json", "shards", "state.pt"] and len(files) == 2
    assert sorted(read_checksums(latest)) == [*(f"shards/{path.name}" for path in files), "state.pt"]
    found: dict[str, int] = {}
    for path in files:
        with safe_open(path, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118 (it is no dict)
                found[key] = found.get(key, 0) + file.get_tensor(key).numel()
    for start, times in (("model.", 1), ("optimizer.", 2)):
        assert sorted(n for key, n in found.items() if key.startswith(start)) == sorted(sizes * times)


@pytest.mark.slow
def test_training_goes_on_while_a_checkpoint_is_written(tmp_path, in_parts, may_write):
    """It appears when all of it is on the disk; the next one waits for it."""
    trainer, seen = make_trainer(folder=tmp_path / "c", loop=LOOP), {}
    step = trainer.train_step

    def noted(indices):
        step(indices)
        seen[trainer.step] = [name for name in names(tmp_path / "c") if not name.startswith(".")]
        if trainer.step == 4:
            may_write.set()

    trainer.train_step = noted
    trainer.fit()
    assert seen[3] == seen[4] == [] and trainer.step == 8
    assert names(tmp_path / "c") == ["report-00003-step-00000006", "report-00004-step-00000008"]
    again = make_trainer(folder=tmp_path / "c", loop=LOOP)
    assert again.resume() and again.step == 8
    for found, expected in zip(again.problem.model.parameters(), trainer.problem.model.parameters(), strict=True):
        assert torch.equal(found, expected)


def test_a_checkpoint_is_of_the_moment_at_which_it_was_begun(tmp_path, in_parts, may_write):
    """Steps that are taken while it is written do not change it."""
    trainer = make_trainer(folder=tmp_path / "c", loop=LOOP)
    step, kept = trainer.train_step, {}

    def noted(indices):
        if trainer.step == 2:
            kept.update({name: p.detach().clone() for name, p in trainer.problem.model.named_parameters()})
        step(indices)
        may_write.set()

    trainer.train_step = noted
    stopped_at(trainer, 3)
    first, last = (tmp_path / "c" / name for name in names(tmp_path / "c"))
    assert (first.name, last.name) == ("report-00001-step-00000002", "report-00001-step-00000003")
    shutil.rmtree(last)
    again = make_trainer(folder=tmp_path / "c", loop=LOOP)
    assert again.resume() and again.step == 2
    for name, parameter in again.problem.model.named_parameters():
        assert torch.equal(parameter, kept[name])


def state_of(trainer: Trainer) -> dict[int, dict[str, torch.Tensor]]:
    """The whole state of the optimiser, in the first process."""
    return trainer.placement.values(trainer.optimizer.state_dict())["state"]


@pytest.mark.slow
def test_parts_are_read_by_other_numbers_of_processes(tmp_path):
    """Weights and state of the optimiser are equal to the bit, however they are divided."""

    def read(workers, machine, last):
        trainer = make_trainer(*(() if machine is None else (workers, machine)), folder=tmp_path / "c", loop=LOOP)
        trainer.resume()
        before = copy.deepcopy((trainer.placement.weights(), state_of(trainer)))
        if last is not None:
            stopped_at(trainer, last)
        after = trainer.placement.weights(), state_of(trainer)
        return (before, after) if workers.first else None

    previous = None
    for size, machine, last in ((4, HYBRID, 3), (2, SHARDED, 5), (1, None, None)):
        before, after = together(size, read, machine, last)[0]
        if previous is not None:
            assert all(torch.equal(before[0][key], value) for key, value in previous[0].items())
            for index, entry in previous[1].items():
                assert all(torch.equal(before[1][index][key], value) for key, value in entry.items())
        previous = after


def stopped(tmp_path: Path) -> Path:
    """The newer of two checkpoints of one process."""
    stopped_at(make_trainer(folder=tmp_path / "c", loop=LOOP), 4)
    assert len(names(tmp_path / "c")) == 2
    return sorted((tmp_path / "c").iterdir())[-1]


def flip(path: Path) -> None:
    contents = bytearray(path.read_bytes())
    contents[-1] ^= 1
    path.write_bytes(contents)


DAMAGE = {
    "a flipped bit": (lambda path: flip(path), r"shards/shard-.*: damaged or changed since it was written"),
    "a lost file": (lambda path: path.unlink(), r"shards/shard-.*: missing, though"),
    "a file of other tensors": (lambda path: (path.unlink(), (path.parents[1] / "checksums.json").unlink()),
        r"shards: the weights do not fit DualAttnTransformerLM: model\..* is missing"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_named_and_the_older_checkpoint_can_be_used(tmp_path, in_parts, damage, message):
    latest = stopped(tmp_path)
    damage(next((latest / "shards").iterdir()))
    trainer = make_trainer(folder=tmp_path / "c", loop=LOOP)
    before, message = weights(trainer), message + r".*remove the folder .* to continue from report"
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        trainer.resume()
    assert all(map(torch.equal, before, weights(trainer)))
    os.rename(latest, tmp_path / "elsewhere")
    assert trainer.resume() and trainer.step == 2


MATRIX = "model.layers.blocks.0.dual_attn.relational_attention.wq_attn.weight"


def at(place):
    """The change that puts the first part of the matrix somewhere else."""
    return lambda tensors, places: places.update({MATRIX: {"saved_offsets": place}})


WRONG_PARTS = {
    "a hole": (lambda tensors, places: tensors.pop(MATRIX), "expected 128 numbers, got 64 numbers"),
    "an overlap": (at([1, 0]), "expected parts apart from each other, got some that overlap"),
    "another dtype": (lambda tensors, _: tensors.update({MATRIX: tensors[MATRIX].int()}), "expected F64, got I32"),
    "another shape": (lambda tensors, _: tensors.update({MATRIX: tensors[MATRIX][None]}), "the place of"),
    "far away": (at([2**40, 0]), r"expected shape \(8, 16\), got \(1099511627780, 16\)"),
    "beyond numbers": (at([2**70, 0]), r"expected shape \(8, 16\), got \(11805916"),
    "before the first": (at([-1, 0]), r"shard-00001.*: damaged or incomplete \(the place of .* is \[-1, 0\]"),
    "no number": (at([0.5, 0]), r"shard-00001.*: damaged or incomplete \(the place of .* is \[0.5, 0\]"),
    "nowhere": (lambda tensors, places: places.pop(MATRIX), r"shard-00001.*: damaged or incomplete"),
}


@pytest.mark.slow
def test_parts_that_do_not_cover_a_tensor_once_are_refused(tmp_path):
    """The files of two processes, of which one is changed and has the checksum of what it holds now."""

    def save(workers) -> None:
        stopped_at(make_trainer(workers, SHARDED, folder=tmp_path / "c", loop=LOOP), 2)

    together(2, save)
    for kind, (change, message) in WRONG_PARTS.items():
        (latest,) = shutil.copytree(tmp_path / "c", tmp_path / kind).iterdir()
        trainer = make_trainer(folder=tmp_path / kind, loop=LOOP)
        rewritten(min((latest / "shards").iterdir()), change)
        with pytest.raises(ValueError, match=message):
            trainer.resume()


def test_numbers_that_are_not_finite_are_refused(tmp_path, in_parts, monkeypatch):
    monkeypatch.setattr(Trainer, "_check_weights", lambda _: None)
    trainer = make_trainer(folder=tmp_path / "c", loop=LOOP)
    step, matrix = trainer.train_step, next(trainer.problem.model.parameters()).data
    trainer.train_step = lambda indices: (step(indices), matrix.fill_(float("nan")))
    stopped_at(trainer, 1)
    message = r"shards: .*: expected finite numbers, got NaN or infinity; remove the folder"
    with pytest.raises(ValueError, match=message):
        make_trainer(folder=tmp_path / "c", loop=LOOP).resume()


def test_a_checkpoint_of_the_whole_model_is_continued_in_parts(tmp_path, monkeypatch):
    """As older versions, and one process, write it."""
    latest = stopped(tmp_path)
    assert (latest / "model.safetensors").is_file()
    monkeypatch.setattr(Placement, "saves_parts", True)
    trainer = make_trainer(folder=tmp_path / "c", loop=LOOP)
    assert trainer.resume() and trainer.step == 4
    trainer.fit()
    assert all((path / "shards").is_dir() for path in (tmp_path / "c").iterdir())


@pytest.mark.slow
def test_a_full_disk_of_one_of_two_processes(tmp_path, monkeypatch):
    """Both get the error, which names the folder; nothing is left of the checkpoint, and the older ones stay."""
    create_stream = FileSystem.create_stream

    def full(self, path, mode):
        is_full = "step-00000006" in str(path) and "shard-00002" in str(path) and "w" in mode
        return create_stream(self, Path("/dev/full") if is_full else path, mode)

    monkeypatch.setattr(FileSystem, "create_stream", full)

    def save(workers) -> tuple[int | None, str]:
        trainer = make_trainer(workers, SHARDED, folder=tmp_path / "c", loop=LOOP)
        with pytest.raises(OSError) as caught:
            trainer.fit()
        workers.barrier()
        return caught.value.errno, str(caught.value)

    for number, message in together(2, save):
        assert number == errno.ENOSPC and "step-00000006" in message
    assert names(tmp_path / "c") == ["report-00001-step-00000002", "report-00002-step-00000004"]


def test_what_is_read_again_is_compared(tmp_path, in_parts, monkeypatch):
    """A disk that changes a bit; the older checkpoints stay."""
    write = library.HuggingFaceStorageWriter.write_data

    def spoilt(self, plan, planner):
        future = write(self, plan, planner)
        if "step-00000006" in str(self.path):
            flip(next(Path(self.path).iterdir()))
        return future

    monkeypatch.setattr(library.HuggingFaceStorageWriter, "write_data", spoilt)
    with pytest.raises(RuntimeError, match="is not what was written; is the disk damaged"):
        make_trainer(folder=tmp_path / "c", loop=LOOP).fit()
    assert names(tmp_path / "c") == ["report-00001-step-00000002", "report-00002-step-00000004"]


def test_a_loss_that_is_no_number_leaves_what_was_begun(tmp_path, in_parts, monkeypatch):
    """The checkpoint before it is written to its end."""
    trainer = make_trainer(folder=tmp_path / "c", loop=LOOP)

    def diverged(check=trainer._check_loss):
        if trainer.step >= 4:
            raise Diverged("the loss became nan")
        check()

    monkeypatch.setattr(trainer, "_check_loss", diverged)
    with pytest.raises(Diverged):
        trainer.fit()
    assert names(tmp_path / "c") == ["report-00001-step-00000002"]


@pytest.mark.slow
def test_metrics_are_those_of_the_checkpoint(tmp_path, in_parts):
    """Rows that were logged while it was written are dropped when training goes on from it."""
    log = tmp_path / "log.jsonl"
    trainer = make_trainer(folder=tmp_path / "c", loop=LOOP)
    trainer.fit(MetricsLog(log))
    assert len(read_rows(log)) == 4
    os.rename(Checkpoints(tmp_path / "c").latest() or "", tmp_path / "elsewhere")
    again = make_trainer(folder=tmp_path / "c", loop=LOOP)
    assert again.resume()
    kept = MetricsLog(log, epochs_done=again.epoch, unit="report", mark=again.metrics_mark)
    assert kept.path == log and [row["step"] for row in read_rows(log)] == [2, 4, 6]
    assert json.loads(log.read_text().splitlines()[0])["step"] == 2
