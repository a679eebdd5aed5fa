"""The state of a checkpoint: nothing that does not fit is used, and no bytes make a process crash."""

import copy
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dat.training.checkpoint import STATE, read_state
from dat.training.configs import OptimConfig
from dat.training.loop import Trainer
from dual_attention._base.checksums import CHECKSUMS
from tests.support.refusals import refusals
from tests.support.runs import fit_until_stopped

from .test_loop import make_trainer, stop_after, weights


@pytest.fixture
def stopped(stopped_once, tmp_path):
    return shutil.copytree(stopped_once, tmp_path / "stopped")


@pytest.fixture(scope="module")
def stopped_once(tmp_path_factory):
    return stopped_checkpoints(tmp_path_factory.mktemp("stopped"))


def stopped_checkpoints(folder: Path, make: Callable[..., Trainer] = make_trainer, **changes: Any) -> Path:
    """Checkpoints of a training stopped in its second epoch, without checksums, as somebody may write them."""
    fit_until_stopped(make(folder, stop_after(6), **changes))
    for path in folder.glob(f"*/{CHECKSUMS}"):
        path.unlink()
    return folder


@refusals(
    ({"optimizer": "adamw"}, "optimizer: expected the state of adamw, which optim.optimizer names, got 'adam'"),
    ({"betas": (0.5, 0.9)}, r"optimizer\.param_groups\[0\]\.betas: expected \(0\.5, 0\.9\)"),
    of="changes",
)
def test_a_checkpoint_that_is_whole_is_not_to_be_removed(tmp_path, changes, error, message):
    """If the settings have been changed since, the error says so."""
    fit_until_stopped(make_trainer(tmp_path, stop_after(6)))
    other = make_trainer(tmp_path, optim=OptimConfig(lr=0.01, **changes))
    before = weights(other)
    message = rf"state\.pt: {message}.*; if the run has other settings now.*restore"
    with pytest.raises(error, match=message) as caught:
        other.resume()
    assert "remove" not in str(caught.value) and all(map(torch.equal, before, weights(other)))


def newest(folder):
    return max(folder.iterdir()) / STATE


def changed(state: dict, *keys: Any, to: Any) -> dict:
    """A copy of a state with another value at one place; a function makes it from the old one."""
    state = copy.deepcopy(state)
    inner: Any = state
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = to(inner[keys[-1]]) if isinstance(to, Callable) else to
    return state


FIRST = ("optimizer", "state", 0)
GROUP = ("optimizer", "param_groups", 0)
NAN, HUGE = float("nan"), 1 << 62

