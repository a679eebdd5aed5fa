"""The look that all plots share."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from dat.experiments.relational_games.experiment import RelationalGames
from dat.sweeps import curves
from dat.sweeps.curves import curve_points, draw_curves, measured_in_words
from dat.training import plots
from dat.training.plots import plot_run
from dual_attention._base.plots import legend_below, matplotlib_figure, plain_number, scale_log


@pytest.mark.parametrize(
    ("values", "ticks"), [((11.7, 195), ["20", "50", "100"]), ((93, 218), ["100", "125", "150", "175", "200"])]
)
def test_ticks_of_a_logarithmic_scale_are_plain_numbers(values, ticks):
    figure, axis = matplotlib_figure()
    axis.plot(values)
    scale_log(axis)
    low, high = axis.get_ylim()
    figure.canvas.draw()
    shown = [label.get_text() for label in axis.get_yticklabels() if low <= label.get_position()[1] <= high]
    assert [text for text in shown if values[0] <= float(text) <= values[1]] == ticks


def labels_of(ticks) -> list[str]:
    return [tick.get_text() for tick in ticks]


@pytest.fixture
def drawn(monkeypatch):
    """Figures are kept, to be looked at."""
    found = []

    def watch(*args, **kwargs):
        found.append(matplotlib_figure(*args, **kwargs))
        return found[-1]

    for module in (plots, curves):  # of a run, and of a sweep
        monkeypatch.setattr(module, "matplotlib_figure", watch)
        monkeypatch.setattr(module, "save_figure", lambda figure, path, **_: figure.canvas.draw())
    return found


@pytest.mark.slow
def test_figures_are_unknown_to_pyplot(tmp_path):
    """Nothing is left open, and the backend of a notebook stays what it is."""
    code = """
import matplotlib, matplotlib.pyplot as plt
plt.switch_backend("svg")
from pathlib import Path
from dual_attention._base.plots import house_style, matplotlib_figure, save_figure
with house_style():
    figure, axis = matplotlib_figure(1, 2, figsize=(4, 2))
    save_figure(figure, Path("figure.png"))
assert plt.get_fignums() == [] and matplotlib.get_backend() == "svg"
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert (tmp_path / "figure.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("number", "text"), [(1e6, "1,000,000"), (1.0, "1"), (0.05, "0.05"), (2.5, "2.5"), (1e-5, "0.00001"), (0, "0")]
)
def test_plain_numbers(number, text):
    assert plain_number(number) == text


@pytest.mark.parametrize(("low", "high"), [(2, 3e6), (1e-4, 1e-1), (99_990, 100_010)])
def test_no_tick_of_a_logarithmic_scale_is_a_power(low, high):
    figure, axis = matplotlib_figure()
    axis.plot([low, high])
    scale_log(axis)
    figure.canvas.draw()
    texts = labels_of(axis.get_yticklabels())
    assert 2 <= len(texts) < 40 and not any(set(text) & set("e^$") for text in texts)


@pytest.mark.parametrize("epochs", [1, 2, 3, 50])
def test_a_run_is_drawn_with_whole_epochs_chance_and_a_fixed_range(epochs, tmp_path, drawn):
    rows = [{"epoch": e, "step": e, **dict.fromkeys(("train_loss", "val_loss"), 1 / e)} for e in range(1, epochs + 1)]
    for row in rows:
        row.update(train_accuracy=0.6, val_accuracy=0.55)
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plot_run(tmp_path / "metrics.jsonl", tmp_path / "c.png", title="a run", chance=0.5)
    [(figure, (loss, accuracy))] = drawn
    for axis in (loss, accuracy):
        texts = labels_of(axis.get_xticklabels())
        assert texts and all(text.lstrip("−-").isdigit() for text in texts)
    assert accuracy.get_ylim() == (0, 1.02)
    assert [list(line.get_ydata()) for line in accuracy.lines if line.get_label() == "chance"] == [[0.5, 0.5]]
    assert labels_of(figure.legends[0].get_texts()) == ["training (with dropout)", "validation", "chance"]


