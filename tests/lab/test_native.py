"""The lab enables C kernels where they serve, and says so in a line."""

import multiprocessing

import pytest
from torch import nn

from dat._native import ENABLED, SWITCH, use_native
from dat.sweeps import workers
from dat.training.run_folder import versions
from dual_attention import native
from dual_attention.attention import Attention
from dual_attention.native import kernels
from dual_attention.native.building import UnavailableError
from dual_attention.native.library import Library
from dual_attention.relational_attention import RelationalAttention
from tests.support.compilers import HAS_COMPILER

RELATIONAL = nn.Sequential(RelationalAttention(8, 2), nn.Linear(8, 8))


def always():
    return True


@pytest.fixture
def compiler():
    if not HAS_COMPILER:
        pytest.skip("needs a C compiler")


def test_a_model_with_relational_heads_has_them(compiler, capsys):
    assert "native" not in versions()
    use_native(RELATIONAL, always)
    assert native.is_enabled() and capsys.readouterr().err == f"dat: {ENABLED}\n"
    assert versions()["native"] == "enabled"
    use_native(RELATIONAL, always)  # which is no news
    assert not capsys.readouterr().err


def test_quietly_unless_on_a_terminal(compiler, capsys):
    use_native(RELATIONAL)
    assert native.is_enabled() and not capsys.readouterr().err


def test_one_worker_of_a_grid_says_so(monkeypatch):
    monkeypatch.setattr(workers, "_speaker", None)
    assert not workers.is_first_to_say()
    monkeypatch.setattr(workers, "_speaker", multiprocessing.get_context("spawn").Lock())
    assert [workers.is_first_to_say() for _ in range(3)] == [True, False, False]


@pytest.mark.parametrize("model", [nn.Identity(), Attention(8, 2), RelationalAttention(8, 2).to("meta")])
def test_no_other_model(model, capsys):
    use_native(model, always)
    assert not native.is_enabled() and not capsys.readouterr().err


def test_switched_off(monkeypatch, capsys):
    monkeypatch.setenv(SWITCH, "0")
    use_native(RELATIONAL, always)
    assert not native.is_enabled() and not capsys.readouterr().err


def test_without_a_compiler_it_goes_on_and_says_so(monkeypatch, capsys):
    def fails(source):
        raise UnavailableError("found no compiler")

    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.setattr("dual_attention.native.library.built", fails)
    monkeypatch.setattr(native, "LIBRARY", Library(kernels.SOURCE, kernels._Call))
    use_native(RELATIONAL, always)
    error = capsys.readouterr().err
    assert not native.is_enabled() and error.endswith("found no compiler\n") and error.count("\n") == 1
