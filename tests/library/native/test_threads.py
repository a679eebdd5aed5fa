"""Pieces of work are done once each, by PyTorch's threads or by others."""

import ctypes
import shutil
import sys
from pathlib import Path

import pytest
import torch

from dual_attention import native
from dual_attention.native import threads
from dual_attention.native.building import COMPILERS, built
from dual_attention.native.threads import team

HEADER = Path(native.__file__).with_name("threads.h")


@pytest.fixture
def count(tmp_path, monkeypatch):
    """``count(pieces, threads, team)``: how often each piece was done."""
    if sys.platform == "win32" or not any(map(shutil.which, COMPILERS)):
        pytest.skip("needs a C compiler")
    monkeypatch.setenv("DUAL_ATTENTION_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DUAL_ATTENTION_NATIVE", raising=False)
    (tmp_path / "threads.h").write_bytes(HEADER.read_bytes())
    (tmp_path / "count.c").write_text(
        '#include "threads.h"\n'
        "static void piece(void *of, int64_t i) { __atomic_fetch_add((int32_t *)of + i, 1, __ATOMIC_RELAXED); }\n"
        "void count(int32_t *done, int64_t pieces, int64_t threads, Team team) {\n"
        "  share(piece, done, pieces, threads, team);\n"
        "}\n"
    )
    library = built(tmp_path / "count.c")
    library.count.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    library.count.restype = None

    def call(pieces, threads, team):
        done = torch.zeros(pieces, dtype=torch.int32)
        library.count(done.data_ptr(), pieces, threads, team)
        return done.tolist()

    return call


@pytest.mark.slow
@pytest.mark.parametrize("mine", [False, True], ids=["PyTorch's", "its own"])
@pytest.mark.parametrize("number", [1, 2, 7, 300])
@pytest.mark.parametrize("pieces", [0, 1, 5, 1000])
def test_each_piece_is_done_once(count, pieces, number, mine):
    assert count(pieces, number, None if mine else team()) == [1] * pieces


@pytest.mark.skipif(
    sys.platform != "linux" or "OpenMP" not in torch.__config__.parallel_info(), reason="needs OpenMP on Linux"
)
def test_pytorch_has_a_team():
    assert team()


def test_without_openmp_there_is_none(monkeypatch):
    monkeypatch.setattr(threads, "ENTRY", "no_such_function")
    assert team.__wrapped__() is None
    monkeypatch.setattr(threads, "NAMES", {})
    assert team.__wrapped__() is None
