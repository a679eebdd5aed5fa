"""Training in several processes that is killed at random moments and goes on in other numbers of processes.

Two kinds of runs. In one, the number of processes is drawn anew at each start: losses of all steps are compared with
those of a run in one process that nothing happened to. In the other it stays, and weights and metrics are compared to
the bit. In both, every process notes the examples that it takes.
"""

import json
import os
import random
import shutil
import signal
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dat.training.loop import Trainer
from tests.support.processes import Ended, dat_together

from .kills import numbers, training
from .trials import Tally, import_once, shortened

BATCH = 8
"""Examples of a step."""
SIZES = (1, 2, 4)
"""Numbers of processes."""
CHANGES: dict[str, object] = {
    "loop.steps": 24,
    "loop.batch_size": BATCH,
    "loop.micro_batch_size": 2,
    "loop.report_every": 1,
    "loop.eval_every": 8,
    "loop.checkpoint_every": 3,
    "model.dropout_rate": 0.0,
    "data.order": "permuted",
}
WAYS = ("kill -9 of one", "kill -9 of all", "SIGTERM to one", "SIGTERM to all")
CLOSE = 1e-6
"""Largest difference of a loss, relative to it."""
TAKEN = "TAKEN_EXAMPLES"
"""Variable of the environment with the file in which processes note their examples."""
AGENT_WAITS, GIVEN_UP = 20, 60
"""Seconds after a death until the others get SIGTERM, as from torchrun, and until it is a finding if they live."""


