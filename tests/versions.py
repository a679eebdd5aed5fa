"""``make versions``: the tests with the lowest versions that pyproject.toml declares, those of an image for GPUs, and
the newest.

Each side gets an environment below ``.venv-versions``, made anew. The extras come one after the other, and after each
the tests that need no more run. What ran, and with which versions, is printed and written to a page there.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv-versions"
SHOWN = ("torch", "transformers", "accelerate", "peft", "trl")
OF_GPU = {"torch": "2.11.0", "triton": "3.6.0", "numpy": "2.3.5"}
"""PyTorch of the image with which kernels were timed, the Triton that it brings, and a NumPy for its interpreter."""
SIDES = ("lowest", "gpu", "newest")
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "numpy", "safetensors")
"""What the tests of the library need themselves."""
OF_TEST = ("datasets", "peft", "trl")
"""Of the extra ``test``: what users combine with ``hf``, and what that needs."""
SMOKE = "-m dat train recall --data.n_val=32 --data.n_test=32 --model.d_model=16 --loop.steps=10 --loop.eval_every=10"


class Stage(NamedTuple):
    """One step of a side.

    Attributes:
        name: what is installed.
        extras: those of our extras that are there by then.
        others: other packages to install.
        command: arguments of Python, which fails if all that does not work together.
    """

    name: str
    extras: tuple[str, ...]
    others: tuple[str, ...]
    command: tuple[str, ...]

    @property
    def package(self) -> str:
        """Our package with these extras, in the words of pip."""
        return f".[{','.join(self.extras)}]" if self.extras else "."


def stages(workers: int) -> tuple[Stage, ...]:
    """The stages of a side, each of which adds to the one before."""
    pytest = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(workers))
    core = ("tests/library", *(f"--ignore=tests/library/{folder}" for folder in ("hf", "model_analysis")))
    return (
        Stage("no extra", (), TOOLS, (*pytest, *core)),
        Stage("train", ("train",), (), tuple(SMOKE.split())),
        Stage("hf, PEFT, TRL", ("train", "hf"), OF_TEST, (*pytest, "tests/library/hf")),
    )


def lowest(project: Mapping[str, Any], extras: Iterable[str]) -> dict[str, str]:
    """The lowest versions that are declared by name: always, for these extras, and with ``hf`` for what ``test`` adds.

    Where several are declared for one, the highest of them is what can be installed.
    """
    declared = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for extra in extras for line in declared[extra])]
    if "hf" in extras:
        wanted += [line for line in declared["test"] if line.partition(">=")[0] in OF_TEST]
    found: dict[str, str] = {}
    for line in wanted:
        match = re.fullmatch(r"([A-Za-z0-9_.-]+)>=([0-9.]+)", line)
        if match is None:
            raise ValueError(f"pyproject.toml: expected NAME>=VERSION, got {line!r}")
        name, version = match.groups()
        found[name] = max(version, found.get(name, "0"), key=_numbers)
    return found


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


class Row(NamedTuple):
    """One line of the table: a stage of a side, the versions that it ran with, and how it ended."""

    side: str
    stage: str
    versions: Mapping[str, str]
    outcome: str
    passed: bool


def outcome(status: int, output: str) -> str:
    """How a command ended, in pytest's words if it was pytest."""
    counts = re.findall(r"^=* ?((?:\d+ [a-z]+, )*\d+ [a-z]+) in [\d.]+s", output, re.MULTILINE)
    words = counts[-1] if counts else "ran"
    return words if status == 0 else f"FAILED ({words}, status {status})"


def table(rows: Iterable[Row]) -> str:
    """The table in Markdown."""
    head = ("versions", "installed", "Python", *SHOWN, "result")
    lines = [head, ("---",) * len(head)]
    for row in rows:
        versions = (row.versions.get(name, "-") for name in ("python", *SHOWN))
        lines.append((row.side, row.stage, *versions, row.outcome))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def run_side(side: str, python: str, project: Mapping[str, Any], workers: int) -> list[Row]:
    """Make the environment of one side, and run its stages."""
    folder = FOLDER / side
    subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
    interpreter = str(folder / "bin" / "python")
    pip = [interpreter, "-m", "pip", "--disable-pip-version-check"]
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    rows = []
    for stage in stages(workers):
        print(f"== {side}: {stage.name}", flush=True)
        of_side = {"lowest": lowest(project, ("train", *stage.extras)), "gpu": OF_GPU}  # of which the tests need numpy
        pins = of_side.get(side, {})
        constraints = folder / "constraints.txt"
        lines = [f"{name}=={version}" for name, version in pins.items()]
        lines += ["pyarrow<22"] if side == "lowest" else []  # of which later ones need numpy 2 and do not say so
        constraints.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        others = (*stage.others, *(OF_GPU if side == "gpu" else ()))
        install = ["install", "-q", "-c", str(constraints), "-e", stage.package, *others]
        status = subprocess.run([*pip, *install], cwd=ROOT, env=env, check=False).returncode
        words = f"FAILED (pip, status {status})"
        if status == 0:
            place = folder if "dat" in stage.command else ROOT  # a training writes its run where it is started
            command = [interpreter, *stage.command]
            done = subprocess.run(command, cwd=place, env=env, text=True, stdout=PIPE, stderr=STDOUT, check=False)
            status, words = done.returncode, outcome(done.returncode, done.stdout)
            if status:
                print(done.stdout)
        rows.append(Row(side, stage.name, versions_of(pip), words, status == 0))
        print(words, flush=True)
    return rows


def versions_of(pip: list[str]) -> dict[str, str]:
    """Versions of Python and of what is installed, by name."""
    listed = json.loads(subprocess.check_output([*pip, "list", "--format=json"], text=True, stderr=subprocess.DEVNULL))
    (python,) = re.findall(r"python (\d+\.\d+)", subprocess.check_output([*pip, "--version"], text=True))
    return {"python": python, **{package["name"]: package["version"] for package in listed}}


def answers(program: str) -> bool:
    """Whether there is such a program; a shim may stand for one that is not there."""
    asked = [program, "--version"]
    return shutil.which(program) is not None and subprocess.run(asked, capture_output=True, check=False).returncode == 0


def main() -> int:
    import tomllib  # in the standard library of the Python that the newest transformers needs anyway

    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("side", nargs="?", choices=SIDES, help="by default all")
    parser.add_argument("--workers", type=int, default=2, help="processes of pytest")
    options = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = "python" + project["requires-python"].removeprefix(">=")
    pythons = {"lowest": oldest if answers(oldest) else sys.executable}
    FOLDER.mkdir(exist_ok=True)
    rows = []
    for side in SIDES if options.side is None else (options.side,):
        rows += run_side(side, pythons.get(side, sys.executable), project, options.workers)
        (FOLDER / "versions.md").write_text(table(rows), encoding="utf-8")
    print(table(rows))
    return int(not all(row.passed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
