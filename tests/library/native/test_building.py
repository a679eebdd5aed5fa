"""Libraries are built once, by the compiler that is there, and anything that stands in the way is told as a reason."""

import ctypes
import os
import sys
from unittest import mock

import pytest

from dual_attention.native import building
from dual_attention.native.building import UnavailableError, built

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nothing is compiled on Windows")

needs_compiler = pytest.mark.skipif(
    not any(map(building.shutil.which, building.COMPILERS)), reason="needs a C compiler"
)


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("DUAL_ATTENTION_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    (tmp_path / "number.h").write_text("#define NUMBER 7\n")
    file = tmp_path / "seven.c"
    file.write_text('#include "number.h"\nint seven(void) { return NUMBER; }\n')
    return file


@needs_compiler
def test_a_library_is_built_once(source):
    library = built(source)
    assert isinstance(library, ctypes.CDLL)
    assert library.seven() == 7
    (kept,) = (source.parent / "cache" / "native").iterdir()
    with mock.patch.object(building, "_compile", side_effect=AssertionError("compiled again")):
        assert built(source).seven() == 7
    assert [kept] == list(kept.parent.iterdir())


@needs_compiler
@pytest.mark.parametrize("length", [0, 3000])
def test_a_library_that_was_cut_off_is_built_anew(source, length):
    # Never loaded before it is cut off, which would change the library under this process.
    with mock.patch.object(building.ctypes, "CDLL"):
        built(source)
    (kept,) = (source.parent / "cache" / "native").iterdir()
    kept.write_bytes(kept.read_bytes()[:length])
    assert built(source).seven() == 7


@needs_compiler
def test_a_changed_header_is_another_library(source):
    built(source)
    (source.parent / "number.h").write_text("#define NUMBER 8\n")
    assert built(source).seven() == 8


@needs_compiler
def test_other_processors_have_libraries_of_their_own(source, monkeypatch):
    built(source)
    monkeypatch.setattr(building, "_processor", lambda: "another")
    built(source)
    assert len(list((source.parent / "cache" / "native").iterdir())) == 2


@needs_compiler
def test_what_a_compiler_says_is_the_reason(source):
    source.write_text("int seven(void) { return NUMBER_OF_NOTHING; }\n")
    with pytest.raises(UnavailableError, match=r"failed: exit status 1, .*NUMBER_OF_NOTHING"):
        built(source)
    assert not list((source.parent / "cache" / "native").iterdir())


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A script in the place of the compiler, by the environment."""

    def write(script):
        file = tmp_path / "compiler"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        monkeypatch.setenv("CC", str(file))

    return write


@needs_compiler
def test_a_compiler_that_does_not_know_one_way_to_ask_for_the_processor_is_asked_in_the_other(source, compiler):
    own = next(filter(None, map(building.shutil.which, building.COMPILERS)))
    compiler(
        'case "$*" in *-march=native*) echo "error: unknown argument" >&2; exit 1;; esac\n'
        f'for last; do [ "$last" = -mcpu=native ] || set -- "$@" "$last"; shift; done\nexec {own} "$@"'
    )
    assert built(source).seven() == 7


def test_a_compiler_that_never_ends_is_given_up(source, compiler, monkeypatch):
    compiler("sleep 60")
    monkeypatch.setattr(building, "SECONDS", 0.1)
    with pytest.raises(UnavailableError, match="took longer than"):
        built(source)


def test_a_compiler_that_says_nothing(source, compiler):
    compiler("exit 3")
    with pytest.raises(UnavailableError, match="failed: exit status 3, no message"):
        built(source)


def test_a_library_that_cannot_be_loaded(source, compiler):
    compiler('while [ "$1" != -o ]; do shift; done\necho "no library" > "$2"')
    with pytest.raises(UnavailableError, match=r"seven-[0-9a-f]{16}\.so"):
        built(source)


def test_no_compiler(source, monkeypatch):
    monkeypatch.setenv("PATH", str(source.parent))
    with pytest.raises(UnavailableError, match=r"found no compiler: neither \$CC nor cc, gcc, clang"):
        built(source)


def test_a_cache_that_cannot_be_written(source, monkeypatch):
    monkeypatch.setenv("DUAL_ATTENTION_CACHE", str(source))
    with pytest.raises(UnavailableError, match=str(source)):
        built(source)


def test_switched_off(source, monkeypatch):
    monkeypatch.setenv("DUAL_ATTENTION_NATIVE", "0")
    with pytest.raises(UnavailableError, match="DUAL_ATTENTION_NATIVE=0"):
        built(source)
    assert not os.path.exists(source.parent / "cache")
