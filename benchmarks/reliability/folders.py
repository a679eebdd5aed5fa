"""Run folders from elsewhere: links in the place of files, folders that are only read, checkpoints with holes."""

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch

from tests.support.parts import Change, rewritten
from tests.support.processes import dat_together

from .kills import numbers, training
from .mutations import make_unfinished
from .trials import Trial, broken, dat, import_once, in_a_process, shortened
from .workers import CHANGES

READERS = {
    "evaluate": ("evaluate", "RUN", "--json"),
    "generate": ("generate", "RUN", "3 times", "--temperature=0", "--max_new_tokens=6"),
    "info": ("info", "RUN", "--json"),
    "export": ("export", "RUN", "--out", "OUT"),
}
"""Commands that only read a run."""
FOREIGN = ("notes.txt", ".notes.txt.4999999.tmp", ".draft.12345678.tmp", ".model.safetensors.tmp")
"""Files of other programs."""


def snapshot(folder: Path) -> dict[str, object]:
    """Whatever would change if something was written into a folder: names, times, contents of files."""
    return {
        path.relative_to(folder).as_posix(): (path.lstat().st_mtime_ns, path.is_file() and path.read_bytes())
        for path in [folder, *sorted(folder.rglob("*"))]
    }


def read_only(folder: Path, finished: Path, rng: random.Random) -> Iterator[Trial]:
    """A run in a folder of other runs, whose tokens are there, damaged, or not at all; nothing is written there."""
    for tokens in ("whole", "damaged", "linked", "none"):
        for name, words in READERS.items():
            seed = rng.randrange(2**32)

            def trial(tokens=tokens, name=name, words=words, seed=seed) -> str | None:
                place = folder / f"read-{tokens}-{name}"
                run = shutil.copytree(finished, place / "runs" / "run")
                kept, elsewhere = finished.parent / "tokens", place / "elsewhere"
                if tokens != "none":
                    shutil.copytree(kept, elsewhere if tokens == "linked" else place / "runs" / "tokens")
                if tokens == "linked":
                    (place / "runs" / "tokens").symlink_to(elsewhere)
                for lock in place.rglob(".lock"):
                    lock.unlink()
                if tokens == "damaged":
                    damaged = random.Random(seed).choice(sorted(place.glob("runs/tokens/*/*")))
                    damaged.write_bytes(damaged.read_bytes()[:-7])
                before = snapshot(place)
                called = dat(*(w.replace("RUN", str(run)).replace("OUT", f"{place}-out") for w in words))
                if called.status:
                    return broken(called, ()) or f"finding: refused: {shortened(called.err)}"
                return None if snapshot(place) == before else "finding: something was written beside the run"

            yield f"`dat {name}` of a run whose tokens are {tokens}", trial


def links(folder: Path, runs: dict[str, Path], rng: random.Random) -> Iterator[Trial]:
    """A link in the place of a file or folder of a run: what it leads to stays as it is."""
    calls = {"finished": ("evaluate", "RUN"), "stopped": ("train", "language", "--resume", "RUN")}
    for kind, run in runs.items():
        names = {path.relative_to(run).as_posix() for path in run.rglob("*")}
        for name in sorted({*names, ".lock", f".metrics.jsonl.{os.getpid()}.dat.tmp", "result.json"}):

            def trial(kind=kind, run=run, name=name) -> str | None:
                place = folder / f"link-{kind}-{name.replace('/', '-')}"
                own, victim = shutil.copytree(run, place / "run"), place / "victim"
                shutil.copytree(run.parent / "tokens", place / "tokens")
                target = own / name
                if target.is_dir():
                    shutil.move(target, victim)
                    for foreign in FOREIGN:
                        (victim / foreign).write_text("precious")
                else:
                    victim.write_bytes(target.read_bytes() if target.exists() else b"precious")
                    target.unlink(missing_ok=True)
                target.symlink_to(victim)
                files = [victim / foreign for foreign in FOREIGN] if victim.is_dir() else [victim]
                before = [path.read_bytes() for path in files]
                called = dat(*(word.replace("RUN", str(own)) for word in calls[kind]))
                if [path.exists() and path.read_bytes() for path in files] != before:
                    return "finding: what a link led to was changed or removed"
                return broken(called, (Path(name).name, "run")) or ("refused" if called.status else "taken")

            yield f"`{name}` of a {kind} run is a link", trial


