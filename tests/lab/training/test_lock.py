"""One writer at a time, whatever becomes of it."""

import multiprocessing
import os
import signal

import pytest

from dat.training.lock import LOCK, InUse, locked
from dual_attention._base.files import remove_leftovers, temporary_path, write_json


def hold(folder, pipe):
    with locked(folder):
        pipe.send("held")
        pipe.recv()


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=hold, args=(tmp_path, theirs))
    process.start()
    assert ours.recv() == "held"
    yield process
    process.kill()
    process.join()


def test_another_process_is_named_and_its_death_ends_the_lock(tmp_path, holder):
    words = rf"in use by process {holder.pid} on \S+, since \d+-\d+-\d+ [\d:]+; wait"
    with pytest.raises(InUse, match=words), locked(tmp_path):
        pass
    leftover = tmp_path / f".model.{holder.pid}.dat.tmp"
    leftover.write_text("half")
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    with locked(tmp_path):
        assert not leftover.exists()
    assert [path.name for path in tmp_path.iterdir()] == [LOCK] and not (tmp_path / LOCK).read_text()


def test_one_process_locks_once_as_well(tmp_path):
    with locked(tmp_path):
        with pytest.raises(InUse, match=f"process {os.getpid()} "), locked(tmp_path):
            pass
        assert (tmp_path / LOCK).read_text()
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("name", [LOCK, pytest.param(f".x.json.{os.getpid()}.dat.tmp", id="temporary")])
def test_nothing_is_written_through_a_link(tmp_path, name):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match=r"symbolic links"), locked(tmp_path / "run"):
        (tmp_path / "run" / name).symlink_to(tmp_path / "victim")  # again, if what was there was taken for a leftover
        write_json(tmp_path / "run" / "x.json", {})
    assert (tmp_path / "victim").read_text() == "precious"


def test_leftovers_of_living_processes_stay(tmp_path, holder):
    (tmp_path / "part").mkdir()
    names = {holder.pid: True, os.getpid(): False, 2**22 + 7: False}
    paths = {number: tmp_path / "part" / f".x.json.{number}.dat.tmp" for number in names}
    for path in paths.values():
        path.mkdir()
        (path / "file").touch()
    others = [tmp_path / "part" / name for name in (".x.json.tmp", f".x.json.{2**22 + 7}.tmp", ".x.json.dat.tmp")]
    for other in others:
        other.touch()
    remove_leftovers(tmp_path / "part", "y.json")
    assert all(path.exists() for path in paths.values())
    remove_leftovers(tmp_path / "part", "x.json")
    assert {number: path.exists() for number, path in paths.items()} == names
    assert all(other.exists() for other in others)
    assert temporary_path(tmp_path / "x.json").name == f".x.json.{os.getpid()}.dat.tmp"
