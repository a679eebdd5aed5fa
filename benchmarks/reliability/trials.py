"""Trials in processes of their own: what a trial does to its process is a result, too."""

import contextlib
import importlib
import io
import multiprocessing
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from dat.cli.main import main

LONGEST = 60
"""Seconds after which a trial counts as one that does not end."""

USED = (
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "dat.training.sharded_checkpoint",
    "dat.experiments.language.experiment",
    "dat.cli.generate",
    "dat.cli.info",
    "dat.cli.evaluate",
    "dat.cli.estimate",
    "matplotlib.pyplot",
)
"""What commands import, when they need it."""

Outcome = str | None | list[tuple[str, str | None]]
"""A class of outcome, ``"finding: ..."`` for one that breaks a promise; of a batch, pairs of name and outcome."""
Trial = tuple[str, Callable[[], Outcome]]
"""What is tried, and the trial."""


def import_once() -> None:
    """Import what commands use, for all processes that are forked."""
    for name in USED:
        importlib.import_module(name)


@dataclass
class Tally:
    """Counts of one part."""

    counts: dict[str, int] = field(default_factory=dict)
    findings: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, outcome: str | None) -> None:
        """Count an outcome; findings are collected by what happened."""
        kind, _, text = (outcome or "as promised").partition(": ")
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if kind == "finding":
            self.findings.setdefault(text, []).append(name)

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True)
class Called:
    """Of a call of ``dat``: the status, both outputs, and the exception that got out of it."""

    status: int
    out: str
    err: str
    escaped: str = ""


def dat(*words: str) -> Called:
    """Call ``dat`` in this process."""
    out, err, escaped = io.StringIO(), io.StringIO(), ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(words)
        except SystemExit as exit:
            status = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
        except BaseException as error:
            status, escaped = 1, type(error).__name__
    return Called(status, out.getvalue(), err.getvalue(), escaped)


def broken(called: Called, names: tuple[str, ...]) -> str | None:
    """What is wrong with a call that failed: no clear line that has one of ``names``."""
    if called.escaped or "Traceback (most" in called.err:
        return f"finding: traceback ({called.escaped or 'printed'})"
    if "DAT_DEBUG=1 shows where" in called.err:
        return f"finding: raw error: {shortened(called.err)}"
    if called.status and not any(name in called.err for name in names):
        return f"finding: the error does not name what is wrong: {shortened(called.err)}"
    return None


def shortened(text: str) -> str:
    """The last line of ``text``, without places and numbers, so that equal findings are counted together."""
    line = (text.strip().splitlines() or ["(nothing)"])[-1].replace("dat: error: ", "")
    line = re.sub(r"(/[\w.-]+){3,}", "PATH", line)
    return re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "N", line)[:160].replace("|", "/")


def run_trials(trials: Iterator[Trial], tally: Tally, seconds: float) -> None:
    """Run each trial in a forked process, until the time is over or none is left."""
    end = time.monotonic() + seconds
    for name, trial in trials:
        outcome = in_a_process(trial)
        for each in outcome if isinstance(outcome, list) else [(name, outcome)]:
            tally.add(*each)
        if time.monotonic() > end:
            return


def in_a_process(trial: Callable[[], Outcome]) -> Outcome:
    """The outcome of a trial, or how its process died."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(trial, theirs))
    process.start()
    theirs.close()
    outcome = "finding: did not end"
    if ours.poll(LONGEST):
        try:
            outcome = ours.recv()
        except EOFError:
            process.join()
            outcome = f"finding: its process died ({_death(process.exitcode)})"
    process.kill()
    process.join()
    ours.close()
    return outcome


def _death(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit {code}"


def _send(trial: Callable[[], Outcome], pipe) -> None:
    pipe.send(trial())