@pytest.mark.parametrize("numbers", [(None, None), (None, 2.0), (2.0, None)], ids=str)
def test_a_run_whose_perplexity_is_no_number_is_drawn(numbers, tmp_path, drawn):
    """On a logarithmic scale wherever a number is shown."""
    rows = [{"step": step, "train_loss": 800.0, "train_perplexity": number} for step, number in enumerate(numbers)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    how = {"title": "a run", "over": "step", "names": ("loss", "perplexity")}
    plot_run(tmp_path / "metrics.jsonl", tmp_path / "c.png", **how)
    assert drawn[0][1][1].get_yscale() == ("log" if any(numbers) else "linear")


def games_rows(seeds, tasks=("same",), lowest=60.0):
    names = ("test", "hexominoes", "stripes")
    return [
        {"task": task, "model": model, "n_train": n, "seed": seed, **dict.fromkeys(names, lowest + seed + n / 100)}
        for task in tasks
        for model in ("dat-0+2-sym", "transformer-128-h2")
        for n in (250, 500)
        for seed in range(seeds)
    ]


@pytest.mark.parametrize(("seeds", "bands", "words"), [(1, 0, "one trial"), (2, 0, "dots = trials"), (3, 2, "band")])
@pytest.mark.parametrize("compares", [True, False])
def test_intervals_need_three_trials(compares, seeds, bands, words, tmp_path, drawn):
    """Beside published curves, the bands are theirs, and all trials are dots."""
    table = RelationalGames.table if compares else replace(RelationalGames.table, published=None)
    rows = games_rows(seeds)
    points = curve_points(table, rows, "test", "same", "dat-0+2-sym")
    assert [point[2] == point[2] for point in points] == [seeds >= 3] * 2  # NaN where there is none
    draw_curves(table, rows, tmp_path / "c.png", table.figures["learning_curves.png"])
    [(figure, [[axis]])] = drawn
    fills = [c.get_paths() for c in axis.collections if type(c).__name__ == "FillBetweenPolyCollection"]
    assert sum(bool(paths) and len(paths[0].vertices) > 0 for paths in fills) == (2 if compares else bands)
    dots = [c for c in axis.collections if type(c).__name__ == "PathCollection"]
    assert len(dots) == (2 if seeds == 2 or (compares and seeds > 1) else 0)
    assert any(words in text for text in labels_of(figure.legends[0].get_texts()))


def test_the_interval_of_a_single_point_is_a_bar(tmp_path, drawn):
    table = replace(RelationalGames.table, published=None)
    rows = [row for row in games_rows(4) if row["n_train"] == 500 and row["model"] == "dat-0+2-sym"]
    [(n, _, low, high)] = curve_points(table, rows, "test", "same", "dat-0+2-sym")
    draw_curves(table, rows, tmp_path / "c.png", table.figures["learning_curves.png"])
    [(_, [[axis]])] = drawn
    [bars] = [c for c in axis.collections if type(c).__name__ == "LineCollection"]
    assert bars.get_segments()[0].tolist() == [[n, low], [n, high]]


def test_the_legend_of_a_single_size_shows_what_is_drawn(tmp_path, drawn):
    """Published means are crosses with the range of trials as a bar, and the axis has that size alone."""
    table = RelationalGames.table
    rows = [row for row in games_rows(3) if row["n_train"] == 250]
    draw_curves(table, rows, tmp_path / "c.png", table.figures["learning_curves.png"])
    [(figure, [[axis]])] = drawn
    legend = figure.legends[0]
    published = legend.get_lines()[labels_of(legend.get_texts()).index("published: mean,\nbar = range of trials")]
    assert (published.get_marker(), published.get_linestyle()) == ("x", "None")
    own, beside = ([line for line in axis.lines if line.get_marker() == marker] for marker in "ox")
    assert len(own) == len(beside) == 2 and own[0].zorder > beside[0].zorder
    assert own[0].get_markeredgecolor() == "white" and own[0].get_markersize() >= beside[0].get_markersize()
    bars = [c for c in axis.collections if type(c).__name__ == "LineCollection"]
    assert len(bars) == 2 and labels_of(axis.get_xticklabels()) == ["250"]
    assert "bar = 95 % t-interval" in measured_in_words(replace(table, published=None), rows, ["test"])


def test_figures_of_one_task_and_their_legends_are_as_wide(tmp_path, drawn):
    table, rows = RelationalGames.table, games_rows(3, ("same", "occurs"), lowest=31.0)
    draw_curves(table, games_rows(3), tmp_path / "c.png", table.figures["heldout.png"])
    draw_curves(table, rows, tmp_path / "d.png", table.figures["learning_curves.png"])
    for figure, axes in drawn:
        legend = figure.legends[0]
        assert len(figure.legends) == 1 and "chance" in labels_of(legend.get_texts())
        assert legend.get_window_extent().width <= figure.bbox.width
        assert all(len(axis.lines) >= 3 for axis in axes.flat)
    assert drawn[0][1][0][0].get_ylim() == (45, 101)
    assert drawn[1][1][0][0].get_ylim() == (30, 101)


def test_the_chance_of_a_task_with_four_classes():
    assert RelationalGames.table.chance_in("colour_and_or_shape") == 25
    assert RelationalGames.table.chance_in("same") == 50


def test_a_legend_of_long_names_has_one_column():
    figure, axis = matplotlib_figure(figsize=(4, 3))
    lines = [axis.plot([1], label="a name that is rather long for a legend")[0] for _ in range(3)]
    assert legend_below(figure, lines)._ncols == 1
    short = [axis.plot([1], label="x")[0] for _ in range(3)]
    assert legend_below(figure, short)._ncols == 3
