"""The whole run, from the command line to the files with results."""

from __future__ import annotations

import datetime
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.cases import Request
from benchmarks.comparing import Bench
from benchmarks.machine import device_name, git_state, hardware, versions
from benchmarks.options import Options, parse
from benchmarks.output import Output
from benchmarks.rates import RateMeter
from benchmarks.report import setting, show
from benchmarks.results import Row
from benchmarks.sides import Worker, WorkerError
from benchmarks.suites import SUITES
from benchmarks.work import Settings

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
            only=options.sides,
            say=lambda line: print(f"... {line}", file=sys.stderr, flush=True),
        )
        rows: list[Row] = []
        try:
            for row in measure(options, bench, meter):
                rows.append(row)
                about["rates"] = asdict(meter.best)
                for done in rows:
                    done.set_floors(meter.best)
                show(row)
                output.save(about, rows)
        except KeyboardInterrupt:
            about["unfinished"] = "interrupted"
        finally:
            bench.close()
    conclusions = conclude(rows)
    print("\n".join(conclusions))
    for path in output.finish(about, rows, conclusions):
        print(f"written: {path}")
    if about["unfinished"]:
        return INTERRUPTED
    return DISAGREEMENT if complaints(rows) else 0


def measure(options: Options, bench: Bench, meter: RateMeter) -> Iterator[Row]:
    """Run every case of every suite that was asked for."""
    for suite in options.suites:
        usual = suite.quick_lengths if options.quick else suite.lengths
        request = Request((options.lengths or usual) if suite.lengths else (), options.quick, options.device)
        for case in suite.cases(request):
            meter.measure()
            yield from bench.run(case)


def conclude(rows: Sequence[Row]) -> list[str]:
    """What the suites conclude, and what went wrong."""
    lines: list[str] = []
    for name, suite in SUITES.items():
        mine = [row for row in rows if row.suite == name]
        lines += suite.conclude(mine) if mine else []
    return lines + warnings(rows) + complaints(rows)


def warnings(rows: Sequence[Row]) -> list[str]:
    """Sides that were faster than the floor, which is then not one."""
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


def stem(options: Options, settings: Settings, date: str) -> str:
    """Name of the files: date, device, and the suites unless all were run."""
    parts = [date[:10], device_name(settings)]
    if len(options.suites) < len(SUITES):
        parts += [suite.name for suite in options.suites]
    return "-".join(parts)


def describe(options: Options, settings: Settings, published: dict[str, str] | None) -> dict[str, Any]:
    """All that the results depend on, but the rates."""
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
