"""Analyses fixed before the runs: what they test, whether they were followed, and that no other takes their place."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from scipy.stats import permutation_test, ttest_1samp

from dat.cli.main import main
from dat.experiments import EXPERIMENTS, Entry
from dat.sweeps.analysis import AnalysisConfig, find_analysis
from dat.sweeps.analysis_report import report_text
from dat.sweeps.contrasts import Equivalence, contrasts, contrasts_text, draw_contrasts
from dat.sweeps.findings import findings, reading
from dat.sweeps.followed import ANALYSIS, RECORD, planned_cells
from dat.sweeps.report import Reading, plot_results
from dat.sweeps.reproduce import reproduce
from dat.training.config_io import commented_yaml
from dual_attention.model_analysis.measures.intervals import corrected, equivalence_p, half_width, paired_p, sign_flip_p
from examples.my_experiment import Sums, SumsGrid

TOY = Sums()
PLAN = AnalysisConfig(question="Is deep better?", measure="val", reference="linear", arms=("deep",), seeds=3, bound=0.5)
PLACES = [("", 8), ("", 16)]
PLANNED = {place: dict.fromkeys(("linear", "deep"), place[1]) for place in PLACES}
DIFFERENCES = {8: (0.1, 0.2, 0.15), 16: (0.3, 0.2, 0.25)}
ROWS = [
    {"kind": kind, "n_train": n, "seed": seed, "parameters": 1, "val": 0.5 + (difference if kind == "deep" else 0)}
    for n, by_seed in DIFFERENCES.items()
    for seed, difference in enumerate(by_seed)
    for kind in ("linear", "deep")
]


def test_equivalence_is_told_by_the_interval():
    """Two one-sided tests at alpha reject exactly if the interval of 1 - 2 alpha lies within the bounds."""
    values = [0.1, -0.3, 0.4, 0.2, -0.1, 0.3]
    sides = [ttest_1samp(values, side, alternative=how).pvalue for side, how in ((-0.5, "greater"), (0.5, "less"))]
    assert equivalence_p(values, 0.5) == pytest.approx(max(sides))
    mean, half = sum(values) / 6, half_width(values, level=0.9)
    edge = abs(mean) + half
    assert equivalence_p(values, edge * 1.001) < 0.05 < equivalence_p(values, edge * 0.999)
    assert (equivalence_p([0.1, 0.1], 0.5), equivalence_p([0.5, 0.5], 0.5)) == (0.0, 1.0)


def test_flips_of_signs():
    assert sign_flip_p([1.0, 2.0, 3.0]) == pytest.approx(2 / 8)
    assert sign_flip_p([1.0, -1.0]) == 1.0 and sign_flip_p([0.1, 0.2, -0.3]) == 1.0
    values = [0.3, -0.1, 0.2, 0.4, 0.05, -0.02, 0.6]
    theirs = permutation_test((values,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert sign_flip_p(values) == pytest.approx(theirs.pvalue)
    assert 2**-17 <= sign_flip_p([1.0] * 18) < 8 * 2**-17  # 2 of 2**18 flips, of which half as many are drawn
    assert sign_flip_p(values * 3) == pytest.approx(ttest_1samp(values * 3, 0).pvalue, abs=2e-3)


def test_corrections():
    p = [0.01, 0.04]
    assert corrected(p, "bonferroni") == [0.02, 0.08] and corrected(p, "holm") == [0.02, 0.04]
    assert corrected(p, "none") == p and corrected([0.9, 0.9], "bonferroni") == [1.0, 1.0]


def test_means_over_all_cells_are_tested_once():
    (one,) = findings(TOY, PLAN, ROWS, PLANNED)
    assert one.differences == pytest.approx({0: 0.2, 1: 0.2, 2: 0.2})
    cells = findings(TOY, replace(PLAN, of="cells"), ROWS, PLANNED)
    assert [found.place for found in cells] == PLACES
    assert cells[0].p == pytest.approx(paired_p(DIFFERENCES[8]))
    assert [found.adjusted for found in cells] == corrected([found.p or 0 for found in cells], "holm")


def test_only_what_is_planned_counts():
    others = [
        {"kind": "deep", "n_train": 8, "seed": 7, "parameters": 1, "val": 9.0},
        {"kind": "linear", "n_train": 8, "seed": 7, "parameters": 1, "val": 0.0},
        {"kind": "deep", "n_train": 64, "seed": 0, "parameters": 1, "val": 9.0},
        {"kind": "linear", "n_train": 64, "seed": 0, "parameters": 1, "val": 0.0},
    ]
    plan = replace(PLAN, points=(8, 16))
    assert findings(TOY, plan, [*ROWS, *others], PLANNED) == findings(TOY, plan, ROWS, PLANNED)
    incomplete = [row for row in ROWS if row["n_train"] == 8 or row["seed"] != 1]
    assert findings(TOY, PLAN, incomplete, PLANNED)[0].differences.keys() == {0, 2}


class LongerGrid(SumsGrid):
    """A grid in which deep networks are given twice the examples."""

    def points(self):
        return [
            {**point, "n_train": point["n_train"] * (2 if point["kind"] == "deep" else 1)} for point in super().points()
        ]


class Longer(Sums):
    Grid = LongerGrid
    shipped: ClassVar = {"grids/tiny.yaml": LongerGrid(out="tiny", seeds=3)}


def test_arms_are_compared_at_their_own_ends():
    """Arms with other last points, such as longer training, are paired there; points before the last are left out."""
    rows = [{**row, "n_train": row["n_train"] * (2 if row["kind"] == "deep" else 1)} for row in ROWS]
    plan = replace(PLAN, of="ends", grid="tiny")
    planned = planned_cells(Longer(), plan, rows)
    assert planned == {("", 16): {"linear": 16, "deep": 32}}
    (one,) = findings(Longer(), plan, rows, planned)
    assert one.place is None and one.differences == pytest.approx(dict(enumerate(DIFFERENCES[16])))
    report = report_text(Longer(), plan, rows)
    assert "of each kind at its last point (examples) (more is better)" in report
    assert "all 6 that count have been run" in report
    report = report_text(Longer(), plan, [row for row in rows if (row["n_train"], row["seed"]) != (32, 1)])
    assert "1 of 6 are missing: 32 deep seed 1" in report and "| deep | 2 |" in report


def test_equivalence_may_be_left_uncorrected():
    """Announcements that tell equivalence by the 95 % interval correct tests of differences only."""
    third = [{**row, "kind": "wide"} for row in ROWS if row["kind"] == "deep"]
    plan = replace(PLAN, arms=("deep", "wide"), correction="holm_differences")
    planned = {place: dict.fromkeys(("linear", "deep", "wide"), place[1]) for place in PLACES}
    one, two = findings(TOY, plan, [*ROWS, *third], planned)
    assert (one.adjusted, two.adjusted) == (2 * (one.p or 0), 2 * (two.p or 0))
    assert one.adjusted_equivalence == one.equivalence == equivalence_p([*one.differences.values()], 0.5)
    report = report_text(TOY, plan, [*ROWS, *third])
    assert "correction for 2 tests: holm;" in report and "within the bounds (correction: none)." in report
    assert "| p (holm) | p (equivalence within ±0.5, none) |" in report


def read(values: tuple[float, ...], **options) -> str:
    rows = [{**row, "val": (values[row["seed"]] if row["kind"] == "deep" else 0.0)} for row in ROWS]
    plan = replace(PLAN, **options)
    return reading(TOY, plan, findings(TOY, plan, rows, PLANNED)[0])


def test_readings():
    assert read((0.9, 1.0, 1.1)) == "better than the reference"
    assert read((-0.9, -1.0, -1.1)) == "worse than the reference"
    assert read((0.01, -0.01, 0.0)) == "equivalent within ±0.5"
    assert read((0.1, 0.11, 0.12)) == "better than the reference, but equivalent within ±0.5"
    assert read((0.1, 0.11, 0.12), least_difference=0.2) == "equivalent within ±0.5"
    assert read((2.0, -1.0, 1.0)) == "undecided"
    assert read((0.9, 1.0, 1.1), fewest_seeds=4) == "undecided: 3 of at least 4 pairs"
    assert read((0.9, 1.0, 1.1), bound=None) == "better than the reference"


def test_a_run_that_followed_its_analysis(tmp_path, in_process):
    grid = SumsGrid(out=str(tmp_path / "grid"), seeds=3)
    folder = reproduce(TOY, grid, analysis=PLAN, quiet=True)
    report = (folder.path / "report.md").read_text()
    assert "It was followed in every point." in report and "Is deep better?" in report
    assert "before the first cell" in report and "all 12 that count have been run" in report
    assert "- deep against linear: " in report and "90 % interval | 95 % interval" in report
    assert "within ±0.5" in (folder.path / "contrasts.md").read_text() and (folder.figures / "contrasts.png").is_file()
    reproduce(TOY, grid, quiet=True)  # goes on with the one recorded
    assert (folder.path / "report.md").read_text() == report and len(in_process) == 12
    files = plot_results(TOY, [folder.path], tmp_path / "out", how=Reading(analysis=PLAN))
    assert [path.name for path in files][-3:] == ["contrasts.md", "contrasts.png", "report.md"]
    assert (tmp_path / "out" / "report.md").read_text() == report


def test_what_was_not_followed_is_named(tmp_path, in_process):
    grid = SumsGrid(out=str(tmp_path / "grid"), seeds=1)
    folder = reproduce(TOY, grid, quiet=True)
    assert not (folder.path / RECORD).exists()
    reproduce(TOY, replace(grid, first_seed=1), analysis=PLAN, quiet=True)
    report = (folder.path / "report.md").read_text()
    assert "It was not followed in: analysis, seeds, cells." in report
    assert "after 4 cells had been run, so not before the runs" in report
    assert "3 planned (0 to 2), 2 of them run" in report and "4 of 12 are missing: 8 linear seed 2" in report
    reproduce(TOY, replace(grid, first_seed=2, seeds=2), quiet=True)
    report = (folder.path / "report.md").read_text()
    assert "3 of them run; 1 others were run, too, and are left out (3)" in report and "missing" not in report


def test_settings_that_differ_from_the_planned_grid(tmp_path, in_process):
    plan = replace(PLAN, grid="tiny", seeds=2, fewest_seeds=2)
    folder = reproduce(
        TOY, SumsGrid(out=str(tmp_path / "grid"), seeds=2, lr_of={"deep": 0.01}), analysis=plan, quiet=True
    )
    report = (folder.path / "report.md").read_text()
    assert "others than planned: lr_of.deep 0.01 in place of None" in report


def test_another_analysis_is_refused(tmp_path, in_process):
    grid = SumsGrid(out=str(tmp_path / "grid"), seeds=2)
    folder = reproduce(TOY, grid, analysis=PLAN, quiet=True)
    kept = (folder.path / ANALYSIS).read_text()
    with pytest.raises(ValueError, match=r"analysis: .*grid was begun with another one \(20"):
        reproduce(TOY, grid, analysis=replace(PLAN, bound=1.0), quiet=True)
    assert (folder.path / ANALYSIS).read_text() == kept
    (folder.path / ANALYSIS).write_text(kept.replace("bound: 0.5", "bound: 0.6"))
    with pytest.raises(ValueError, match="changed since it was recorded"):
        reproduce(TOY, grid, quiet=True)
    changed = replace(PLAN, bound=0.6)
    rows = [{**row, "steps": 1, "seconds": 1.0} for row in ROWS]
    assert "another than the one recorded with the runs" in report_text(TOY, changed, rows, folder)
    (folder.path / RECORD).write_text("{}")
    with pytest.raises(ValueError, match=r"analysis.json: damaged"):
        reproduce(TOY, grid, quiet=True)


def test_results_without_a_folder_show_less():
    report = report_text(TOY, PLAN, ROWS)
    assert "Nothing tells about: analysis." in report and "| cells | yes |" in report


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measure": ""}, "measure: expected the name of a measure"),
        ({"reference": "deep"}, "arms: expected arms other than the reference deep"),
        ({"arms": ()}, "arms: expected a list of arms that is not empty"),
        ({"bound": 0.0}, "bound: expected a positive number or null"),
        ({"alpha": 0.5}, "alpha: expected a number between 0 and 0.5"),
        ({"fewest_seeds": 1}, "fewest_seeds: expected an integer of at least 2"),
        ({"seeds": 0}, "seeds: expected an integer of at least 1"),
    ],
)
def test_wrong_analyses(options, message):
    with pytest.raises(ValueError, match=message):
        replace(PLAN, **options)


FLIPS = replace(PLAN, test="sign_flip", seeds=6)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            replace(FLIPS, seeds=5),
            r"seeds: expected more: the smallest p of their signs is 0\.062 .*alpha is 0\.05, got 5",
        ),
        (replace(FLIPS, arms=("deep", "wide")), r"seeds: expected more: .* is 0\.062 after correction"),
        (replace(FLIPS, of="cells", grid="tiny"), r"seeds: expected more: .* is 0\.062 after correction"),
        (replace(FLIPS, seeds=30, alpha=1e-6), r"seeds: expected more: .* is 7\.6e-06"),  # as many flips are drawn
        (replace(PLAN, arms=("deep", "deep")), r"arms: expected different arms, got \('deep', 'deep'\)"),
        (replace(PLAN, seeds=2), "seeds: expected at least the 3 of fewest_seeds, got 2"),
    ],
)
def test_an_analysis_that_cannot_decide_is_refused(plan, message, tmp_path):
    (tmp_path / "plan.yaml").write_text(commented_yaml(plan))
    with pytest.raises(ValueError, match=f"analysis: {message}"):
        find_analysis(TOY, str(tmp_path / "plan.yaml"))
    with pytest.raises(ValueError, match=f"analysis: {message}"):
        reproduce(TOY, SumsGrid(out=str(tmp_path / "grid")), analysis=plan, quiet=True)
    assert not (tmp_path / "grid" / "cells").exists()


@pytest.mark.parametrize(
    "plan",
    [
        FLIPS,
        replace(FLIPS, arms=("deep", "wide"), correction="none"),
        replace(FLIPS, seeds=7, arms=("deep", "wide")),
        replace(FLIPS, of="cells", grid="tiny", points=(8,)),
    ],
)
def test_an_analysis_that_some_outcome_decides(plan):
    plan.check_against(TOY)


def test_an_analysis_recorded_earlier_is_still_computed(tmp_path, in_process, monkeypatch):
    plan, grid = replace(PLAN, arms=("deep", "deep")), SumsGrid(out=str(tmp_path / "grid"), seeds=3)
    with monkeypatch.context() as patch:
        patch.setattr(AnalysisConfig, "check_against", lambda *_: None)
        reproduce(TOY, grid, analysis=plan, quiet=True)
    folder = reproduce(TOY, replace(grid, seeds=4), quiet=True)
    assert "It was not followed in: seeds." in (folder.path / "report.md").read_text()


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_tests_and_intervals_take_finite_numbers(wrong):
    equivalent = partial(equivalence_p, bound=1.0)
    for function in (sign_flip_p, paired_p, half_width, equivalent):
        with pytest.raises(ValueError, match=rf"(values|differences): expected finite numbers, got {wrong}"):
            function([wrong, 1.0])
        with pytest.raises(ValueError, match=r"(values|differences): expected at least [12], got 0"):
            function([])
    with pytest.raises(ValueError, match=rf"bound: expected finite numbers, got {wrong}"):
        equivalence_p([0.1, 0.2], wrong)


def test_analyses_are_found(tmp_path):
    file = tmp_path / "plan.yaml"
    file.write_text(commented_yaml(PLAN))
    assert find_analysis(TOY, str(file)) == PLAN and find_analysis(TOY, None, "tiny") is None
    for changes, message in (
        ({"measure": "test"}, "analysis: measure: expected names among val, got 'test'"),
        ({"grid": "huge"}, "analysis: grid: expected names among tiny"),
        ({"grid": "tiny", "arms": ("wide",)}, "analysis: arms: expected names among linear, deep"),
    ):
        file.write_text(commented_yaml(replace(PLAN, **changes)))
        with pytest.raises(ValueError, match=message):
            find_analysis(TOY, str(file))
    with pytest.raises(
        ValueError, match=r"analysis: expected a YAML file or nothing else, since .* comes with none, got 'digits'"
    ):
        find_analysis(TOY, "digits")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_shipped_analyses_fit_their_experiments(name):
    experiment = EXPERIMENTS[name].load()
    for scale, analysis in getattr(experiment, "analyses", {}).items():
        analysis.check_against(experiment)
        grid = experiment.grids[analysis.grid]
        assert (grid.seeds, grid.first_seed) == (analysis.seeds, analysis.first_seed)
        panels, points = zip(*planned_cells(experiment, analysis, []), strict=True)
        assert {*panels} == {*(analysis.panels or panels)} and {*points} == {*(analysis.points or points)}
        assert find_analysis(experiment, None, scale) == analysis


def test_bounds_in_tables_and_figures(tmp_path):
    tested = Equivalence({"val": 0.5})
    found = contrasts(TOY, ROWS, "val", "linear", tested)
    assert found[0].equivalence >= equivalence_p(DIFFERENCES[8], 0.5)
    assert found[0].inner == pytest.approx(half_width(DIFFERENCES[8], level=0.9))
    assert math.isnan(contrasts(TOY, ROWS, "val", "linear")[0].equivalence)
    text = contrasts_text(TOY, ROWS, "linear", tested)
    assert "| within | p (equivalence, Holm) |" in text and "whether the 90 % interval lies within the bounds" in text
    assert "equivalence" not in contrasts_text(TOY, ROWS, "linear")
    draw_contrasts(TOY, ROWS, tmp_path / "bounds.png", "linear", tested)
    assert (tmp_path / "bounds.png").stat().st_size > 5000


def test_the_commands_take_one(tmp_path, monkeypatch, capsys, in_process):
    summaries = dict.fromkeys(("reproduce", "plot"), "sums")
    monkeypatch.setitem(EXPERIMENTS, "sums", Entry("sums", "examples.my_experiment:Sums", summaries))
    monkeypatch.chdir(tmp_path)
    Path("plan.yaml").write_text(commented_yaml(PLAN))
    assert main(["reproduce", "sums", "--out=grid", "--seeds=3", "--analysis=plan.yaml"]) == 0
    assert "report: grid/report.md" in capsys.readouterr().out
    assert main(["plot", "sums", "grid", "--out=out"]) == 0  # by the analysis that the grid has
    assert "out/report.md" in capsys.readouterr().out
    assert main(["plot", "sums", "grid", "--out=b", "--against=linear", "--bound=0.1"]) == 0
    assert "within" in Path("b/contrasts.md").read_text()
    assert main(["plot", "sums", "out/results.csv", "--out=c", "--bound=0.1"]) == 2
    assert "bound: expected --against, too" in capsys.readouterr().err
    assert main(["plot", "sums", "grid", "--out=d", "--against=linear", "--bound=-1"]) == 2
    assert "bound: expected a positive number" in capsys.readouterr().err
    assert asdict(find_analysis(TOY, "grid/analysis.yaml") or PLAN) == asdict(PLAN)
