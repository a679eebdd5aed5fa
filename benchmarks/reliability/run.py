"""All parts, one after the other, each with its share of the time."""

import random
from pathlib import Path

import torch

from .draws import calls, configurations
from .folders import folders
from .kills import TEXT, kills
from .mutations import mutations
from .page import PARTS
from .places import places
from .trials import Tally, run_trials
from .workers import Figures, try_workers


def run(folder: Path, seconds: float, rng: random.Random) -> dict[str, Tally]:
    """The tallies by part; the working directory must be ``folder``."""
    torch.set_num_threads(1)
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    tallies = {name: Tally() for name in PARTS}
    killed = Tally()
    for name in PARTS:
        (folder / name).mkdir()
    run_trials(mutations(folder / "mutations", rng), tallies["mutations"], 0.35 * seconds)
    run_trials(kills(folder / "kills", rng, killed), tallies["kills"], 0.2 * seconds)
    tallies["kills"].counts["kill -9"] = killed.counts.get("kills", 0)
    run_trials(folders(folder / "folders", rng), tallies["folders"], 0.15 * seconds)
    run_trials(places(folder / "places", rng), tallies["places"], 0.1 * seconds)
    run_trials(configurations(folder / "configurations", rng), tallies["configurations"], 0.12 * seconds)
    run_trials(calls(rng), tallies["calls"], 0.08 * seconds)
    return tallies


def run_workers(folder: Path, kills: int, rng: random.Random) -> tuple[dict[str, Tally], Figures]:
    """Tallies of trainings in several processes, and what was measured; the working directory must be ``folder``."""
    torch.set_num_threads(1)
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    return try_workers(folder, kills, rng)
