"""Tables and figures from the results of several grids."""

import json
import re
from pathlib import Path

import pytest

from dat.cli.main import main
from dat.experiments.relational_games.experiment import RelationalGames
from dat.experiments.relational_games.presets import BASELINES, LABELS
from dat.sweeps.curves import draw_legend
from dat.sweeps.report import comparison_text, plot_results
from dat.sweeps.results import read_results, to_csv
from dat.sweeps.sources import by_source, labelled, merge_results
from dual_attention._base.plots import empty_figure
from tests.support.refusals import refusals

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


@pytest.mark.slow
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


WRONG_CELL = to_csv([row("same", "dat-0+2-sym", 250, 0, 99.0)])


@refusals(
    (WRONG_CELL, r"dat-0\+2-sym on same, 250 images, seed 0: 99.0 % .* 63.5 %"),
    ("a,b\n1,2\n", "expected a table of results, found no column"),
    (None, FileNotFoundError, "found nothing"),
    ("", FileNotFoundError, "expected results, found none"),
    of="contents",
)
def test_sources_that_are_refused(sources, tmp_path, contents, error, message):
    other = tmp_path / "other.csv"
    if contents:
        other.write_text(contents)
    elif contents is not None:
        other.mkdir()
    with pytest.raises(error, match=message):
        merge_results(GAMES, [*sources, other])


@refusals(
    ({"model": ("nobody",)}, "models: expected names among .*got nobody"),
    ({"model": ("esbn",), "task": ("match_pattern",)}, "no result has one of each"),
    of="chosen",
)
def test_nothing_is_drawn_of_what_there_is_not(sources, tmp_path, chosen, error, message):
    with pytest.raises(error, match=message):
        plot_results(GAMES, sources, tmp_path / "out", chosen)
    assert not (tmp_path / "out").exists()


def test_results_of_different_generators_are_not_merged(tmp_path):
    """The results of the first release have no such column, and are of generator 1."""

    def table(name: str, tasks, seed: int | None = None, **settings) -> Path:
        rows = rows_of(DATS, tasks) if seed is None else rows_of(DATS, tasks, seeds=(seed,))
        (tmp_path / name).write_text(to_csv([{**one, **settings} for one in rows]))
        return tmp_path / name

    older, newer = table("older.csv", ("between", "same")), table("newer.csv", ("between",), 3, generator=2)
    same = table("same.csv", ("same",), 3, generator=1)
    shared = table("shared.csv", ("same",), 4, independent_share=0.5)
    message = r"newer\.csv: .* on between, .* seed 3: generator 2, but generator 1 in .*not merged"
    with pytest.raises(ValueError, match=message):
        merge_results(GAMES, [older, newer])
    merged = merge_results(GAMES, [older, same])
    assert {row["generator"] for row in merged} == {1} and len(merged) == 2 * 2 * 2 * 3 + 4
    message = r"seed 4: independent_share 0\.5, but independent_share None in .* not merged"
    with pytest.raises(ValueError, match=message):
        merge_results(GAMES, [same, shared])
    assert merge_results(GAMES, [shared, newer])[-1]["independent_share"] == 0.5
    assert len(merge_results(GAMES, [newer, table("other.csv", ("same",))])) == 4 + 12
    with pytest.raises(ValueError, match=rf"not merged.*; with a label \(LABEL={same}\)"):
        merge_results(GAMES, [table("mine.csv", ("same",), seeding=2), same])


@pytest.mark.slow
def test_labelled_sources_are_curves_of_their_own(tmp_path, monkeypatch):
    """Other seedings, the same cells again, whatever a source is: each run of each source is kept, as it is."""
    mine, theirs = tmp_path / "mine.csv", tmp_path / "theirs.csv"
    mine.write_text(to_csv([{**one, "seeding": 2} for one in rows_of(DATS)]))
    theirs.write_text(to_csv(rows_of(DATS, ("occurs",), seeds=(0, 7))))
    sources = [f"mine={mine}", f"theirs={theirs}", f"again={mine}"]
    files = plot_results(GAMES, sources, tmp_path / "out", {"task": ("occurs",)}, "theirs: dat-0+2-sym")
    rows = read_results(GAMES, files[0])
    assert [sum(row["source"] == name for row in rows) for name in ("mine", "theirs", "again")] == [12, 8, 12]
    assert {row["seeding"] for row in rows if row["source"] == "theirs"} == {1}
    text, contrasts = ((tmp_path / "out" / name).read_text() for name in ("comparison.md", "contrasts.md"))
    assert "The sources were made differently: seeding (mine: 2, theirs: 1, again: 2)." in text
    assert text.count("| occurs | theirs: DAT 0+2, symmetric | 67.0 ± 44.5 (63.2;") == 1
    assert "| 250 | mine: DAT 0+2, symmetric | 1 |" not in contrasts and "theirs: Transformer" in contrasts
    table, curves = by_source(GAMES.table, rows)
    assert len(set(table.colours.values())) == len(DATS) and table.panels(curves) == ["occurs"]
    assert merge_results(GAMES, [files[0]]) == merge_results(GAMES, [tmp_path / "out"]) == rows


@pytest.mark.parametrize("source", ["=x.csv", "a|b=x.csv", "mine="])
def test_a_label_is_made_of_words(source):
    with pytest.raises(ValueError, match=re.escape(f"LABEL=PATH, the label of letters and digits, got {source}")):
        labelled(source)


def test_a_path_may_have_an_equals_sign(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=1e-3").mkdir()
    assert labelled("lr=1e-3") == ("", Path("lr=1e-3"))
    assert labelled("runs/lr=1e-3") == ("", Path("runs/lr=1e-3"))
    assert labelled("my runs=runs/lr=1e-3") == ("my runs", Path("runs/lr=1e-3"))


def test_published_is_in_the_legend_where_it_is_drawn():
    """The smallest published training set has 250 images."""
    for sizes, compares in (((50, 100), False), ((50, 250), True)):
        rows = [{**one, "n_train": size} for one in rows_of(DATS) for size in sizes]
        assert GAMES.table.compares_with(rows) is compares
        assert ("published" in comparison_text(GAMES.table, rows)) is compares
        figure = empty_figure()
        draw_legend(figure, GAMES.table, {"dat-0+2-sym": "red"}, rows, ["test"])
        labels = " ".join(text.get_text() for text in figure.legends[0].get_texts())
        assert ("published" in labels) is compares and ("interval" in labels) is not compares
