"""Checkpoints and files: complete or absent, safe to load, and clear when they do not fit."""

import os

import pytest
import torch
from torch import nn

from dat.training import checkpoint
from dat.training.checkpoint import Checkpoints, load_weights, random_state, restore_random_state, save_weights
from dual_attention._base import files


def test_the_newest_two_checkpoints_are_kept_and_the_last_loads(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    model = nn.Linear(3, 2)
    for epoch, step in ((0, 5), (1, 10), (10, 9)):
        checkpoints.save(epoch, step, model.state_dict(), {"step": step})
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["epoch-00001-step-00000010", "epoch-00010-step-00000009"]
    other = nn.Linear(3, 2)
    assert checkpoints.load(other) == {"step": 9}
    assert torch.equal(other.weight, model.weight)


def test_the_newest_two_are_those_of_the_largest_numbers_however_many_digits_they_have(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for span in (99_998, 99_999, 100_000, 100_001):
        checkpoints.save(span, 10 * span, nn.Linear(3, 2).state_dict(), {"step": 10 * span}, unit="report")
    assert [path.name for path in checkpoints.all()] == ["report-100000-step-01000000", "report-100001-step-01000010"]
    assert checkpoints.latest() == checkpoints.all()[-1]
    checkpoints.save(100_000_000, 10**9, nn.Linear(3, 2).state_dict(), {"step": 10**9}, unit="report")
    assert checkpoints.load(nn.Linear(3, 2)) == {"step": 10**9}


def test_no_checkpoint(tmp_path):
    assert Checkpoints(tmp_path / "none").load(nn.Linear(1, 1)) is None


def fail(*_):
    raise OSError("disk full")


def test_a_crash_while_saving_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    checkpoints, model = Checkpoints(tmp_path), nn.Linear(3, 2)
    checkpoints.save(1, 1, model.state_dict(), {"step": 1})
    monkeypatch.setattr(checkpoint.torch, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        checkpoints.save(2, 2, model.state_dict(), {"step": 2})
    monkeypatch.undo()
    assert checkpoints.load(nn.Linear(3, 2)) == {"step": 1}


def test_state_that_is_not_plain_data_is_not_loaded(tmp_path):
    """A pickle that would run code is refused."""

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    checkpoints = Checkpoints(tmp_path / "c")
    checkpoints.save(1, 1, nn.Linear(1, 1).state_dict(), {"evil": Evil()})
    with pytest.raises(Exception, match=r"[Ww]eights"):
        checkpoints.load(nn.Linear(1, 1))
    assert not (tmp_path / "ran").exists()


def test_weights_that_do_not_fit(tmp_path):
    save_weights(nn.Linear(3, 2), tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match=r"w\.safetensors: .*bias"):
        load_weights(nn.Linear(3, 2, bias=False), tmp_path / "w.safetensors")
    with pytest.raises(FileNotFoundError, match=r"none\.safetensors"):
        load_weights(nn.Linear(3, 2), tmp_path / "none.safetensors")


def test_random_state_round_trip():
    state = random_state(torch.device("cpu"))
    first = torch.rand(3)
    restore_random_state(state, torch.device("cpu"))
    assert torch.equal(torch.rand(3), first)


def test_atomic_write_keeps_the_old_file_on_failure(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    files.write_atomically(path, "old")
    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(OSError):
        files.write_atomically(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("contents", [b"{", b"\xff", b"[" * 100_000, b"", b"[]"], ids=lambda contents: contents[:1])
def test_broken_json_is_named(tmp_path, contents):
    (tmp_path / "x.json").write_bytes(contents)
    words = "expected a JSON object, got list" if contents == b"[]" else "is not JSON"
    with pytest.raises(ValueError, match=rf"x\.json: {words}"):
        files.read_json_object(tmp_path / "x.json")
