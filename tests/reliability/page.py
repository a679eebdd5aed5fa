"""The page that says what was tried and what was found."""

from __future__ import annotations

import datetime
import platform
from pathlib import Path

import torch

import dual_attention

from .trials import Tally

BEGIN = "## Last run"
"""Heading of the part that is written by the run; all above it is written by hand."""


def write_page(page: Path, tallies: dict[str, Tally], seed: int, seconds: float) -> None:
    """Replace the last part of ``page``."""
    text = page.read_text(encoding="utf-8")
    page.write_text(text[: text.index(BEGIN)] + last_run(tallies, seed, seconds), encoding="utf-8")


def last_run(tallies: dict[str, Tally], seed: int, seconds: float) -> str:
    """Figures and findings."""
    kills, mutations = tallies["kills"], tallies["mutations"]
    n = {name: sum(len(names) for names in tally.findings.values()) for name, tally in tallies.items()}
    n_kills = kills.counts["kill -9"]
    lines = [
        BEGIN,
        "",
        f"{datetime.date.today()}, `python -m tests.reliability --seconds {seconds:.0f} --seed {seed}`: dual-attention",
        f"{dual_attention.__version__}, PyTorch {torch.__version__}, Python {platform.python_version()}, "
        f"{platform.system()}.",
        "",
        "| part | tried | outcomes | findings |",
        "| --- | --- | --- | --- |",
        f"| kills | {n_kills} kills in {kills.total - n_kills} runs | {_outcomes(kills)} | {n['kills']} |",
        f"| mutations | {mutations.total} | {_outcomes(mutations)} | {n['mutations']} |",
    ]
    for name in ("configurations", "calls"):
        lines.append(f"| {name} | {tallies[name].total} | {_outcomes(tallies[name])} | {n[name]} |")
    lines += ["", f"Findings left: {sum(n.values())}." + (" Alike ones are in one row." if sum(n.values()) else "")]
    rows = [(name, text, cases) for name, tally in tallies.items() for text, cases in sorted(tally.findings.items())]
    if rows:
        lines += ["", "| part | finding | times | where |", "| --- | --- | --- | --- |"]
    for name, text, cases in rows:
        places = sorted(set(cases))
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        lines.append(f"| {name} | `{_cell(text)}` | {len(cases)} | {_cell('; '.join(places[:3]))}{more} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")


def _outcomes(tally: Tally) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in sorted(tally.counts.items()) if kind not in ("finding", "kill -9"))
