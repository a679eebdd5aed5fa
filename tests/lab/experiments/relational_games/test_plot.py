"""Tables and figures from the results of several grids."""

from __future__ import annotations

import json

import pytest

from dat.cli.main import main
from dat.experiments.relational_games.experiment import RelationalGames
from dat.experiments.relational_games.presets import BASELINES, LABELS
from dat.sweeps.report import plot_results
from dat.sweeps.results import merge_results, read_results, to_csv

GAMES = RelationalGames()
DATS = ("transformer-128-h2", "dat-0+2-sym")


def row(task, model, n_train, seed, test):
    heldout = {"hexominoes": test - 1, "stripes": test - 2}
    return {"task": task, "model": model, "n_train": n_train, "seed": seed, "parameters": 7, "test": test, **heldout}


def rows_of(models, tasks=("same", "occurs"), seeds=(0, 1, 2)):
    return [
        row(task, model, n, seed, 60.0 + number + seed + n / 100)
        for task in tasks
        for number, model in enumerate(models)
        for n in (250, 500)
        for seed in seeds
    ]


@pytest.fixture
def sources(tmp_path):
    """A table of DATs and Transformers, and the folder of an unfinished grid of baselines."""
    table = tmp_path / "results.csv"
    table.write_text(to_csv(rows_of(DATS, ("same", "occurs", "match_pattern"))))
    cells = tmp_path / "grid" / "cells"
    cells.mkdir(parents=True)
    for number, one in enumerate(rows_of(BASELINES, seeds=(0, 1))[:-1]):
        accuracy = {name: one[name] / 100 for name in ("test", "hexominoes", "stripes")}
        (cells / f"{number}.json").write_text(json.dumps({**one, "accuracy": accuracy, "steps": 3, "seconds": 0.5}))
    return [table, tmp_path / "grid"]


def test_results_of_all_sources_each_run_once(sources):
    rows = merge_results(GAMES, [*sources, sources[0]])
    assert len(rows) == 2 * 3 * 2 * 3 + 6 * 2 * 2 * 2 - 1
    runs = [(r["task"], r["model"], r["n_train"], r["seed"]) for r in rows]
    assert runs == sorted(set(runs)) and all(isinstance(n, int) for _, _, n, _ in runs)


def test_the_command_writes_tables_and_figures(sources, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["plot", "relational-games", *map(str, sources), "--out", str(out)]
    assert main(words) == 0
    names = ["results.csv", "comparison.md", "learning_curves.png", "heldout.png"]
    assert capsys.readouterr().out.split() == [str(out / name) for name in names]
    assert all((out / name).stat().st_size > 20_000 for name in names if name.endswith("png"))
    assert merge_results(GAMES, [out / "results.csv"]) == merge_results(GAMES, sources)
    assert all(LABELS[name] in (out / "comparison.md").read_text() for name in (*DATS, *BASELINES))
    assert main(words) == 2 and "not overwritten" in capsys.readouterr().err


def test_some_models_and_tasks(sources, tmp_path):
    files = plot_results(GAMES, sources, tmp_path / "out", {"model": DATS, "task": ("same",)})
    assert {path.name for path in files} == {"results.csv", "comparison.md", "learning_curves.png", "heldout.png"}
    rows = read_results(GAMES, tmp_path / "out" / "results.csv")
    assert {r["model"] for r in rows} == set(DATS) and {r["task"] for r in rows} == {"same"}


def test_what_is_refused(sources, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text(to_csv([row("same", "dat-0+2-sym", 250, 0, 99.0)]))
    with pytest.raises(ValueError, match=r"dat-0\+2-sym on same, 250 images, seed 0: 99.0 % .* 63.5 %"):
        merge_results(GAMES, [*sources, other])
    with pytest.raises(FileNotFoundError, match="found nothing"):
        merge_results(GAMES, [tmp_path / "nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="expected results, found none"):
        merge_results(GAMES, [tmp_path / "empty"])
    other.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="expected a table of results, found no column"):
        merge_results(GAMES, [other])
    with pytest.raises(ValueError, match=r"models: expected names among .*got nobody"):
        plot_results(GAMES, sources, tmp_path / "out", {"model": ("nobody",)})
    with pytest.raises(ValueError, match="no result has one of each"):
        plot_results(GAMES, sources, tmp_path / "out", {"model": ("esbn",), "task": ("match_pattern",)})
    assert not (tmp_path / "out").exists()


def test_results_of_different_generators_are_not_merged(tmp_path):
    """The results of the first release have no such column, and are of generator 1."""
    older, newer = tmp_path / "older.csv", tmp_path / "newer.csv"
    older.write_text(to_csv(rows_of(DATS, ("between", "same"))))
    newer.write_text(to_csv([{**one, "generator": 2} for one in rows_of(DATS, ("between",), seeds=(3,))]))
    with pytest.raises(
        ValueError, match=r"newer\.csv: .* on between, .* seed 3: generator 2, but generator 1 in .*not merged"
    ):
        merge_results(GAMES, [older, newer])
    same = tmp_path / "same.csv"
    same.write_text(to_csv([{**one, "generator": 1} for one in rows_of(DATS, ("same",), seeds=(3,))]))
    merged = merge_results(GAMES, [older, same])
    assert {row["generator"] for row in merged} == {1} and len(merged) == 2 * 2 * 2 * 3 + 4
    shared = tmp_path / "shared.csv"
    shared.write_text(to_csv([{**one, "independent_share": 0.5} for one in rows_of(DATS, ("same",), seeds=(4,))]))
    with pytest.raises(
        ValueError, match=r"seed 4: independent_share 0\.5, but independent_share None in .* not merged"
    ):
        merge_results(GAMES, [same, shared])
    assert merge_results(GAMES, [shared, newer])[-1]["independent_share"] == 0.5
    other_tasks = tmp_path / "other.csv"
    other_tasks.write_text(to_csv(rows_of(DATS, ("same",))))
    assert len(merge_results(GAMES, [newer, other_tasks])) == 4 + 12
