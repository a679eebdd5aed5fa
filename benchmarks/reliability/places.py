"""Commands in odd places: no home, poor consoles or none, terminals of odd widths, text as other systems write it."""

import os
import random
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dat.cli.main import main

from .kills import TEXT, training
from .trials import Called, Trial, broken, dat, import_once, in_a_process, shortened

NAME = "a rün 'of' mine"
"""Name of runs and folders: not ASCII, and with what a shell splits."""
COMMANDS: dict[str, tuple[str, ...]] = {
    "train": (),
    "generate": ("generate", "RUN", "3 times ü", "--temperature=0", "--max_new_tokens=6"),
    "info": ("info", "RUN"),
    "evaluate": ("evaluate", "RUN"),
    "estimate": ("estimate", "DAT-tiny"),
    "help": ("train", "language", "--help"),
}
HOMES = ("HOME", "USER", "LOGNAME", "USERNAME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "DUAL_ATTENTION_CACHE")


def homeless() -> None:
    """A container's user, of whom the system knows a number alone."""
    import pwd

    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in HOMES:
        os.environ.pop(name, None)
    pwd.getpwuid = unknown


def console(encoding: str) -> Callable[[], None]:
    """Standard output and errors of an encoding."""

    def enter() -> None:
        streams: Any = sys.stdout, sys.stderr
        for stream in streams:
            stream.reconfigure(encoding=encoding)

    return enter


def closed(*names: str) -> Callable[[], None]:
    """Without some of the standard streams, as after ``>&-``."""

    def enter() -> None:
        for name in names:
            os.close(("stdin", "stdout", "stderr").index(name))
            setattr(sys, name, None)

    return enter


def width(columns: str) -> Callable[[], None]:
    """A terminal that says it is so wide."""
    return lambda: os.environ.update(COLUMNS=columns)


PLACES: dict[str, Callable[[], None]] = {
    "nowhere in particular": lambda: None,
    "no home, an unknown user": homeless,
    "an ASCII console": console("ascii"),
    "a console of Windows": console("cp1252"),
    "no standard input": closed("stdin"),
    "no standard output": closed("stdout"),
    "no standard error": closed("stderr"),
    "no standard streams": closed("stdin", "stdout", "stderr"),
    **{f"COLUMNS={columns}": width(columns) for columns in ("0", "1", "7", "-5", str(10**9), str(10**30), "wide")},
}
SHOWS_ALL = ("nowhere in particular", "no home, an unknown user", "no standard input", "no standard error")
"""Places in which a command prints the same."""

TEXTS: dict[str, tuple[bytes, bool]] = {
    "line breaks of Windows": (TEXT.replace("\n", "\r\n").encode(), True),
    "a byte-order mark": (TEXT.encode("utf-8-sig"), True),
    "UTF-16": (TEXT.encode("utf-16"), False),
    "Latin-1": (TEXT.encode("latin-1"), False),
    "a zero": (TEXT.encode() + b"\0", False),
}
"""Texts as other systems write them, and whether they are read; the others are refused by name."""


def at(place: Callable[[], None], folder: Path, *words: str) -> Called:
    """Call ``dat`` in a place. This process is spoilt afterwards; it is to end soon."""
    out, err = folder / "out", folder / "err"
    for number, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
    place()
    escaped = ""
    try:
        status = main(words)
    except SystemExit as exit:
        status = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    except BaseException as error:
        status, escaped = 1, f"{type(error).__name__}: {error}"
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    printed, told = (path.read_text(encoding="utf-8", errors="replace") for path in (out, err))
    return Called(status, printed, told, escaped)


def command(name: str, folder: Path, run: Path) -> list[str]:
    """The words of a command."""
    if name == "train":
        return training(folder / NAME, **{"loop.steps": 2, "output.name": NAME, "output.progress": "true"})
    return [str(run) if word == "RUN" else word for word in COMMANDS[name]]


def judged(name: str, place: str, called: Called, folder: Path, expected: Called) -> str | None:
    """The outcome of a command in a place."""
    if wrong := broken(called, ()):
        return wrong
    if name == "train":
        if not list(folder.rglob("result.json")):
            return "finding: no run, though all went well"
        lines = [line for line in called.out.splitlines() if "dat generate" in line]
        if place in SHOWS_ALL and not (lines and Path(shlex.split(lines[0].split(":", 1)[1])[2]).is_dir()):
            return f"finding: a command that a shell does not take: {shortened(str(lines))}"
    elif place in SHOWS_ALL and called.out != expected.out:
        return f"finding: prints something else: {shortened(called.out)}"
    return None


def places(folder: Path, rng: random.Random) -> Iterator[Trial]:
    """All commands in all places, and training on all texts, in random order."""
    run = folder / "runs" / NAME
    import_once()

    def plainly() -> Any:
        made = dat(*training(run.parent, **{"loop.steps": 2, "output.name": NAME}))
        return {"made": made, **{name: dat(*command(name, folder, run)) for name in COMMANDS if name != "train"}}

    expected: Any = in_a_process(plainly)
    if any(called.status for called in expected.values()):
        raise RuntimeError(str(expected))
    trials: list[Trial] = []
    for number, (place, name) in enumerate((place, name) for place in PLACES for name in COMMANDS):
        own = folder / f"{number} {NAME}"

        def trial(place=place, name=name, own=own) -> str | None:
            own.mkdir()
            called = at(PLACES[place], own, *command(name, own, run))
            return judged(name, place, called, own, expected.get(name, called))

        trials.append((f"`dat {name}` with {place}", trial))
    for kind, (data, taken) in TEXTS.items():

        def read(kind=kind, data=data, taken=taken) -> str | None:
            path = folder / f"text in {kind}.txt"
            path.write_bytes(data)
            called = dat(*training(folder / kind, **{"loop.steps": 2, "data.path": path}))
            if wrong := broken(called, (path.name,)):
                return wrong
            return None if (called.status == 0) == taken else f"finding: status {called.status} with {kind}"

        trials.append((f"text with {kind}", read))
    rng.shuffle(trials)
    yield from trials
