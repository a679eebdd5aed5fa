"""The command: options, the run of all suites, conclusions and exit status."""

import argparse
import datetime
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.cases import Case, Request
from benchmarks.comparing import TOLERANCES, Bench
from benchmarks.machine import device_name, git_state, hardware, versions
from benchmarks.measuring import RateMeter
from benchmarks.output import Output
from benchmarks.report import plain, setting, spreads
from benchmarks.results import Row
from benchmarks.sides import Worker, WorkerError
from benchmarks.suites import SUITES
from benchmarks.work import Settings

RESULTS = Path(__file__).resolve().parent / "results"
QUICK_REPEATS = 2


class Parser(argparse.ArgumentParser):
    """A parser that reports a mistake in one line."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"{self.prog}: error: {message}\n")


def positive(text: str) -> int:
    """A positive integer."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    return int(text)


def lengths(text: str) -> tuple[int, ...]:
    """Positive integers separated by commas."""
    return tuple(sorted({positive(part.strip()) for part in text.split(",")}))


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise argparse.ArgumentTypeError("expected names separated by commas, got none")
    return found


def interpreter(text: str) -> str:
    """The path of a Python; not resolved, since a link tells the environment."""
    found = shutil.which(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"expected a Python interpreter, got {text!r}")
    return os.path.abspath(found)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line, ``--suite`` as ``suites``; a mistake ends the process with status 2 and one line."""
    about = "\n".join(f"  {suite.name:12}{suite.about}" for suite in SUITES.values())
    parser = Parser(
        prog="benchmarks/run.py",
        description="Compare this library with the published package, a plain Transformer and its readable reference.",
        epilog=f"suites:\n{about}\n\nsides: ours, published, reference, plain, llama and others; see README.md",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--suite", type=names, metavar="NAME,...", help="suites to run; all by default")
    add("--lengths", type=lengths, default=(), metavar="N,...", help="sequence lengths, for suites that have a choice")
    add("--repeats", type=positive, metavar="N", help="samples of each side (5; at least 5 for a median to publish)")
    add("--device", default="cpu", choices=("cpu", "cuda"), help="cpu by default")
    add("--dtype", default="float32", choices=tuple(TOLERANCES), help="of parameters and inputs; float32 by default")
    add("--threads", type=positive, metavar="N", help="of the CPU in each process; by default all cores")
    add(
        "--published",
        type=interpreter,
        metavar="PYTHON",
        help="interpreter of an environment with dual-attention==0.0.7",
    )
    add("--sides", type=names, metavar="NAME,...", help="sides to run beside ours; all by default")
    add("--out", type=Path, default=RESULTS, metavar="DIR", help="folder for results; benchmarks/results by default")
    add("--quick", action="store_true", help="small sizes and two samples: a trial of the benchmark, not a measurement")
    add("--native", action="store_true", help="a side ours+native as well: this library with its C kernels enabled")
    given = parser.parse_args(arguments)

    unknown = [name for name in given.suite or () if name not in SUITES]
    if unknown:
        parser.error(f"argument --suite: expected some of {', '.join(SUITES)}, got {', '.join(unknown)}")
    given.suites = tuple(suite for suite in SUITES.values() if given.suite is None or suite.name in given.suite)
    if given.lengths and not any(suite.lengths for suite in given.suites):
        fixed = ", ".join(suite.name for suite in given.suites)
        parser.error(f"argument --lengths: those of {fixed} are fixed by its tasks")
    if given.native and given.device != "cpu":
        parser.error("argument --native: the C kernels compute on a CPU")
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("argument --device: no CUDA device is available to torch")
    if given.out.exists() and not given.out.is_dir():
        parser.error(f"argument --out: expected a folder, got the file {given.out}")
    given.repeats = given.repeats or (QUICK_REPEATS if given.quick else 5)
    given.threads = given.threads or torch.get_num_threads()
    known = {side.name for case in wanted(given) for side in case.sides} if given.sides else set()
    unknown = [name for name in given.sides or () if name not in known]
    if unknown:
        parser.error(f"argument --sides: expected some of {', '.join(sorted(known))}, got {', '.join(unknown)}")
    return given


DISAGREEMENT = 1
BAD_INPUT = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 if all sides agree, 1 if some do not or one failed, 2 for bad input."""
    options = parse(arguments)
    settings = Settings(options.device, options.dtype, options.threads)
    published = None
    if options.published is not None:
        try:
            with Worker(options.published) as worker:
                published = worker.versions
        except WorkerError as error:
            print(f"benchmarks/run.py: error: argument --published: {error}", file=sys.stderr)
            return BAD_INPUT
    meter = RateMeter(settings, quick=options.quick)
    about = describe(options, settings, published)
    about["rates"] = asdict(meter.best)
    print("\n".join(setting(about)) + "\n", flush=True)
    try:
        output = Output(options.out, stem(options, settings, about["date"]))
    except OSError as error:
        print(f"benchmarks/run.py: error: argument --out: {error}", file=sys.stderr)
        return BAD_INPUT
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(
            settings,
            Path(folder),
            repeats=options.repeats,
            sample_seconds=0.0 if options.quick else 0.2,
            published=options.published,
            only=None if options.sides is None else frozenset(options.sides),
            report=lambda line: print(f"... {line}", file=sys.stderr, flush=True),
        )
        rows: list[Row] = []
        try:
            for row in measure(options, bench, meter):
                rows.append(row)
                about["rates"] = asdict(meter.best)
                for done in rows:
                    done.set_floors(meter.best)
                print(plain(row), flush=True)
                output.save(about, rows)
        except KeyboardInterrupt:
            about["unfinished"] = "interrupted"
        finally:
            bench.close()
    conclusions = conclude(rows) + spreads(rows, output.other_runs(about))
    print("\n".join(conclusions))
    for path in output.finish(about, rows, conclusions):
        print(f"written: {path}")
    if about["unfinished"]:
        return INTERRUPTED
    return DISAGREEMENT if complaints(rows) else 0


