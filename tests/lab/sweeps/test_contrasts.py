"""Differences paired by seed, their tests, and the table and figure of them."""

from __future__ import annotations

from itertools import combinations

import pytest
from scipy.stats import ttest_rel

from dat.cli.main import main
from dat.experiments.relational_games.experiment import RelationalGames
from dat.sweeps.contrasts import contrasts, contrasts_text, draw_contrasts
from dat.sweeps.results import to_csv
from dual_attention.model_analysis.measures.intervals import holm, paired_p
from studies.theorem_1.experiment import Theorem1

GAMES, THEOREM = RelationalGames(), Theorem1()
TRIALS = {
    "dat-0+2-sym": {0: 60.0, 1: 70.0, 2: 65.0},
    "cosine": {0: 64.0, 1: 71.0, 2: 70.0},
    "hadamard": {1: 69.0, 2: 66.0, 3: 80.0},
    "identities": {0: 50.0},
}
ROWS = [
    {"task": "same", "model": model, "n_train": 500, "seed": seed, "parameters": 1, "test": value}
    for model, trials in TRIALS.items()
    for seed, value in trials.items()
]


def test_pairs_are_of_the_same_seed():
    found = contrasts(GAMES, ROWS, "test", "dat-0+2-sym")
    assert [(one.curve, one.pairs, one.difference) for one in found] == [
        ("hadamard", 2, 0.0),
        ("cosine", 3, pytest.approx(10 / 3)),
    ]
    theirs = [list(TRIALS[model].values()) for model in ("cosine", "dat-0+2-sym")]
    assert found[1].p == pytest.approx(ttest_rel(*theirs).pvalue)
    assert found[1].adjusted == pytest.approx(2 * found[1].p)


def test_means_over_cells_take_the_seeds_that_all_have():
    more = [{**row, "n_train": 1000, "test": row["test"] + row["seed"] * (row["model"] == "cosine")} for row in ROWS]
    more = [row for row in more if row["seed"] != 0 or row["model"] != "cosine"]
    found = contrasts(GAMES, [*ROWS, *more], "test", "dat-0+2-sym")
    overall = [one for one in found if one.point is None]
    assert [(one.curve, one.pairs) for one in overall] == [("hadamard", 2), ("cosine", 2)]
    assert overall[1].difference == pytest.approx((1 + 5 + 2 + 7) / 4)  # seeds 1 and 2
    assert [one.point for one in found] == [500, 500, 1000, 1000, None, None]
    assert "| all | all | cosine relations | 2 |" in contrasts_text(GAMES, [*ROWS, *more], "dat-0+2-sym")


def theorem_rows(*runs: tuple[str, int, range]) -> list[dict]:
    """Results of some models, widths and seeds."""
    return [
        {"model": model, "width": width, "seed": seed, "parameters": 1, "error": (seed + 1) * (len(model) + width) % 7}
        for model, width, seeds in runs
        for seed in seeds
    ]


def test_means_need_pairs_in_all_cells_in_which_both_were_run():
    """At width 16 the reference has other seeds, so there is no mean over both widths."""
    runs = [("standard", 8, range(3)), ("standard", 16, range(5, 8))]
    runs += [("relational", width, range(3)) for width in (8, 16)]
    found = contrasts(THEOREM, theorem_rows(*runs), "error", "standard")
    assert [(one.curve, one.point) for one in found] == [("relational", 8)]


def test_a_curve_of_one_cell_has_no_mean_over_cells():
    """Nor does it count in the family of those that have."""
    runs = [(model, width, range(4)) for model in ("standard", "relational") for width in (8, 16)]
    found = contrasts(THEOREM, theorem_rows(*runs, ("symmetric", 8, range(4))), "error", "standard")
    (overall,) = [one for one in found if one.point is None]
    assert overall.curve == "relational" and overall.adjusted == overall.p and overall.of_all
    assert [one.curve for one in found if one.point == 8] == ["relational", "symmetric"]