def make_parts(folder: Path) -> Path:
    """A run that two processes have begun, with a checkpoint in parts."""
    import_once()
    here = {"data.path": Path("text.txt").resolve(), "loop.steps": 6, "machine.parallel": "shard"}
    words = training(folder, **{**CHANGES, **here})
    ended = dat_together(words, words, folder=folder.parent)
    if any(process.status for process in ended):
        raise RuntimeError(f"training in two processes failed: {ended}")
    run = folder / "run"
    for name in ("result.json", "model.safetensors"):
        (run / name).unlink()
    shutil.rmtree(max((run / "checkpoints").iterdir()))
    return run


def changed_parts(rng: random.Random) -> tuple[str, Change]:
    """A change of the file of one process, and its name."""

    def anything(tensors: dict, _: object) -> str:
        return rng.choice(sorted(tensors))

    def move(tensors: dict, places: dict) -> None:
        place = places[anything(tensors, places)]["saved_offsets"]
        if place:
            place[rng.randrange(len(place))] += rng.choice((-1, 1, 2, 2**40, 2**70))

    def cut(tensors: dict, places: dict) -> None:
        name = anything(tensors, places)
        tensors[name] = tensors[name][1:].clone() if tensors[name].dim() else tensors[name]

    def retyped(tensors: dict, places: dict) -> None:
        name = anything(tensors, places)
        tensors[name] = tensors[name].to(rng.choice((torch.int32, torch.float64, torch.bfloat16)))

    changes = {
        "a tensor lost": lambda tensors, places: tensors.pop(anything(tensors, places)),
        "all tensors lost": lambda tensors, places: tensors.clear(),
        "a part elsewhere": move,
        "a part cut": cut,
        "another dtype": retyped,
        "no place": lambda tensors, places: places.pop(anything(tensors, places)),
    }
    return rng.choice(list(changes.items()))


def parts(folder: Path, run: Path, rng: random.Random) -> Iterator[Trial]:
    """Checkpoints of which a part is lost or another one, with checksums that fit: refused, or the same numbers."""
    whole = shutil.copytree(run, folder / "parts-whole")
    if in_a_process(lambda: str(dat("train", "language", "--resume", str(whole)).status)) != "0":
        raise RuntimeError("the checkpoint in parts cannot be resumed")
    expected = numbers(whole)
    while True:
        seed = rng.randrange(2**32)
        draw = random.Random(seed)
        kind, change = changed_parts(draw)

        def trial(kind=kind, change=change, draw=draw, seed=seed) -> str | None:
            own = shutil.copytree(run, folder / f"parts-{seed}")
            try:
                rewritten(draw.choice(sorted(own.glob("checkpoints/*/shards/*"))), change)
                called = dat("train", "language", "--resume", str(own))
                if called.status or called.escaped:
                    return broken(called, ("shards",)) or "refused"
                return "same numbers" if numbers(own) == expected else f"finding: other numbers, silently: {kind}"
            finally:
                shutil.rmtree(own)

        yield f"{kind} in a checkpoint in parts, seed {seed}", trial


def folders(folder: Path, rng: random.Random) -> Iterator[Trial]:
    """All of this, in random order, the parts without end."""
    if in_a_process(lambda: str(dat(*training(folder / "runs")).status)) != "0":
        raise RuntimeError("the undisturbed run failed")
    make_unfinished(folder)
    finished, stopped = folder / "runs" / "run", folder / "stopped" / "run"
    trials = [*read_only(folder, finished, rng), *links(folder, {"finished": finished, "stopped": stopped}, rng)]
    endless = parts(folder, make_parts(folder / "parts"), rng)
    rng.shuffle(trials)
    for trial in trials:
        yield trial
        yield next(endless)
    yield from endless