def measure(options: argparse.Namespace, bench: Bench, meter: RateMeter) -> Iterator[Row]:
    """Run all of them."""
    for case in wanted(options):
        meter.measure()
        yield from bench.run(case)


def wanted(options: argparse.Namespace) -> Iterator[Case]:
    """Every case of every suite that was asked for."""
    for suite in options.suites:
        usual = suite.quick_lengths if options.quick else suite.lengths
        request = Request((options.lengths or usual) if suite.lengths else (), options.quick, options.device)
        for case in suite.cases(request):
            yield case.with_kernels() if options.native else case


def conclude(rows: Sequence[Row]) -> list[str]:
    """Conclusions of the suites, then warnings and complaints."""
    lines: list[str] = []
    for name, suite in SUITES.items():
        mine = [row for row in rows if row.suite == name]
        lines += suite.conclude(mine) if mine else []
    return lines + warnings(rows) + complaints(rows)


def warnings(rows: Sequence[Row]) -> list[str]:
    """Sides faster than their floor, which is then too high."""
    return [
        f"WARNING: {row.suite}, {row.label}, n = {row.length}, {row.quantity}: {side.name} took less than its floor: "
        "the machine was busy whenever its rates were measured"
        for row in rows
        for side in row.sides
        if side.summary and side.floor_arithmetic and side.summary.minimum < side.floor_arithmetic
    ]


def complaints(rows: Sequence[Row]) -> list[str]:
    """Sides that disagree or failed."""
    lines = []
    for row in rows:
        place = f"{row.suite}, {row.label}, n = {row.length}, {row.quantity}"
        lines += [
            f"DISAGREEMENT: {place}: {side.name} differs from {side.yardstick} by {side.difference:.1e} "
            f"in {side.where}, more than {row.tolerance:.0e}"
            for side in row.disagreements
        ]
        lines += [f"FAILED: {place}: {side.name}: {side.note}" for side in row.sides if side.status == "failed"]
    return lines


def stem(options: argparse.Namespace, settings: Settings, date: str) -> str:
    """Name of the files: date, device, and the suites unless all were run."""
    parts = [date[:10], device_name(settings)]
    if len(options.suites) < len(SUITES):
        parts += [suite.name for suite in options.suites]
    return "-".join(parts)


def describe(options: argparse.Namespace, settings: Settings, published: dict[str, str] | None) -> dict[str, Any]:
    """Everything that the results depend on, except the rates."""
    return {
        "schema": 1,
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "suites": [suite.name for suite in options.suites],
        "settings": asdict(settings),
        "repeats": options.repeats,
        "quick": options.quick,
        "hardware": hardware(settings),
        "versions": versions(),
        "published": published,
        "git": git_state(),
        "unfinished": "",
    }
