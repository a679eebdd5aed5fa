"""Files of a run: locked while they are written, on the disk in time, checked before they are used."""

import errno
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from dat.checkpoints import open_checkpoint
from dat.experiments import EXPERIMENTS, Entry
from dat.training.configs import LoopConfig, MachineConfig, OutputConfig
from dat.training.lock import InUse
from dat.training.run_folder import RunFolder
from dat.training.runs import evaluate_run, resume_run, start_run
from dat.training.weights_file import load_weights, save_weights
from dual_attention._base import files
from examples.my_experiment import Sums, SumsConfig
from tests.support.refusals import refusals
from tests.support.runs import interrupted

TOY = Sums()


def config(folder: Path, name: str = "run") -> SumsConfig:
    loop = LoopConfig(epochs=4, batch_size=8, eval_every=2, checkpoint_every=1)
    output = OutputConfig(folder=str(folder), name=name, tensorboard=False, progress=False)
    return SumsConfig(loop=loop, output=output, machine=MachineConfig(device="cpu", threads=1))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> RunFolder:
    """A finished run; not to be changed."""
    return start_run(TOY, config(tmp_path_factory.mktemp("whole")))


@pytest.fixture
def finished(whole, tmp_path) -> RunFolder:
    return RunFolder(shutil.copytree(whole.path, tmp_path / "run"))


@pytest.fixture
def stopped(tmp_path) -> RunFolder:
    """A run stopped in its third epoch."""
    with interrupted(6):
        start_run(TOY, config(tmp_path))
    return RunFolder(tmp_path / "run")


def flip(path: Path, place: int = -5) -> None:
    contents = bytearray(path.read_bytes())
    contents[place] ^= 1
    path.write_bytes(contents)


# ---- two writers


def test_two_writers_of_one_run(stopped):
    with stopped.locked(), pytest.raises(InUse, match=f"run: in use by process {os.getpid()} "):
        resume_run(TOY, stopped.path)
    assert resume_run(TOY, stopped.path).finished


def test_a_run_that_another_process_has_just_begun(tmp_path):
    def begin(_):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "config.yaml").write_text("seed: 2\n")

    with pytest.raises(FileExistsError, match="there is an unfinished run; continue it with --resume"):
        RunFolder.create(tmp_path / "run", "seed: 1\n", begin)
    assert (tmp_path / "run" / "config.yaml").read_text() == "seed: 2\n"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# ---- leftovers of dead processes, a process id used again, a full disk