@dataclass
class Figures:
    """What the trials measured.

    Attributes:
        deaths: how many there were of each way.
        seconds: from each death to the end of the last process.
        difference: the largest relative one of a loss.
        records: notes of examples that were compared.
        starts: how many times training was started in each number of processes.
        signalled: deaths after which some process waited for the dead until it got SIGTERM itself.
    """

    deaths: dict[str, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    difference: float = 0.0
    records: int = 0
    starts: dict[int, int] = field(default_factory=dict)
    signalled: int = 0


@contextmanager
def noted_examples() -> Iterator[None]:
    """Context in which each process of a training notes step, rank, size, and index and checksum of its examples."""
    kind: Any = Trainer
    add_gradients = kind._add_gradients

    def noting(trainer: Trainer, indices: Any) -> Any:
        train: Any = trainer.problem.train
        taken: list[tuple[int, int]] = []

        def batch(asked: Any) -> Any:
            tokens, targets = type(train).batch(train, asked)
            rows = zip(asked.tolist(), tokens, targets, strict=True)
            taken.extend((i, zlib.crc32(t.numpy().tobytes() + u.numpy().tobytes())) for i, t, u in rows)
            return tokens, targets

        train.batch = batch
        passes = add_gradients(trainer, indices)
        workers = trainer.workers
        with open(os.environ[TAKEN], "ab", buffering=0) as file:
            file.write(json.dumps([trainer.step, workers.rank, workers.size, taken]).encode() + b"\n")
        return passes

    kind._add_gradients = noting
    try:
        yield
    finally:
        kind._add_gradients = add_gradients


class Cluster:
    """Runs in ``folder``, their deaths, and what they are compared with.

    Args:
        folder: an empty one.
        rng: of all that is drawn.
    """

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng, self.figures = folder, rng, Figures()
        self._whole: dict[tuple[int, str], tuple[Path, float]] = {}

    def words(self, folder: Path, parallel: str, dropout: float) -> list[str]:
        """The command after a death: the same one if no run was made yet, else ``--resume``."""
        if (folder / "run" / "config.yaml").exists():
            return ["train", "language", "--resume", str(folder / "run")]
        return training(folder, **{**CHANGES, "machine.parallel": parallel, "model.dropout_rate": dropout})

    def start(self, folder: Path, size: int, command: list[str], meanwhile: Callable[[list[Any]], None]) -> list[Ended]:
        """Run a command in so many processes, as torchrun would."""
        self.figures.starts[size] = self.figures.starts.get(size, 0) + 1
        environment = {TAKEN: str(folder / "taken.jsonl")}
        return dat_together(*[command] * size, folder=self.folder, meanwhile=meanwhile, environment=environment)

    def whole(self, size: int, parallel: str, dropout: float) -> tuple[Path, float]:
        """A run that nothing happened to, and its seconds."""
        key = (size, f"{parallel} {dropout}")
        if key not in self._whole:
            folder = self.folder / f"whole-{size}-{parallel}-{dropout}"
            folder.mkdir()
            began = time.monotonic()
            ended = self.start(folder, size, self.words(folder, parallel, dropout), lambda _: None)
            if any(process.status for process in ended):
                raise RuntimeError(f"the uninterrupted run failed: {ended}")
            self._whole[key] = folder, time.monotonic() - began
        return self._whole[key]

    def run(self, *, fixed: bool, most: int) -> str | None:
        """One run with up to ``most`` deaths, to its end; a finding or None."""
        rng, parallel = self.rng, self.rng.choice(("replicate", "shard"))
        size, dropout = rng.choice(SIZES), 0.1 if fixed else 0.0
        folder = self.folder / "killed"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for _ in range(most):
            if (folder / "run" / "result.json").exists():
                break
            size = size if fixed else rng.choice(SIZES)
            seconds = self.whole(size, parallel, dropout)[1]
            found = self.killed(folder, size, self.words(folder, parallel, dropout), rng.uniform(0, seconds))
            if found is not None:
                return found
        if not (folder / "run" / "result.json").exists():
            size = size if fixed else rng.choice(SIZES)
            ended = self.start(folder, size, self.words(folder, parallel, dropout), lambda _: None)
            if any(process.status for process in ended):
                return f"finding: not resumed: {said(ended)}"
        compared_with = self.whole(size if fixed else 1, parallel, dropout)[0]
        return self.other_examples(folder) or (
            to_the_bit(folder, compared_with) if fixed else self.other_losses(folder, compared_with)
        )

    def killed(self, folder: Path, size: int, command: list[str], after: float) -> str | None:
        """Train, with a death after so many seconds; a finding or None."""
        way, victim = self.rng.choice(WAYS), self.rng.randrange(size)
        kind = signal.SIGKILL if "-9" in way else signal.SIGTERM
        moment: list[float] = []

        def kill(processes: list[Any]) -> None:
            until = time.monotonic() + after
            while any(process.is_alive() for process in processes) and time.monotonic() < until:
                time.sleep(0.002)
            alive = [process for process in processes if process.is_alive()]
            if not alive:
                return
            moment.append(time.monotonic())
            for process in alive if way.endswith("all") else [alive[victim % len(alive)]]:
                os.kill(process.pid, kind)
            self._as_torchrun_does(processes)

        ended = self.start(folder, size, command, kill)
        if not moment:
            return None if not any(process.status for process in ended) else f"finding: failed: {said(ended)}"
        self.figures.deaths[way] = self.figures.deaths.get(way, 0) + 1
        self.figures.seconds.append(time.monotonic() - moment[0])
        return how_it_ended(ended, kind)

    def _as_torchrun_does(self, processes: list[Any]) -> None:
        """Wait until all have ended; those that wait for a dead one get SIGTERM."""
        began = time.monotonic()
        signalled = False
        while any(process.is_alive() for process in processes) and time.monotonic() < began + GIVEN_UP:
            if not signalled and time.monotonic() > began + AGENT_WAITS:
                signalled = True
                self.figures.signalled += 1
                for process in processes:
                    if process.is_alive():
                        os.kill(process.pid, signal.SIGTERM)
            time.sleep(0.01)
        for process in processes:
            if process.is_alive():
                os.kill(process.pid, signal.SIGABRT)  # of which `how_it_ended` makes a finding

    def other_examples(self, folder: Path) -> str | None:
        """Compare the notes of all processes with those of the run in one process; a finding or None."""
        expected = {step: taken for step, _, _, taken in notes(self.whole(1, "replicate", 0.0)[0])}
        complete: dict[int, set[tuple[int, int]]] = {step: set() for step in expected}
        for step, rank, size, taken in notes(folder):
            self.figures.records += 1
            share = BATCH // size
            if taken != expected[step][rank * share : (rank + 1) * share]:
                return f"finding: other examples in process {rank} of {size}"
            complete[step].add((rank, size))
        lost = [step for step, by in complete.items() if not any({(r, n) for r in range(n)} <= by for n in SIZES)]
        return f"finding: steps without all of their examples: {len(lost)}" if lost else None

    def other_losses(self, folder: Path, whole: Path) -> str | None:
        """Compare losses of all steps; a finding or None."""
        found, expected = (losses(place) for place in (folder, whole))
        if found.keys() != expected.keys():
            return "finding: other rows of metrics"
        difference = max(abs(found[key] - expected[key]) / abs(expected[key]) for key in expected)
        self.figures.difference = max(self.figures.difference, difference)
        return None if difference <= CLOSE else f"finding: losses that differ by {difference:.1e}"


def notes(folder: Path) -> Iterator[tuple[int, int, int, list[list[int]]]]:
    """Step, rank, size and examples of each note; one that a kill cut short is left out."""
    for line in (folder / "taken.jsonl").read_text().splitlines():
        if line.endswith("]]]") and line.startswith("["):
            yield tuple(json.loads(line))


def losses(folder: Path) -> dict[tuple[int, str], float]:
    """All losses of a run by step and name."""
    rows = [json.loads(row) for row in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    return {(row["step"], name): row[name] for row in rows for name in ("train_loss", "val_loss") if name in row}


def to_the_bit(folder: Path, whole: Path) -> str | None:
    """Compare weights, metrics and result; a finding or None."""
    pairs = zip(("weights", "metrics", "result"), numbers(folder / "run"), numbers(whole / "run"), strict=True)
    wrong = [name for name, found, expected in pairs if found != expected]
    return f"finding: other {' and '.join(wrong)} at the same number of processes" if wrong else None


def said(ended: list[Ended]) -> str:
    """What failed processes printed, in short; in full on the screen."""
    print("\n".join(f"-- status {process.status}\n{process.out}{process.err}" for process in ended), flush=True)
    return " / ".join(f"{process.status} {shortened(process.err)}" for process in ended)


def how_it_ended(ended: list[Ended], kind: signal.Signals) -> str | None:
    """Compare statuses and words of processes with what is promised after a signal; a finding or None."""
    allowed = {0, 2, 75, -signal.SIGTERM, -kind}
    if {process.status for process in ended} - allowed:
        return f"finding: a process ended with another status: {said(ended)}"
    lines = [line for process in ended for line in process.err.splitlines()]
    if any("Traceback" in line for line in lines):
        return f"finding: traceback: {said(ended)}"
    words = [line for line in lines if line.startswith("dat: ")]
    lost = all("another process of the" in line for line in words if line.startswith("dat: error"))
    return None if len(words) <= 1 and lost else f"finding: more than one line, or another one: {said(ended)}"


def try_workers(folder: Path, kills: int, rng: random.Random) -> tuple[dict[str, Tally], Figures]:
    """Run until there were so many deaths, four fifths of them in runs of changing size, the others in runs of one."""
    import_once()
    cluster = Cluster(folder, rng)
    tallies = {}
    with noted_examples():
        of_one = kills // 5
        for name, fixed, target in (("another number", False, kills - of_one), ("the same number", True, of_one)):
            tally = tallies[name] = Tally()
            before = sum(cluster.figures.deaths.values())
            while (left := target + before - sum(cluster.figures.deaths.values())) > 0:
                seed = rng.randrange(2**32)
                cluster.rng = random.Random(seed)
                outcome = cluster.run(fixed=fixed, most=min(left, 8))
                tally.add(f"seed {seed}", outcome)
                if outcome is not None:
                    print(f"seed {seed}: {outcome}", flush=True)
            tally.counts["kills"] = sum(cluster.figures.deaths.values()) - before
    return tallies, cluster.figures