CRAFTED = [
    (("epoch",), 99, "epoch: expected an integer from 0 to 4, got 99"),
    (("epoch",), -1, "epoch"),
    (("epoch",), True, "epoch"),
    (("epoch",), 0, "step: expected an integer from 0 to 4"),
    (("epoch",), None, "epoch"),
    (("step",), 10**9, "step: expected an integer from 4 to 8, got 1000000000"),
    (("step",), 5, "count: expected 16"),
    (("step",), 6.0, "step"),
    (("seconds",), NAN, "seconds"),
    (("seconds",), -1.0, "seconds"),
    (("seconds",), "long", "seconds"),
    (("count",), 0, "count: expected 32"),
    (("count",), HUGE, "count"),
    (("sums",), [], "sums"),
    (("sums",), {}, "sums"),
    (("sums", "loss"), 3.0, "sums"),
    (("sums", "loss"), torch.zeros(3, dtype=torch.float64), "sums"),
    (("sums", "loss"), torch.tensor(NAN, dtype=torch.float64), "sums"),
    (("metrics",), {"bytes": -1, "sha256": ""}, "metrics"),
    (("metrics",), {"bytes": HUGE}, "metrics"),
    (("measured",), {}, "measured"),
    (("measured",), [{"epoch": 1, "val_loss": "low"}], "measured: expected rows of numbers, each with its epoch"),
    (("measured",), [{"epoch": 1, "val_loss": 1.0}], "measured: .* rows of numbers, each with its epoch and step"),
    (("measured",), [{"val_loss": 1.0}], "measured"),
    (("watched",), [{"epoch": 1, "val_loss": "low"}], "watched: expected rows of numbers, each with its epoch"),
    (("names",), [1], "names: expected names of parameters"),
    (("random",), {}, "random"),
    (("random", "cpu"), torch.zeros(5056, dtype=torch.uint8), "random"),
    (("random", "cpu"), torch.zeros(7, dtype=torch.uint8), "random"),
    (("random", "cpu"), torch.zeros(5056), "random"),
    (("random", "cpu"), lambda state: state.repeat(2), "random"),
    (("optimizer",), None, "optimizer"),
    (("optimizer", "param_groups"), [], "param_groups"),
    ((*GROUP, "params"), [0, 1, 2, 3, 4], r"param_groups\[0\]\.params"),
    ((*GROUP, "params"), [torch.zeros(2), 1, 2, 3], "params"),
    ((*GROUP, "betas"), (0.5, 0.5), "betas"),
    ((*GROUP, "lr"), NAN, r"param_groups\[0\]\.lr"),
    ((*GROUP, "lr"), torch.ones(2), r"param_groups\[0\]\.lr"),
    ((*GROUP, "eps"), torch.zeros(3), "eps"),
    ((*GROUP, "amsgrad"), True, "amsgrad"),
    (("optimizer", "state"), {}, "optimizer.state"),
    (("optimizer", "state"), {9: {}}, "optimizer.state"),
    (FIRST, {}, r"state\[0\]"),
    (FIRST, {"step": 1}, r"state\[0\]"),
    ((*FIRST, "step"), torch.tensor(-3.0), r"state\[0\]\.step: expected an integer from 1 to 6, got -3.0"),
    ((*FIRST, "step"), torch.tensor(NAN), r"state\[0\]\.step"),
    ((*FIRST, "step"), torch.tensor(1e30), r"state\[0\]\.step"),
    ((*FIRST, "step"), torch.ones(4), r"state\[0\]\.step"),
    ((*FIRST, "exp_avg"), torch.zeros(1), r"exp_avg: expected torch.float32 \(16, 6\), got 'torch.float32 \(1,\)'"),
    ((*FIRST, "exp_avg"), torch.zeros(16, 6, dtype=torch.float64), "exp_avg"),
    ((*FIRST, "exp_avg"), torch.zeros(16, 6).to_sparse(), "exp_avg"),
    ((*FIRST, "exp_avg"), torch.full((16, 6), NAN), "exp_avg: expected finite"),
    ((*FIRST, "exp_avg"), None, "exp_avg"),
    ((*FIRST, "exp_avg_sq"), torch.zeros(0), "exp_avg_sq"),
    ((*FIRST, "exp_avg_sq"), torch.full((16, 6), -1.0), "exp_avg_sq: expected numbers of at least 0"),
    (("more",), 1, "its keys"),
]


@pytest.mark.parametrize(("keys", "to", "message"), CRAFTED)
def test_a_crafted_state_is_refused_before_anything_is_touched(stopped, keys, to, message):
    path = newest(stopped)
    trainer = make_trainer(stopped)
    before, generator = weights(trainer), torch.get_rng_state()
    torch.save(changed(read_state(path), *keys, to=to), path)
    with pytest.raises(ValueError, match=message) as caught:
        trainer.resume()
    assert str(path) in str(caught.value) and "remove the folder" in str(caught.value)
    assert all(torch.equal(*pair) for pair in zip(before, weights(trainer), strict=True))
    assert torch.equal(torch.get_rng_state(), generator)
    assert (trainer.epoch, trainer.step, trainer.optimizer.state_dict()["state"]) == (0, 0, {})


def test_state_that_overlaps_itself_is_copied(stopped):
    """A tensor of the right shape may lie in memory in a way that the optimiser does not expect."""
    path = newest(stopped)
    torch.save(changed(read_state(path), *FIRST, "exp_avg", to=torch.zeros(1).expand(16, 6)), path)
    trainer = make_trainer(stopped)
    assert trainer.resume()
    moments = [entry[name] for entry in trainer.optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    assert all(moment.is_contiguous() for moment in moments)
    trainer.fit()


def test_the_state_as_it_was_written_is_accepted(stopped):
    assert make_trainer(stopped).resume()


def test_damaged_bytes_never_crash(stopped):
    """Flipped bits and cut ends, without a checksum that would tell: refused, or harmless."""
    path = newest(stopped)
    whole = path.read_bytes()
    draw = random.Random(0)
    refused = 0
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(draw.choice((1, 1, 8))):
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged[: draw.randrange(len(damaged))] if draw.random() < 0.3 else damaged)
        trainer = make_trainer(stopped)
        try:
            trainer.resume()
            trainer.train_step(torch.arange(4))
        except ValueError:
            refused += 1
    assert refused > 10


@pytest.mark.parametrize("garbage", [b"", b"garbage", b"\x80\x04N.", b"PK\x05\x06" + bytes(18)])
def test_garbage_is_no_state(stopped, garbage):
    newest(stopped).write_bytes(garbage)
    with pytest.raises(ValueError, match=r"state\.pt: damaged, or no state of training"):
        make_trainer(stopped).resume()


def test_compressed_states_are_not_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "state.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(1 << 20))
    with pytest.raises(ValueError, match=r"state\.pt: damaged"):
        read_state(tmp_path / "state.pt")