def test_leftovers_are_removed_and_the_same_process_id_is_no_obstacle(tmp_path, stopped):
    shutil.move(stopped.path, tmp_path / "old")
    (tmp_path / f".run.{os.getpid()}.dat.tmp").mkdir()
    (tmp_path / f".run.{2**22 + 1}.dat.tmp").mkdir()
    (tmp_path / f".else.{2**22 + 1}.dat.tmp").mkdir()
    with interrupted(0):
        start_run(TOY, config(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"run", "old", f".else.{2**22 + 1}.dat.tmp"}
    run = tmp_path / "run"
    (run / ".metrics.jsonl.9999999.dat.tmp").mkdir()
    (run / "checkpoints" / f".epoch-00001-step-00000002.{os.getpid()}.dat.tmp").mkdir()
    resume_run(TOY, run)
    assert not [path for path in run.rglob(".*") if path.name != ".lock"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_is_said_with_the_name_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "opened_without_links", lambda path, flags: os.open("/dev/full", os.O_WRONLY))
    big = nn.Linear(300, 300)
    with pytest.raises(OSError, match=r"No space left on device: .*w\.safetensors") as caught:
        save_weights(big, tmp_path / "w.safetensors")
    assert caught.value.errno == errno.ENOSPC
    with (
        pytest.raises(OSError, match=r"No space left on device: .*state\.pt"),
        files.replaced_atomically(tmp_path / "state.pt") as file,
    ):
        torch.save({"x": torch.zeros(10_000)}, file)
    with pytest.raises(OSError, match=r"No space left on device: .*small\.json"):
        files.write_json(tmp_path / "small.json", {})


# ---- files that are damaged


NAMES = ("config.yaml", "metrics.jsonl", "model.safetensors", "result.json")


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_bit_or_a_lost_file_of_a_finished_run_is_found(finished, name):
    assert evaluate_run(TOY, finished.path)
    path = finished.path / name
    assert json.loads((finished.path / "checksums.json").read_text()).keys() == {*NAMES}
    whole = path.read_bytes()
    flip(path, len(whole) // 2)
    with pytest.raises(ValueError, match=rf"{re.escape(name)}: (damaged or changed since|not a configuration)"):
        evaluate_run(TOY, finished.path)
    path.write_bytes(whole)
    lines = json.loads((finished.path / "checksums.json").read_text())
    del lines[name]  # the way out
    files.write_json(finished.path / "checksums.json", lines)
    assert evaluate_run(TOY, finished.path)
    path.unlink()
    if name != "metrics.jsonl":
        with pytest.raises(FileNotFoundError):
            evaluate_run(TOY, finished.path)


def test_an_older_run_has_no_checksums(finished):
    (finished.path / "checksums.json").unlink()
    assert evaluate_run(TOY, finished.path)


@pytest.mark.parametrize("name", ["model.safetensors", "state.pt"])
def test_a_damaged_checkpoint_names_the_way_out_and_the_one_before_it_works(stopped, whole, name):
    older, newest = sorted((stopped.path / "checkpoints").iterdir())
    flip(newest / name)
    words = rf"{name}: damaged or changed .*; remove the folder .*{newest.name} to continue from {older.name}"
    with pytest.raises(ValueError, match=words):
        resume_run(TOY, stopped.path)
    shutil.rmtree(newest)
    assert older.exists() and resume_run(TOY, stopped.path).finished
    assert stopped.weights.read_bytes() == whole.weights.read_bytes()


def replaced(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


def with_other_rows(change: Callable[[str, str], str]) -> Callable[[RunFolder], object]:
    return lambda run: run.metrics.write_text(change(*run.metrics.read_text().splitlines(keepends=True)))


def truncated(run: RunFolder) -> None:
    """One checkpoint is left, without its state."""
    older, newest = run.checkpoints.all()
    shutil.rmtree(older)
    (newest / "state.pt").unlink()


LOST_ROWS = r"metrics\.jsonl: damaged, a row before the checkpoint is lost or changed"
EDITED = r"config\.yaml: damaged or changed since .*remove its line from .*checksums\.json"


@refusals(
    (truncated, FileNotFoundError, r"state\.pt: missing, .* to train from the start"),
    (with_other_rows(lambda first, second: second), LOST_ROWS),
    (with_other_rows(lambda first, second: first.replace("0.", "1.", 1) + second), LOST_ROWS),
    (with_other_rows(lambda first, second: first + second[:-3]), LOST_ROWS),
    (with_other_rows(lambda first, second: "{\n" + second), LOST_ROWS),
    (lambda run: replaced(run.metrics, os.mkfifo), r"metrics\.jsonl: expected a file, got a pipe or a device"),
    (lambda run: run.config.write_text(run.config.read_text().replace("tensorboard: false", "tensorboard: true")),
     EDITED),
    of="damage",
)  # fmt: skip
def test_a_damaged_run_is_not_gone_on_with(stopped, damage, error, message):
    damage(stopped)
    with pytest.raises(error, match=message):
        resume_run(TOY, stopped.path)


@pytest.mark.parametrize("contents", [b"", b"[]", b'{"config.yaml": 3}', b"\xff"])
def test_checksums_that_cannot_be_read_are_not_none(finished, contents):
    (finished.path / "checksums.json").write_bytes(contents)
    with pytest.raises(ValueError, match=r"checksums\.json: (is not JSON|expected a)"):
        evaluate_run(TOY, finished.path)


@pytest.mark.parametrize(
    ("make", "error", "names"),
    [(os.mkfifo, (ValueError, FileNotFoundError), [*NAMES, "checksums.json"]), (os.mkdir, OSError, ["checksums.json"])],
)
def test_what_is_no_file_is_refused_and_not_waited_for(whole, tmp_path, make, error, names):
    for name in names:
        replaced(shutil.copytree(whole.path, tmp_path / name) / name, make)
        with pytest.raises(error, match=name):
            evaluate_run(TOY, tmp_path / name)


@refusals(
    (lambda name, tensor: {name: tensor.double()}, "expected torch.float32, got torch.float64"),
    (lambda name, tensor: {name: torch.full_like(tensor, float("nan"))}, "expected finite numbers"),
    (lambda name, tensor: {name: tensor[:1]}, "expected shape"),
    (lambda *_: {"more": torch.zeros(1)}, "more is unexpected"),
    of="change",
)
def test_weights_of_an_older_run_that_do_not_fit(finished, change, error, message):
    (finished.path / "checksums.json").unlink()
    state = load_file(finished.weights)
    save_file({**state, **change(*next(iter(state.items())))}, finished.weights)
    with pytest.raises(error, match=rf"model\.safetensors: .*{message}"):
        evaluate_run(TOY, finished.path)


def test_a_run_that_lost_its_configuration_is_no_model_of_another_kind(finished):
    finished.config.rename(finished.path / "config.json")
    with pytest.raises(FileNotFoundError, match=r"config\.yaml: no such file"):
        open_checkpoint(finished.path)


@pytest.mark.parametrize("kind", ["finished", "stopped"])
def test_any_model_is_opened_only_from_undamaged_files(request, kind, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "sums", Entry("sums", "examples.my_experiment:Sums", {}))
    folder = request.getfixturevalue(kind)
    checkpoint = open_checkpoint(folder.path)
    assert checkpoint.run is not None
    flip(checkpoint.files[0])
    with pytest.raises(ValueError, match=r"model\.safetensors: damaged or changed"):
        open_checkpoint(folder.path)


# ---- weights


def tied() -> nn.Module:
    model = nn.ModuleDict({name: nn.Linear(3, 3) for name in "dcba"})
    model["b"].weight = model["d"].weight = model["c"].weight
    model.register_buffer("empty", torch.zeros(0, 4))
    model.register_buffer("flag", torch.tensor(True))
    model.register_buffer("turned", torch.arange(6, dtype=torch.bfloat16).view(2, 3).T)
    return model


def test_weights_are_bytes_that_the_library_reads(tmp_path):
    model = tied()
    digest = save_weights(model, tmp_path / "w.safetensors")
    contents = (tmp_path / "w.safetensors").read_bytes()
    assert save_weights(model, tmp_path / "again.safetensors") == digest
    assert (tmp_path / "again.safetensors").read_bytes() == contents
    with safe_open(tmp_path / "w.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt", "c.weight": "b.weight", "d.weight": "b.weight"}
        names = set(file.keys())
    state = model.state_dict()
    assert names == state.keys() - {"c.weight", "d.weight"}
    assert all(torch.equal(tensor, state[name]) for name, tensor in load_file(tmp_path / "w.safetensors").items())
    other = tied()
    load_weights(other, tmp_path / "w.safetensors")
    assert all(torch.equal(tensor, state[name]) for name, tensor in other.state_dict().items())
    assert other["b"].weight is other["c"].weight


def test_all_files_have_the_same_permissions(whole):
    modes = {stat.S_IMODE(path.stat().st_mode) for path in whole.path.rglob("*") if path.is_file()}
    (new := whole.path.parent / "new").touch()
    assert modes == {stat.S_IMODE(new.stat().st_mode)}


def test_equal_runs_have_equal_bytes(whole, tmp_path):
    other = start_run(TOY, config(tmp_path))
    assert other.weights.read_bytes() == whole.weights.read_bytes()


def test_numbers_that_json_lacks_are_null(tmp_path):
    files.write_json(tmp_path / "x.json", {"a": [float("nan"), (float("inf"), 1.5)], "b": 2})
    assert files.read_json(tmp_path / "x.json") == {"a": [None, [None, 1.5]], "b": 2}


# ---- reading only


def test_evaluation_writes_nothing(finished):
    before = {path: path.stat().st_mtime_ns for path in finished.path.parent.rglob("*")}
    evaluate_run(TOY, finished.path)
    assert {path: path.stat().st_mtime_ns for path in finished.path.parent.rglob("*")} == before


def test_checkpoints_that_cannot_be_listed_are_not_none(stopped, monkeypatch):
    def refuse(self):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(PermissionError, match="checkpoints"):
        stopped.checkpoints.latest()


# ---- power

SCRIPT = """
import sys
from tests.lab.training.test_run_files import TOY, config
from dat.training.runs import start_run
start_run(TOY, config(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_what_a_run_relies_on_is_on_the_disk_before(tmp_path):
    """The order of calls of the system: contents and names are synced before old checkpoints go, and before the end."""
    trace = tmp_path / "trace"
    calls = "trace=fsync,rename,renameat,renameat2,unlink,unlinkat,rmdir"
    root = str(Path(__file__).parents[3])
    strace = ["strace", "-f", "--seccomp-bpf", "-y", "-s", "400", "-e", calls, "-o", str(trace)]
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(
        [*strace, *command], cwd=root, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": root}
    )
    if not trace.exists() or "ptrace" in done.stderr.lower():
        pytest.skip(f"strace cannot run here: {done.stderr.strip()[:200]}")
    assert done.returncode == 0, done.stderr
    lines = [line for line in trace.read_text().splitlines() if str(tmp_path) in line]

    def first(*words: str) -> int:
        return next(number for number, line in enumerate(lines) if all(word in line for word in words))

    def synced(path: str, begin: int, end: int) -> bool:
        return any(re.search(rf"fsync\(\d+<[^>]*{path}>\)", line) for line in lines[begin:end])

    new = "epoch-00003-step-00000006"
    moved = first("rename", new + '"')
    for name in ("model.safetensors", "state.pt", "checksums.json"):
        renamed = first("rename", new, f'/{name}"')
        assert first("fsync", new, f".{name}.") < renamed < moved
        assert synced(rf"/\.{new}\.\d+\.dat\.tmp", renamed, moved)
    leaves = re.compile(r'(rename|unlink|rmdir)\w*\([^"]*"[^"]*/epoch-00001-step-00000002"')
    gone = next(number for number, line in enumerate(lines) if leaves.search(line))
    assert synced("/checkpoints", moved, gone)
    end = first("rename", '/result.json"')
    for name in ("model.safetensors", "checksums.json", "curves.png"):
        renamed = first("rename", f'run/{name}"')
        assert first("fsync", f"run/.{name}.") < renamed < end
        assert synced("/run", renamed, end)
    assert first("fsync", "metrics.jsonl>") < end and first("fsync", ".result.json.") < end
    assert synced("/run", end, len(lines))
