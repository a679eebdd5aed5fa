"""Folders with one damaged file, and the commands that read them."""

import csv
import multiprocessing
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .kills import numbers, training
from .trials import Called, Trial, broken, dat, shortened

GRID = ("--seeds=1", "--workers=1", "--steps=[2]", "--quiet", "--data.path=text.txt", "--data.val_tokens=160")
GRID_SIZES = ("--loop.batch_size=2", "--loop.eval_batch_size=2", "--optim.warmup_steps=1")


def _flip(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]


MUTATIONS: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "flipped bit": _flip,
    "truncated": lambda data, rng: data[: rng.randrange(1, len(data))],
    "emptied": lambda data, rng: b"",
    "garbage": lambda data, rng: rng.randbytes(len(data)),
    "JSON null": lambda data, rng: b"null\n",
    "other JSON": lambda data, rng: rng.choice((b"[]", b"{}", b'{"a": {"b": [1, null]}}', b"3.5", b'"text"')),
    "deleted": lambda data, rng: None,
}


def make_folders(folder: Path) -> dict[str, Path]:
    """A finished and an unfinished run, a grid, and a checkpoint in both formats of Hugging Face."""
    run = folder / "runs" / "run"
    for words in (
        training(folder / "runs"),
        ["export", str(run), "--to", "hub", "--out", str(folder / "hub")],
        ["export", str(run), "--to", "transformers", "--out", str(folder / "transformers")],
        ["reproduce", "language", "--out", str(folder / "grid"), *GRID, *GRID_SIZES],
    ):
        called = dat(*words)
        if called.status:
            raise RuntimeError(called.err)
    make_unfinished(folder)
    return {
        "run": run,
        "unfinished": folder / "stopped" / "run",
        "grid": folder / "grid",
        "hub": folder / "hub",
        "transformers": folder / "transformers",
    }


def make_unfinished(folder: Path) -> None:
    """A run that was killed when it had two checkpoints."""
    stopped = folder / "stopped"
    while True:
        shutil.rmtree(stopped, ignore_errors=True)
        process = multiprocessing.get_context("fork").Process(target=dat, args=training(stopped))
        process.start()
        while process.is_alive() and len(list(stopped.glob("run/checkpoints/report*"))) < 2:
            time.sleep(0.001)
        process.kill()
        process.join()
        if not (stopped / "run" / "result.json").exists():
            return


def by_command(*words: str) -> Callable[[Path], Called]:
    """A call of ``dat`` with the folder in place of RUN; times are left out of what it prints."""

    def call(path: Path) -> Called:
        called = dat(*(word.replace("RUN", str(path)) for word in words))
        out = re.sub(r'"[a-z_]*second[a-z_]*": *[\d.e+-]+|\d[\d,.]* (seconds|s|ms)\b', "", called.out)
        return Called(called.status, out, called.err, called.escaped)

    return call


def plotted(path: Path) -> Called:
    """The numbers of a grid as ``dat plot`` reads them."""
    called = dat("plot", "language", str(path), "--out", str(path.parent / "figures"))
    return called if called.status else Called(0, measured(path.parent / "figures" / "results.csv"), called.err)


def continued(path: Path) -> Called:
    """The numbers of a grid after the command that made it was given again."""
    called = dat("reproduce", "language", "--out", str(path), *GRID, *GRID_SIZES)
    return called if called.status else Called(0, measured(path / "results.csv"), called.err)


def measured(results: Path) -> str:
    """Rows of a table of results without their times."""
    if not results.exists():
        return ""
    rows = csv.DictReader(results.read_text(encoding="utf-8").splitlines())
    return repr([{key: row[key] for key in row if key != "seconds"} for row in rows])


def resumed(path: Path) -> Called:
    """Weights, metrics and result of a run after it was resumed."""
    called = dat("train", "language", "--resume", str(path))
    return called if called.status else Called(0, repr(numbers(path)), called.err)


def from_python(load: Callable[[str], Any]) -> Callable[[Path], Called]:
    """Load in Python, and sum up the weights exactly."""

    def call(path: Path) -> Called:
        try:
            model = load(str(path))
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            return Called(2, "", f"{type(error).__name__}: {' '.join(str(error).split())}")
        except BaseException as error:
            return Called(1, "", str(error), type(error).__name__)
        tensors = model.state_dict().items()
        return Called(0, repr([(name, value.double().sum().item(), value.dtype) for name, value in tensors]), "")

    return call


