"""``python -m benchmarks.reliability --seconds 240 --seed 0`` runs all trials and writes docs/reliability.md.

With ``--kills 200``, trainings in several processes are killed so many times instead.
"""

import argparse
import faulthandler
import os
import random
import sys
import tempfile
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1")

from .page import last_run, last_run_of_workers, write_section
from .run import run, run_workers


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability", description=__doc__)
    parser.add_argument("--seconds", type=float, default=240, help="time for all parts together")
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn")
    parser.add_argument("--kills", type=int, help="deaths of trainings in 1, 2 and 4 processes, in place of the parts")
    options = parser.parse_args()
    faulthandler.enable()  # in forked processes, too
    rng = random.Random(options.seed)
    page = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if options.kills is None:
            tallies = run(Path(folder), options.seconds, rng)
            text = last_run(tallies, options.seed, options.seconds)
        else:
            tallies, figures = run_workers(Path(folder), options.kills, rng)
            text = last_run_of_workers(tallies, figures, options.seed, options.kills)
    write_section(page, text)
    findings = sum(len(names) for tally in tallies.values() for names in tally.findings.values())
    for name, tally in tallies.items():
        print(f"{name}: {tally.counts}")
    return min(findings, 1)


if __name__ == "__main__":
    sys.exit(main())
