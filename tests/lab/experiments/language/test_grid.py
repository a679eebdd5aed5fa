"""The grid of small language models: its cells, its table and its figure."""

import csv
from dataclasses import replace
from math import exp
from pathlib import Path

import pytest

from dat.cli.main import main
from dat.experiments.language.experiment import LanguageModelling
from dat.experiments.language.grid import LanguageGrid
from dat.experiments.language.model_keys import model_preset
from dat.sweeps.durations import timed_rate
from dat.sweeps.grid import GridFolder, cells
from dat.sweeps.results import to_csv
from dat.sweeps.workers import run_cell
from dat.training.experiment import count_parameters
from tests.lab.cli.commands import printed
from tests.support.processes import fork_workers
from tests.support.refusals import refused

from .conftest import MODEL, TEXT

LANGUAGE = LanguageModelling()
PRECISIONS = ("float32", "bfloat16")


def test_cells_are_runs_of_every_length():
    grid = LanguageGrid(seeds=2, first_seed=3)
    every = cells(LANGUAGE, grid)
    assert len(every) == len({cell.name for cell in every}) == 12
    assert every[0].name == "DAT-tiny__steps100__seed3"
    config = grid.config(every[-1])
    assert (config.seed, config.model, config.loop.steps) == (4, model_preset("T-tiny"), 400)
    assert (config.loop.eval_every, config.machine.threads, config.output.progress) == (0, 1, False)
    assert [replace(grid, precision=p).config(every[0]).machine.precision for p in PRECISIONS] == [*PRECISIONS]
    assert LANGUAGE.identity(config) == {"model": "T-tiny", "steps": 400}
    assert LANGUAGE.cost(config).work == pytest.approx(400 * 16 + 32768 / 256 / 3)


def test_milestones_do_not_hinder_an_estimate(tmp_path, capsys):
    words = ["--models=[T-tiny]", "--steps=[4]", "--seeds=1", "--loop.milestone_tokens=[512]", "--loop.batch_size=1"]
    out = printed(capsys, "reproduce", "language", "--dry_run", f"--out={tmp_path / 'grid'}", *words)
    assert "1 cell, 0 done, 1 to run" in out


test_impossible_grids = refused(
    ({"models": ("nobody",)}, "models: expected names among .*, got 'nobody'"),
    ({"models": ()}, "models: expected a list that is not empty"),
    ({"steps": (0,)}, "steps: expected integers of at least 1"),
    ({"seeds": 0}, "seeds: expected an integer of at least 1, got 0"),
    ({"longer": {"T": 2.0}}, "longer: expected .* got 'T'"),
    ({"longer": {"T-tiny": 0.0}}, "longer: expected positive numbers"),
    by=lambda changes: LanguageGrid(**changes),
)


def test_a_grid_is_not_continued_with_other_lengths(tmp_path):
    grid = LanguageGrid(out=str(tmp_path / "grid"), longer={"T-tiny": 1.9}, steps=(100,))
    assert {cell["model"]: cell["steps"] for cell in cells(LANGUAGE, grid)} == {"DAT-tiny": 100, "T-tiny": 190}
    folder = GridFolder(LANGUAGE, grid.out)
    folder.open(grid)
    (folder.cells / "one.json").write_text("{}")
    with pytest.raises(ValueError, match=r"longer: expected 1.9 for T-tiny, which the cells of the folder were run"):
        folder.open(replace(grid, longer={"T-tiny": 2.0}))


def test_a_cell_gives_a_row(config, tmp_path):
    (tmp_path / "grid" / "cells").mkdir(parents=True)
    path = tmp_path / "grid" / "cells" / "tiny__steps7__seed0.json"
    assert run_cell(LANGUAGE, config, path, cache=tmp_path) > 0
    assert main(["plot", "language", str(tmp_path / "grid"), "--out", str(tmp_path / "out")]) == 0
    head, row = (tmp_path / "out" / "results.csv").read_text().splitlines()
    assert head == "model,steps,seed,parameters,tokens,perplexity,loss,bits_per_byte,seconds,text_digest"
    assert row.startswith("tiny,7,0,")


def test_a_table_and_a_figure_of_models_that_are_not_published(tmp_path, capsys):
    rows = [
        {"model": model, "steps": steps, "seed": seed, "perplexity": 20.0 + seed - steps / 100}
        for model in ("T-tiny", "DAT-tiny")
        for steps in (100, 200)
        for seed in (0, 1)
    ]
    (tmp_path / "results.csv").write_text(to_csv(rows))
    out = printed(capsys, "plot", "language", tmp_path / "results.csv", "--out", tmp_path / "out")
    assert [Path(line).name for line in out.split()] == ["results.csv", "comparison.md", "perplexity.png"]
    lines = (tmp_path / "out" / "comparison.md").read_text().splitlines()
    assert lines[:3] == [
        "# Measured",
        "",
        "Perplexity and bits per byte of the validation text after the last step: mean ± half of its 95 % t-interval, "
        "of 2 trials.",
    ]
    head = lines.index("| model | 100 | 200 |")
    assert sorted(lines[head + 2 : head + 4]) == [
        "| DAT-tiny | 19.500 ± 6.353 | 18.500 ± 6.353 |",
        "| T-tiny | 19.500 ± 6.353 | 18.500 ± 6.353 |",
    ]


def test_steps_are_timed_and_models_made_without_the_text(config, tmp_path):
    config = replace(config, data=replace(config.data, path=str(tmp_path / "nowhere")))
    assert 0 < timed_rate(LANGUAGE, config, steps=1) < 10
    model = LANGUAGE.empty_model(config)
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert count_parameters(model) == count_parameters(MODEL.language_config(257).build("meta"))


@pytest.mark.slow
def test_the_tiny_scale_smaller(tmp_path, monkeypatch, capsys):
    """As ``dat reproduce language`` does it, on a page of text, in two processes; then again, and with a seed more."""
    fork_workers(monkeypatch)
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT, encoding="utf-8")
    words = ["reproduce", "language", "--scale=tiny", "--out=grid", "--workers=2", "--data.path=text.txt"]
    words += [
        "--data.val_tokens=256",
        "--steps=[2,4]",
        "--loop.batch_size=2",
        "--optim.warmup_steps=1",
        "--optim.lr=2e-3",
        "--seeds=1",
    ]
    assert main(words) == 0
    printed, said = capsys.readouterr()
    assert "4 cells, 0 done, 4 to run" in printed and "4/4" in printed
    assert said.count(f"text: 1 file, 1 document, {len(TEXT):,} characters") == 1
    with open("grid/results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(row["model"], row["steps"]) for row in rows} == {(m, n) for m in ("DAT-tiny", "T-tiny") for n in "24"}
    assert all(float(row["perplexity"]) == pytest.approx(exp(float(row["loss"]))) for row in rows)
    assert all(1 < float(row["perplexity"]) < 257 and float(row["bits_per_byte"]) > 0 for row in rows)
    assert len({row["text_digest"] for row in rows}) == 1
    table = Path("grid/comparison.md").read_text()
    assert table.startswith("# Measured\n") and "## Perplexity" in table and "## Bits per byte" in table
    assert Path("grid/figures/perplexity.png").stat().st_size > 10_000
    before = Path("grid/results.csv").read_text()
    assert "4 cells, 4 done, 0 to run" in printed(capsys, *words) and Path("grid/results.csv").read_text() == before
    assert "2 cells, 1 done, 1 to run" in printed(capsys, *words, "--seeds=2", "--models=[T-tiny]", "--steps=[2]")
    assert len(Path("grid/results.csv").read_text().splitlines()) == 6