def _opened(path: str) -> object:
    from dat.checkpoints import open_checkpoint

    return open_checkpoint(path).model


def _of_hub(path: str) -> object:
    from dual_attention.hf.hub import DualAttnTransformerLM_HFHub

    return DualAttnTransformerLM_HFHub.from_pretrained(path)


def _of_transformers(path: str) -> object:
    from dual_attention.hf import DualAttnForCausalLM

    return DualAttnForCausalLM.from_pretrained(path)


GENERATE = by_command("generate", "RUN", "3 times", "--temperature=0", "--max_new_tokens=6", "--seed=1")
INFO, EVALUATE = by_command("info", "RUN", "--json"), by_command("evaluate", "RUN", "--json")
CALLS: dict[str, dict[str, Callable[[Path], Called]]] = {
    "run": {"dat evaluate": EVALUATE, "dat info": INFO, "dat generate": GENERATE,
        "open_checkpoint": from_python(_opened)},
    "unfinished": {"dat train --resume": resumed, "dat info": INFO, "dat generate": GENERATE},
    "grid": {"dat plot": plotted, "dat reproduce": continued},
    "hub": {"dat info": INFO, "dat generate": GENERATE, "open_checkpoint": from_python(_opened),
        "from_pretrained": from_python(_of_hub)},
    "transformers": {"dat info": INFO, "dat generate": GENERATE, "open_checkpoint": from_python(_opened),
        "from_pretrained": from_python(_of_transformers)},
}  # fmt: skip
WITHOUT_CHECKSUMS = ("hub", "transformers")
"""Kinds of folder whose format has no place for checksums."""


def judged(kind: str, file: str, mutation: str, called: Called, expected: Called, name: str) -> str | None:
    """The outcome of one call on one damaged folder."""
    if wrong := broken(called, (Path(file).name, name)):
        return wrong
    if called.status:
        return "refused"
    if called.out == expected.out:
        return "same numbers"
    if Path(file).name in called.err:
        return "reported"
    if kind in WITHOUT_CHECKSUMS and mutation in ("flipped bit", "truncated", "other JSON"):
        return "other numbers from a format without checksums"
    return f"finding: other numbers, silently: {shortened(called.out[:80])}"


def mutations(folder: Path, rng: random.Random) -> Iterator[Trial]:
    """Damaged folders without end: all files by all mutations in random order, then the same again."""
    pristine = make_folders(folder)
    case = folder / "case" / "case"
    files = {
        kind: [path.relative_to(top).as_posix() for path in sorted(top.rglob("*")) if path.stat().st_size]
        for kind, top in pristine.items()
    }
    files = {kind: [name for name in names if (pristine[kind] / name).is_file()] for kind, names in files.items()}
    expected = {}

    def on(kind: str, call: str) -> Called:
        shutil.rmtree(case.parent, ignore_errors=True)
        shutil.copytree(pristine[kind], case)
        if (pristine["run"].parent / "tokens").exists() and kind in ("run", "unfinished"):
            shutil.copytree(pristine["run"].parent / "tokens", case.parent / "tokens")
        return CALLS[kind][call](case)

    for kind, calls in CALLS.items():
        for call in calls:
            expected[kind, call] = on(kind, call)
            if expected[kind, call].status:
                raise RuntimeError(f"{call} of the undamaged {kind} failed: {expected[kind, call].err}")
    while True:
        trials = [(k, f, m, c) for k, names in files.items() for f in names for m in MUTATIONS for c in CALLS[k]]
        rng.shuffle(trials)
        for kind, file, mutation, call in trials:
            if call == "dat reproduce" and rng.random() < 0.5:
                continue  # it takes seconds
            seed = rng.randrange(2**32)

            def trial(kind=kind, file=file, mutation=mutation, call=call, seed=seed) -> str | None:
                original = CALLS[kind][call]

                def damaged(path: Path) -> Called:
                    data = MUTATIONS[mutation]((path / file).read_bytes(), random.Random(seed))
                    (path / file).unlink() if data is None else (path / file).write_bytes(data)
                    return original(path)

                CALLS[kind][call] = damaged
                return judged(kind, file, mutation, on(kind, call), expected[kind, call], str(case))

            yield f"`{call}` of {kind}: `{file}` {mutation}", trial
