"""The page that says what was tried and what was found."""

import datetime
import platform
from pathlib import Path

import torch

import dual_attention

from .trials import Tally
from .workers import CLOSE, SIZES, WAYS, Figures

BEGIN = "## Last run"
"""Heading of the part that a run writes."""
PARTS = ("kills", "mutations", "folders", "places", "configurations", "calls")
"""Parts of a run, in the order of the page."""
OF_WORKERS = "## Several processes"
"""Heading of the part that a run of trainings in several processes writes."""


def write_section(page: Path, text: str) -> None:
    """Replace the part of ``page`` that has the heading with which ``text`` begins; the rest is left as it is."""
    heading = text.partition("\n")[0] + "\n"
    before, found, after = page.read_text(encoding="utf-8").partition(heading)
    if not found:
        raise ValueError(f"{page}: expected a line {heading!r}")
    _, following, rest = after.partition("\n## ")
    page.write_text(before + text + (following + rest if following else ""), encoding="utf-8")


def last_run(tallies: dict[str, Tally], seed: int, seconds: float) -> str:
    """Figures and findings."""
    kills, mutations = tallies["kills"], tallies["mutations"]
    n = {name: sum(len(names) for names in tally.findings.values()) for name, tally in tallies.items()}
    n_kills = kills.counts["kill -9"]
    lines = [
        BEGIN,
        "",
        *_of_run(f"--seconds {seconds:.0f} --seed {seed}"),
        "| part | tried | outcomes | findings |",
        "| --- | --- | --- | --- |",
        f"| kills | {n_kills} kills in {kills.total - n_kills} runs | {_outcomes(kills)} | {n['kills']} |",
        f"| mutations | {mutations.total} | {_outcomes(mutations)} | {n['mutations']} |",
    ]
    for name in PARTS[2:]:
        lines.append(f"| {name} | {tallies[name].total} | {_outcomes(tallies[name])} | {n[name]} |")
    return "\n".join([*lines, *_findings(tallies)]) + "\n"


def last_run_of_workers(tallies: dict[str, Tally], figures: Figures, seed: int, kills: int) -> str:
    """The same of trainings in several processes."""
    seconds = sorted(figures.seconds)
    starts = ", ".join(f"{figures.starts.get(size, 0)} of {size}" for size in SIZES)
    lines = [
        OF_WORKERS,
        "",
        *_of_run(f"--kills {kills} --seed {seed}"),
        "| after a death | deaths | runs | as promised | findings |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, tally in tallies.items():
        good, bad = tally.counts.get("as promised", 0), tally.counts.get("finding", 0)
        lines.append(f"| {name} of processes | {tally.counts['kills']} | {good + bad} | {good} | {bad} |")
    lines += [
        "",
        f"- Deaths: {', '.join(f'{figures.deaths.get(way, 0)} {way}' for way in WAYS)}. Starts by number of processes: "
        f"{starts}.",
        f"- Losses of steps and evaluations differ from those of one undisturbed process by at most "
        f"{figures.difference:.1e} of their value where the number of processes changes ({CLOSE:.0e} would be a "
        "finding).",
        f"- Examples: {figures.records:,} notes of processes on what they took in a step were compared with those of "
        "one process, and every step with the examples that it should have.",
        f"- From a death to the end of the last process: {seconds[len(seconds) // 2]:.1f} s in the middle, at most "
        f"{seconds[-1]:.1f} s. Deaths after which a process waited for one that was never connected, until it got the "
        f"SIGTERM that torchrun sends at once: {figures.signalled}.",
    ]
    return "\n".join([*lines, *_findings(tallies)]) + "\n"


def _of_run(options: str) -> list[str]:
    """The command, when it was run, and with which versions."""
    return [
        f"{datetime.date.today()}, `python -m benchmarks.reliability {options}`: relational-attention",
        f"{dual_attention.__version__}, PyTorch {torch.__version__}, Python {platform.python_version()}, "
        f"{platform.system()}.",
        "",
    ]


def _findings(tallies: dict[str, Tally]) -> list[str]:
    """How many there are, and a table of them."""
    n = sum(len(names) for tally in tallies.values() for names in tally.findings.values())
    lines = ["", f"Findings left: {n}." + (" Alike ones are in one row." if n else "")]
    rows = [(name, text, cases) for name, tally in tallies.items() for text, cases in sorted(tally.findings.items())]
    if rows:
        lines += ["", "| part | finding | times | where |", "| --- | --- | --- | --- |"]
    for name, text, cases in rows:
        places = sorted(set(cases))
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        lines.append(f"| {name} | `{_cell(text)}` | {len(cases)} | {_cell('; '.join(places[:3]))}{more} |")
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")


def _outcomes(tally: Tally) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in sorted(tally.counts.items()) if kind not in ("finding", "kill -9"))
