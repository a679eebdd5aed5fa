"""Libraries are built once, by the compiler that is there, and anything that stands in the way is told as a reason."""

import ctypes
import os
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

from dual_attention.native import building
from dual_attention.native.building import UnavailableError, built
from tests.support.refusals import refused

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


def kept_files(source):
    """Build, without loading, which would change a library under this process when the file is changed."""
    with mock.patch.object(building.ctypes, "CDLL"):
        built(source)
    cache = source.parent / "cache"
    (library,), (checksum,) = (cache / "native").iterdir(), (cache / "native-checksums").iterdir()
    return {"library": library, "checksum": checksum}


def link_to_a_copy(path):
    copy = path.with_name("elsewhere")
    path.rename(copy)
    path.symlink_to(copy)


def replace_by_fifo(path):
    path.unlink()
    os.mkfifo(path)


HARM = {
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:3000] + b"\n"),
    "no text": lambda path: path.write_bytes(b"\xff" + path.read_bytes()),
    "missing": lambda path: path.unlink(),
    "for others to write": lambda path: path.chmod(0o666),
    "for a group to write": lambda path: path.chmod(0o660),
    "a link": link_to_a_copy,
    "a fifo": replace_by_fifo,
}


@needs_compiler
@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("which", ["library", "checksum"])
def test_a_library_that_is_not_as_it_was_built_is_built_anew(source, which, harm):
    path = kept_files(source)[which]
    HARM[harm](path)
    with mock.patch.object(building, "_compile", wraps=building._compile) as compiles:
        assert built(source).seven() == 7
    compiles.assert_called_once()
    assert path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o777 == 0o600


def give_away(folder, monkeypatch):
    """Let the folder belong to another user, or where only root could do so, this process to another."""
    mine = os.geteuid()
    if mine == 0:
        os.chown(folder, 65534, -1)
    else:
        monkeypatch.setattr(building.os, "geteuid", lambda: mine + 1)


DANGERS = {
    "others write": lambda folder, _: folder.chmod(0o777),
    "a group writes": lambda folder, _: folder.chmod(0o770),
    "a link": lambda folder, _: link_to_a_copy(folder),
    "of another user": give_away,
}


@needs_compiler
@pytest.mark.parametrize("danger", DANGERS)
@pytest.mark.parametrize("folder", ["", "native", "native-checksums"])
def test_nothing_is_loaded_from_a_folder_that_others_can_write(source, folder, danger, monkeypatch):
    kept_files(source)
    DANGERS[danger](source.parent / "cache" / folder, monkeypatch)
    with (
        mock.patch.object(building.ctypes, "CDLL", side_effect=AssertionError("code of others runs")),
        pytest.raises(UnavailableError, match=rf"cache/?{folder} is a link, or others than this user and root can"),
    ):
        built(source)


@needs_compiler
def test_nobody_else_can_write_what_is_made_here(source, monkeypatch):
    monkeypatch.setenv("DUAL_ATTENTION_CACHE", str(source.parent / "not" / "there" / "cache"))
    before = os.umask(0)
    try:
        built(source)
    finally:
        os.umask(before)
    made = list((source.parent / "not").rglob("*"))
    assert len(made) == 6 and not any(path.stat().st_mode & 0o077 for path in made)


@needs_compiler
def test_what_killed_builds_left_is_removed(source):
    folder = source.parent / "cache" / "native"
    building.make_private(folder)
    young, old = folder / "tmpyoung", folder / "tmpold"
    for leftover in (young, old):
        leftover.mkdir()
        (leftover / "seven.so").write_bytes(b"half")
    os.utime(old, times=(0, time.time() - 2 * building.OLD))
    built(source)
    assert young.exists() and not old.exists()


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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_compiler_that_never_ends_is_asked_once_and_ended_with_its_processes(source, compiler, monkeypatch):
    calls, other = source.parent / "calls", source.with_name("eight.c")
    compiler(f"echo called >> {calls}\nsleep 60 &\necho $! > {calls}.child\nwait")
    other.write_text(source.read_text())
    monkeypatch.setattr(building, "SECONDS", 1)
    for file in (source, other, source):
        with pytest.raises(UnavailableError, match="took longer than 1 seconds"):
            built(file)
    assert calls.read_text() == "called\n"
    child = Path("/proc", Path(f"{calls}.child").read_text().strip(), "stat")
    deadline = time.monotonic() + 20
    while child.exists() and child.read_text().split()[2] not in "ZX" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert time.monotonic() < deadline, "the compiler's own process is left"


@needs_compiler
def test_a_compiler_may_say_anything(source, compiler):
    own = next(filter(None, map(building.shutil.which, building.COMPILERS)))
    compiler(f"printf '\\351' >&2; exec {own} \"$@\"")
    assert built(source).seven() == 7


def build_in_vain(prepare, *, source, compiler, monkeypatch):
    """Build with a compiler, or in an environment, that stands in the way."""
    compiler(prepare) if isinstance(prepare, str) else prepare(monkeypatch)
    built(source)


test_why_nothing_is_built = refused(
    ("exit 3", UnavailableError, "failed: exit status 3, no message"),
    ("printf 'error: \\351' >&2; exit 2", UnavailableError, "status 2, error: \N{REPLACEMENT CHARACTER}"),
    ('while [ "$1" != -o ]; do shift; done\necho "no library" > "$2"', UnavailableError, r"seven-[0-9a-f]{16}\.so"),
    (lambda patch: patch.setenv("PATH", os.devnull), UnavailableError,
     r"found no compiler: neither \$CC nor cc, gcc, clang"),
    by=build_in_vain,
)  # fmt: skip


def test_a_cache_that_cannot_be_written(source, monkeypatch):
    monkeypatch.setenv("DUAL_ATTENTION_CACHE", str(source))
    with pytest.raises(UnavailableError, match=str(source)):
        built(source)


@pytest.mark.parametrize("cache", [None, "~nosuchuser/cache"])
def test_no_home(source, cache, compiler, monkeypatch):
    compiler("exit 0")
    monkeypatch.setattr("pwd.getpwuid", mock.Mock(side_effect=KeyError("getpwuid(): uid not found")))
    for variable in ("HOME", "XDG_CACHE_HOME", "DUAL_ATTENTION_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    if cache is not None:
        monkeypatch.setenv("DUAL_ATTENTION_CACHE", cache)
    with pytest.raises(UnavailableError, match="there is no such home folder; name a folder with DUAL_ATTENTION_CACHE"):
        built(source)


def test_switched_off(source, monkeypatch):
    monkeypatch.setenv("DUAL_ATTENTION_NATIVE", "0")
    with pytest.raises(UnavailableError, match="DUAL_ATTENTION_NATIVE=0"):
        built(source)
    assert not os.path.exists(source.parent / "cache")
