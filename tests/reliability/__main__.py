"""``python -m tests.reliability --seconds 240 --seed 0`` runs all trials and writes docs/reliability.md."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1")

from .page import write_page
from .run import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability", description=__doc__)
    parser.add_argument("--seconds", type=float, default=240, help="time for all parts together")
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn")
    options = parser.parse_args()
    page = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        tallies = run(Path(folder), options.seconds, random.Random(options.seed))
    write_page(page, tallies, options.seed, options.seconds)
    findings = sum(len(names) for tally in tallies.values() for names in tally.findings.values())
    for name, tally in tallies.items():
        print(f"{name}: {tally.counts}")
    return min(findings, 1)


if __name__ == "__main__":
    sys.exit(main())
