"""Training that is killed at random moments and resumed, compared with training that is not."""

import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from dat.training.metrics import OF_THE_MACHINE

from .trials import Tally, Trial, dat, in_a_process

TEXT = "".join(f"{i} times {i} is {i * i}. Ünïcödé is text, too.\n" for i in range(80))
SIZES = {
    "data.path": "text.txt",
    "data.val_tokens": 160,
    "model.context": 16,
    "model.d_model": 16,
    "model.n_layers": 1,
    "model.n_heads_sa": 1,
    "model.n_heads_ra": 1,
    "model.dff": 16,
    "model.n_relations": 2,
    "model.n_symbols": 4,
    "model.symbol_heads": 2,
    "model.dropout_rate": 0.1,
    "optim.warmup_steps": 2,
    "loop.steps": 30,
    "loop.batch_size": 6,
    "loop.micro_batch_size": 4,
    "loop.eval_batch_size": 4,
    "loop.report_every": 2,
    "loop.eval_every": 3,
    "loop.checkpoint_every": 5,
    "machine.device": "cpu",
    "machine.threads": 1,
    "output.tensorboard": "false",
    "output.progress": "false",
}
"""A run of a fraction of a second, with dropout and micro-batches."""


def training(folder: Path, **changes: object) -> list[str]:
    """The command that trains in ``folder/run``."""
    keys = {**SIZES, "output.folder": folder, "output.name": "run", **changes}
    return ["train", "language", *(f"--{key}={value}" for key, value in keys.items())]


def numbers(run: Path) -> tuple[bytes, list, dict]:
    """Weights, metrics and result of a run, without what depends on the clock."""
    rows = [json.loads(row) for row in (run / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((run / "result.json").read_text())
    timeless = [{key: row[key] for key in row if key not in OF_THE_MACHINE} for row in (*rows, result)]
    return (run / "model.safetensors").read_bytes(), timeless[:-1], timeless[-1]


def kills(folder: Path, rng: random.Random, tally: Tally) -> Iterator[Trial]:
    """Runs that are killed up to four times; every kill is counted in ``tally``."""
    start = time.monotonic()
    whole = folder / "whole"
    if in_a_process(lambda: str(dat(*training(whole)).status)) != "0":
        raise RuntimeError("the uninterrupted run failed")
    seconds, expected = time.monotonic() - start, numbers(whole / "run")
    while True:
        seed = rng.randrange(2**32)
        killed = folder / "killed"
        shutil.rmtree(killed, ignore_errors=True)
        moments = random.Random(seed)
        n = sum(killed_once(killed, moments.uniform(0.01, seconds)) for _ in range(moments.randint(1, 4)))
        tally.counts["kills"] = tally.counts.get("kills", 0) + n
        yield f"run killed {n} times, seed {seed}", lambda killed=killed: compared(killed, expected)


def command(folder: Path) -> list[str]:
    """The command a user gives after a kill: the same one if no run was made yet, else ``--resume``."""
    run = folder / "run"
    return ["train", "language", "--resume", str(run)] if (run / "config.yaml").exists() else training(folder)


def killed_once(folder: Path, seconds: float) -> bool:
    """Train or resume, with a ``kill -9`` after so many seconds; whether it came before the end."""
    process = multiprocessing.get_context("fork").Process(target=dat, args=command(folder))
    process.start()
    process.join(seconds)
    if process.is_alive() and process.pid:
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    return process.exitcode == -signal.SIGKILL


def compared(folder: Path, expected: tuple) -> str | None:
    """Finish the run, and compare."""
    if not (folder / "run" / "result.json").exists():
        called = dat(*command(folder))
        if called.status or called.escaped:
            return f"finding: not resumed: {called.escaped} {called.err[-150:]}"
    found = numbers(folder / "run")
    wrong = [n for n, a, b in zip(("weights", "metrics", "result"), found, expected, strict=True) if a != b]
    return f"finding: other {' and '.join(wrong)} than without kills" if wrong else None
