"""Reports that are committed beside results: each is what its analysis makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dat.experiments import EXPERIMENTS
from dat.sweeps.analysis import find_analysis
from dat.sweeps.analysis_report import report_text
from dat.sweeps.experiment import swept
from dat.sweeps.followed import digest, read_record, recorded_analysis
from dat.sweeps.results import merge_results

EXPERIMENTS_FOLDER = Path(__file__).parents[3] / "experiments"
REPORTS = [
    ("language", "study", "study/report.md"),
]


@pytest.mark.parametrize(("name", "analysis", "report"), REPORTS, ids=lambda value: value.replace("/", "-"))
def test_committed_reports_are_of_committed_results(name, analysis, report):
    experiment, path = swept(EXPERIMENTS[name].load()), EXPERIMENTS_FOLDER / name.replace("-", "_") / "results" / report
    plan, rows = find_analysis(experiment, analysis), merge_results(experiment, [path.parent / "results.csv"])
    assert plan is not None and report_text(experiment, plan, rows) == path.read_text(encoding="utf-8")


def test_the_recorded_analysis_of_mathematics_is_the_shipped_one():
    """The record that was made before the runs holds for the file beside it, and for the analysis as it is shipped."""
    folder = EXPERIMENTS_FOLDER / "mathematics" / "results" / "study"
    record, kept = read_record(folder), recorded_analysis(folder)
    shipped = find_analysis(swept(EXPERIMENTS["mathematics"].load()), "study")
    assert record is not None and kept is not None and shipped is not None and record["cells_done"] == 0
    assert record["analysis"] == digest(kept) == digest(shipped)
