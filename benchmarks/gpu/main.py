"""The command: options, the steps in order, each within its minutes, and a report of what is there."""

import argparse
import datetime
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.plan import DAY, Setting, Step, step_named
from benchmarks.gpu.record import Record
from benchmarks.gpu.running import ROOT, Run, told
from benchmarks.machine import device_name, git_state, hardware, versions
from benchmarks.main import BAD_INPUT, DISAGREEMENT, INTERRUPTED, Parser, names
from dual_attention._base.files import write_atomically

UNFINISHED = 3


def minutes(text: str) -> float:
    """A positive number."""
    if not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text!r}")
    return float(text)


def checkout(text: str) -> str:
    """The folder of a checkout of this repository."""
    folder = Path(text).resolve()
    if not (folder / "dual_attention" / "__init__.py").is_file():
        raise argparse.ArgumentTypeError(f"expected a checkout with dual_attention/, got {text!r}")
    return str(folder)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; a mistake ends the process with status 2 and one line."""
    steps = [step_named(name) for name in DAY]
    about = "\n".join(f"  {step.name:10}{step.minutes:3g} min  {step.about}" for step in steps)
    parser = Parser(
        prog="benchmarks/gpu_day.py",
        description="Check and measure this library on a GPU, in steps of some minutes each. The same command again "
        "goes on where it was ended.",
        epilog=f"steps:\n{about}\n\nexit status: 0 done; 1 something is wrong or failed; 2 bad input; 3 minutes were "
        "over: the same command goes on",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--steps", type=names, default=DAY, metavar="NAME,...", help="steps to do, in the order below; by default all")
    add("--minutes", type=minutes, metavar="N", help="for all steps together, shared out in the proportions below")
    add("--out", type=Path, metavar="DIR", help="folder of results; benchmarks/results/gpu-day-<gpu> by default")
    add(
        "--against",
        type=checkout,
        metavar="DIR",
        help="another checkout, whose training step is timed beside this one's",
    )
    add("--device", default="cuda", choices=("cuda", "cpu"), help="cuda by default; cpu for a dry run only")
    add("--dry-run", action="store_true", help="everything in tiny sizes: a trial of the command, not a measurement")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.steps if name not in DAY]
    if unknown:
        parser.error(f"argument --steps: expected some of {', '.join(DAY)}, got {', '.join(unknown)}")
    if given.device == "cpu" and not given.dry_run:
        parser.error("argument --device: cpu is for --dry-run only; benchmarks/run.py measures on a CPU")
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA device is available to torch (--device cpu --dry-run tries the command without one)")
    given.steps = [step for step in steps if step.name in given.steps]
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the steps; see the command's help for the exit status."""
    given = parse(arguments)
    setting = Setting(given.device, given.dry_run, torch.get_num_threads(), given.against)
    about = describe(setting)
    name = about["device"]
    folder = given.out or ROOT / (
        f"runs/gpu-day-{name}-dry-run" if given.dry_run else f"benchmarks/results/gpu-day-{name}"
    )
    print(title(about), flush=True)
    share = 1.0 if given.minutes is None else given.minutes / sum(step.minutes for step in given.steps)
    records: list[tuple[Step, Record]] = []
    left = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for step in map(step_named, DAY):  # with those done before, for the report
            path = folder / f"{step.name}.json"
            if step in given.steps or path.exists():
                records.append((step, Record(path, {**about, "step": step.name})))
        for step, record in [one for one in records if one[0] in given.steps]:
            print(f"\n== {step.name}: {step.about}, at most {share * step.minutes:.3g} min", flush=True)
            run = Run(step, setting, record, 60 * share * step.minutes, lambda line: print(line, flush=True))
            missing = run()
            left += missing
            for line in step.conclude(record.items):
                print(f"-> {line}", flush=True)
            if missing:
                print(f"-> {missing} not measured yet: the same command goes on", flush=True)
            write_report(folder, records)
            if step.name == "right" and any(result.get("agrees") is False for result in record.items.values()):
                print("-> wrong results are not timed: the day ends here", flush=True)
                break
    except KeyboardInterrupt:
        write_report(folder, records)
        return INTERRUPTED
    except (OSError, ValueError) as error:
        print(f"benchmarks/gpu_day.py: error: {' '.join(str(error).split())}", file=sys.stderr)
        return BAD_INPUT
    print(f"\nwritten: {folder}")
    if any(wrong(result) for _, record in records for result in record.items.values()):
        return DISAGREEMENT
    return UNFINISHED if left else 0


def wrong(result: dict[str, Any]) -> bool:
    return result["status"] == "failed" or result.get("agrees") is False


def describe(setting: Setting) -> dict[str, Any]:
    """All that results depend on."""
    machine = hardware(setting.settings)
    if setting.device == "cuda":
        gpu = torch.cuda.get_device_properties(0)
        machine["gpu"] |= {
            "capability": f"{gpu.major}.{gpu.minor}",
            "multiprocessors": gpu.multi_processor_count,
            "driver": driver(),
            "cudnn": torch.backends.cudnn.version(),
        }
    return {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "device": device_name(setting.settings),
        "dry_run": setting.dry_run,
        "versions": versions(),
        "machine": machine,
        "git": git_state(),
    }


def driver() -> str | None:
    """Version of NVIDIA's driver, where its tool is there to tell."""
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


def title(about: dict[str, Any]) -> str:
    """The machine and the versions in a line."""
    machine, git = about["machine"], about["git"]
    gpu = machine.get("gpu")
    named = machine["cpu"]
    if gpu:
        named = f"{gpu['name']}, CUDA {gpu['cuda']}, driver {gpu['driver']}, cuDNN {gpu['cudnn']}"
    packages = ", ".join(f"{name} {version}" for name, version in about["versions"].items() if version)
    commit = f"{(git['commit'] or 'unknown')[:12]}{', with changes' if git['dirty'] else ''}"
    trial = "a dry run in tiny sizes: nothing is a measurement; " if about["dry_run"] else ""
    return f"{trial}{named}; {packages}; commit {commit}"


def write_report(folder: Path, records: Sequence[tuple[Step, Record]]) -> None:
    """All steps in Markdown."""
    lines = ["# A day on a GPU", ""]
    for step, record in records:
        about = record.data["about"]
        lines += [
            f"## {step.name}: {step.about}",
            "",
            f"{about['date']}; {title(about)}; {record.data['spent_s']:.0f} s",
            "",
        ]
        lines += [*(f"- **{line}**" for line in step.conclude(record.items)), ""]
        lines += [*(f"- {key}: {told(result)}" for key, result in record.items.items()), ""]
    write_atomically(folder / "report.md", "\n".join(lines))
