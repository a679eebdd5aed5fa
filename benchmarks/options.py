"""The command line."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.agreement import TOLERANCES
from benchmarks.cases import Suite
from benchmarks.suites import SUITES

RESULTS = Path(__file__).resolve().parent / "results"
QUICK_REPEATS = 2


@dataclass(frozen=True)
class Options:
    """What was asked for, checked; ``sides`` None for all."""

    suites: tuple[Suite, ...]
    lengths: tuple[int, ...]
    repeats: int
    device: str
    dtype: str
    threads: int
    published: Path | None
    sides: frozenset[str] | None
    out: Path
    quick: bool


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"{self.prog}: error: {message}\n")


def positive(text: str) -> int:
    """A positive integer."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    return int(text)


def lengths(text: str) -> tuple[int, ...]:
    """Positive integers with commas between."""
    return tuple(sorted({positive(part.strip()) for part in text.split(",")}))


def names(text: str) -> tuple[str, ...]:
    """Names with commas between."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise argparse.ArgumentTypeError("expected names with commas between, got none")
    return found


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line; a mistake ends the process with status 2 and one line."""
    about = "\n".join(f"  {suite.name:12}{suite.about}" for suite in SUITES.values())
    parser = Parser(
        prog="benchmarks/run.py",
        description="Compare this library with the published package, a plain Transformer and its readable reference.",
        epilog=f"suites:\n{about}\n\nsides: ours, published, reference, plain, llama and others; see README.md",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--suite", type=names, metavar="NAME,...", help="suites to run; all by default")
    add("--lengths", type=lengths, metavar="N,...", help="sequence lengths, for suites that have a choice")
    add("--repeats", type=positive, metavar="N", help="samples of each side (5; at least 5 for a median to publish)")
    add("--device", default="cpu", choices=("cpu", "cuda"), help="cpu by default")
    add("--dtype", default="float32", choices=tuple(TOLERANCES), help="of parameters and inputs; float32 by default")
    add("--threads", type=positive, metavar="N", help="of the CPU in each process; by default all cores")
    add("--published", metavar="PYTHON", help="interpreter of an environment with dual-attention==0.0.7")
    add("--sides", type=names, metavar="NAME,...", help="sides to run beside ours; all by default")
    add("--out", type=Path, default=RESULTS, metavar="DIR", help="folder for results; benchmarks/results by default")
    add("--quick", action="store_true", help="small sizes and two samples: a trial of the benchmark, not a measurement")
    given = parser.parse_args(arguments)

    unknown = [name for name in given.suite or () if name not in SUITES]
    if unknown:
        parser.error(f"argument --suite: expected some of {', '.join(SUITES)}, got {', '.join(unknown)}")
    suites = tuple(suite for suite in SUITES.values() if given.suite is None or suite.name in given.suite)
    if given.lengths and not any(suite.lengths for suite in suites):
        parser.error(f"argument --lengths: those of {', '.join(suite.name for suite in suites)} are fixed by its tasks")
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("argument --device: no CUDA device is available to torch")
    published = None
    if given.published is not None:
        found = shutil.which(given.published)
        if found is None:
            parser.error(f"argument --published: expected a Python interpreter, got {given.published!r}")
        published = Path(os.path.abspath(found or ""))  # not resolved: a link tells the environment
    if given.out.exists() and not given.out.is_dir():
        parser.error(f"argument --out: expected a folder, got the file {given.out}")
    return Options(
        suites=suites,
        lengths=given.lengths or (),
        repeats=given.repeats or (QUICK_REPEATS if given.quick else 5),
        device=given.device,
        dtype=given.dtype,
        threads=given.threads or torch.get_num_threads(),
        published=published,
        sides=None if given.sides is None else frozenset(given.sides),
        out=given.out,
        quick=given.quick,
    )