def test_means_over_some_cells_say_so(tmp_path, monkeypatch):
    runs = [(model, width, range(4)) for model in ("standard", "relational") for width in (8, 16, 32)]
    rows = theorem_rows(*runs, *(("symmetric", width, range(4)) for width in (8, 16)))
    text = contrasts_text(THEOREM, rows, "standard")
    assert (
        "| all | relational attention | 4 |" in text
        and "| 2 of 3 cells | relational, symmetric relations | 4 |" in text
    )
    games = [{**row, "n_train": n} for n in (500, 1000, 2000) for row in ROWS if n < 2000 or row["model"] != "cosine"]
    assert "| several | 2 of 3 cells | cosine relations | 3 |" in contrasts_text(GAMES, games, "dat-0+2-sym")
    drawn = []
    monkeypatch.setattr("dat.sweeps.contrasts.save_figure", lambda figure, path: drawn.append(figure))
    draw_contrasts(THEOREM, rows, tmp_path / "found.png", "standard")
    labels = [text.get_text() for text in drawn[0].axes[0].get_yticklabels()]
    assert labels == ["width 8", "width 16", "width 32", "several cells"]


def test_holm():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


def test_holm_is_bonferroni_on_every_family_that_holds_a_hypothesis():
    """The closed testing procedure, of which Holm's is a shortcut."""
    p = [0.012, 0.3, 0.004, 0.02, 0.02]
    families = [family for n in range(1, 6) for family in combinations(range(5), n)]
    adjusted = [
        max(min(1.0, len(family) * min(p[j] for j in family)) for family in families if i in family) for i in range(5)
    ]
    assert holm(p) == pytest.approx(adjusted)


def test_differences_without_spread():
    assert (paired_p([0.0, 0.0]), paired_p([1.0, 1.0])) == (1.0, 0.0)


def test_an_unknown_reference():
    with pytest.raises(ValueError, match=r"against: expected one of .*cosine, got 'nobody'"):
        contrasts(GAMES, ROWS, "test", "nobody")


def test_the_table(tmp_path):
    text = contrasts_text(GAMES, ROWS, "dat-0+2-sym")
    assert "# Differences from DAT 0+2, symmetric" in text
    assert "| same | 500 | cosine relations | 3 | +3.3 ± 5.2 |" in text and "Hexominoes" not in text
    draw_contrasts(GAMES, ROWS, tmp_path / "found.png", "dat-0+2-sym")
    assert (tmp_path / "found.png").stat().st_size > 5000
    draw_contrasts(GAMES, ROWS[:3], tmp_path / "nothing.png", "dat-0+2-sym")
    assert not (tmp_path / "nothing.png").exists()


def test_the_command_writes_them(tmp_path, capsys):
    table, out = tmp_path / "results.csv", tmp_path / "out"
    table.write_text(to_csv([{**row, "hexominoes": row["test"], "stripes": row["test"]} for row in ROWS]))
    assert main(["plot", "relational-games", str(table), "--out", str(out), "--against", "dat-0+2-sym"]) == 0
    assert capsys.readouterr().out.split()[-2:] == [str(out / "contrasts.md"), str(out / "contrasts.png")]
    assert main(["plot", "relational-games", str(table), "--out", str(tmp_path / "b"), "--against=x"]) == 2
    assert "against: expected one of" in capsys.readouterr().err and not (tmp_path / "b").exists()


def test_only_curves_with_differences_are_drawn(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("dat.sweeps.contrasts.save_figure", lambda figure, path: drawn.append(figure))
    draw_contrasts(GAMES, ROWS, tmp_path / "found.png", "dat-0+2-sym")
    (legend,), axis = drawn[0].legends, drawn[0].axes[0]
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["Hadamard relations", "cosine relations"]  # identities have one trial
    assert [text.get_text() for text in axis.get_yticklabels()] == ["same 500"]


def test_means_over_all_cells_are_drawn_last(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("dat.sweeps.contrasts.save_figure", lambda figure, path: drawn.append(figure))
    more = [{**row, "n_train": 1000, "hexominoes": row["test"]} for row in ROWS]
    draw_contrasts(GAMES, [*ROWS, *more], tmp_path / "found.png", "dat-0+2-sym")
    first, second = drawn[0].axes
    assert [text.get_text() for text in first.get_yticklabels()] == ["same 500", "same 1,000", "all cells"]
    assert [len(axis.containers) for axis in (first, second)] == [6, 2]


def test_a_table_without_differences_says_so():
    text = contrasts_text(GAMES, ROWS[:3], "dat-0+2-sym")
    assert text.endswith("There are none: no other model has two trials with seeds that this one has, too.\n")
