"""Recall: models, where heads look, runs and grids."""

import csv
import json
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dat.cli.main import main
from dat.experiments.sequences import experiment, problem
from dat.experiments.sequences.config import RecallConfig, RecallDataConfig, RecallGrid, RecallSets
from dat.experiments.sequences.experiment import Recall
from dat.experiments.sequences.presets import PRESETS
from dat.experiments.sequences.problem import best_heads, first_step, head_scores, sequence_loss
from dat.experiments.sequences.tasks import TASKS, draw_task
from dat.sweeps.durations import timed_rate, timing_problem
from dat.sweeps.grid import GridFolder, cells
from dat.sweeps.reproduce import reproduce
from dat.sweeps.workers import run_cell
from dat.training.experiment import count_parameters
from dual_attention.dual_attention import DualAttentionOutput
from tests.lab.cli.commands import QUIET, printed, refusal
from tests.support.processes import fork_workers
from tests.support.refusals import refused

RECALL = Recall()
PARAMETERS = {  # in all, and trained
    "T": (114_304, 114_304),
    "DAT-symbolic": (116_288, 114_240),
    "DAT-relative": (114_256, 114_256),
    "DAT-frozen": (122_416, 114_224),
    "RCA": (116_354, 114_306),
    "T-positions": (114_304, 114_304),
}
SMALL = ["--data.n_val=16", "--data.n_test=24", "--model.d_model=16", "--model.dff=16", "--loop.batch_size=8"]
Traced = namedtuple("Traced", "maps")


class Attends:
    """A model of given attention weights."""

    training = False

    def __init__(self, *maps) -> None:
        self.maps = maps

    def trace(self, tokens):
        return Traced(self.maps)


# Models -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "expected"), PARAMETERS.items())
def test_sizes_are_matched(name, expected):
    model = PRESETS[name].empty(64)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert (count_parameters(model), trained) == expected
    assert abs(trained / 114_240 - 1) < 0.001


def test_positional_symbols_are_drawn_and_left():
    one, other = (PRESETS["DAT-frozen"].build(8, seed=seed) for seed in (0, 1))
    table = one.layers.symbol_retrievers[0].symbol_library.weight
    assert not table.requires_grad and table.std().item() == pytest.approx(1, abs=0.05)
    assert not torch.equal(table, other.layers.symbol_retrievers[0].symbol_library.weight)
    trained = replace(PRESETS["DAT-frozen"], trainable_symbols=True).build(8, seed=0)
    assert trained.layers.symbol_retrievers[0].symbol_library.weight.requires_grad


# Where heads look ---------------------------------------------------------------------------------------------------


def test_an_induction_head_and_a_previous_token_head_are_known():
    drawn = draw_task("in-context-copying", 12, 8, 64, seed=0)
    n, length = drawn.tokens.shape
    places = torch.arange(length).expand(n, length)
    matching = torch.nn.functional.one_hot(torch.where(drawn.sources >= 0, drawn.sources, places), length).float()
    previous = torch.nn.functional.one_hot((places - 1).clamp(min=0), length).float()
    even = torch.ones(length, length).tril()
    even = (even / even.sum(-1, keepdim=True)).expand(n, length, length)
    first = DualAttentionOutput(even, sa_weights=previous[:, None], ra_maps=(even[:, None], even[:, None]))
    scores = head_scores(Attends(first, torch.stack((even, matching), 1)), drawn.tokens, drawn.sources)
    assert set(scores) == {f"{s}/{h}" for s in ("matching", "previous") for h in ("0/sa0", "0/ra0", "1/sa0", "1/sa1")}
    assert scores["matching/1/sa1"] == 1 and scores["previous/0/sa0"] == 1
    by_hand = [1 / (place + 1) for row in drawn.sources.tolist() for place, source in enumerate(row) if source >= 0]
    assert scores["matching/1/sa0"].item() == pytest.approx(sum(by_hand) / len(by_hand), rel=1e-5)
    assert scores["matching/0/ra0"] == scores["matching/1/sa0"]
    best = best_heads({f"val_{name}": value.item() for name, value in scores.items()})
    assert best == {"val_matching": 1.0, "val_previous": 1.0}


def test_answers_that_stand_nowhere_have_no_score():
    drawn = draw_task("parity", 4, 6, 2, seed=0)
    model = PRESETS["T"].build(2, seed=0).eval()
    _, numbers = sequence_loss(model, drawn)
    assert {name.partition("/")[0] for name in numbers} == {"accuracy", "whole", "previous"}
    assert {name for name in sequence_loss(model.train(), drawn)[1]} == {"accuracy", "whole"}


@pytest.mark.parametrize("name", PRESETS)
def test_scores_do_not_depend_on_how_many_sequences_are_traced_at_a_time(name, monkeypatch):
    model, drawn = PRESETS[name].build(64, seed=0).eval(), draw_task("in-context-copying", 7, 8, 64, seed=0)
    assert len(set((drawn.sources >= 0).sum(1).tolist())) > 1
    whole = head_scores(model, drawn.tokens, drawn.sources)
    monkeypatch.setattr(problem, "TRACED", 3)
    torch.testing.assert_close(head_scores(model, drawn.tokens, drawn.sources), whole)


@pytest.mark.parametrize("name", PRESETS)
def test_heads_of_every_model(name):
    model = PRESETS[name].build(64, seed=0).eval()
    drawn = draw_task("mqar", 4, 2, 64, seed=0)
    scores = head_scores(model, drawn.tokens, drawn.sources)
    kinds = ("sa0", "sa1") if name in ("T", "T-positions") else ("sa0", "ra0")
    assert {key.removeprefix("matching/") for key in scores if "matching" in key} == {
        f"{layer}/{kind}" for layer in (0, 1) for kind in kinds
    }
    assert all(0 < score < 1 for score in scores.values())


def test_the_step_that_reaches_a_threshold():
    rows = [{"step": 10, "val_accuracy": 0.2}, {"step": 20, "val_accuracy": 0.9}, {"step": 30, "val_accuracy": 0.5}]
    assert first_step(rows, "val_accuracy", 0.9) == 20
    assert first_step(rows, "val_accuracy", 0.95) is None and first_step([], "val_accuracy", 0.1) is None


# Tasks --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TASKS)
def test_training_sequences_are_not_measured(name):
    config = RecallConfig(
        task=name, data=RecallDataConfig(size=24, n_val=100, n_test=100), model=replace(PRESETS["T"], context=256)
    )
    problem = RECALL.prepare(config, cache=Path()).problem
    sets = [problem.train.batch(torch.arange(512))[0], *(e.tensors[0] for e in problem.evaluation.values())]
    rows = [{tuple(row) for row in tokens.tolist()} for tokens in sets]
    assert [len(found) for found in rows] == [512, 100, 100] and len(set.union(*rows)) == 712
    assert sets[0].shape[1] == TASKS[name].length(24) and int(sets[0].max()) < config.vocab_size


# Runs ---------------------------------------------------------------------------------------------------------------


def test_a_model_is_trained_and_evaluated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--data.size=4", "--loop.steps=6", "--loop.eval_every=2", *SMALL, *QUIET]
    assert main(["train", "recall", "--preset=DAT-relative", "--output.name=run", *words]) == 0
    result = json.loads(Path("runs/run/result.json").read_text())
    assert list(result["course"]) == ["2", "4", "6"] and result["accuracy_step"] is None
    assert result["matching"]["test"] == max(v for k, v in result["heads"].items() if k.startswith("matching/"))
    rows = [json.loads(line) for line in Path("runs/run/metrics.jsonl").read_text().splitlines()]
    assert [row["val_matching"] for row in rows] == [found["matching"] for found in result["course"].values()]
    numbers = json.loads(printed(capsys, "evaluate", "runs/run", "--json", "--machine.threads=1"))
    for metric in RECALL.table.metrics:
        assert numbers["test"][metric] == pytest.approx(result[metric]["test"], rel=1e-5)
    row = RECALL.row(result)
    assert row["learned"] == 0 and row["learned_step"] == row["matching_step"] == 6 and "accuracy_at_4" in row


@pytest.mark.parametrize("patience", ["null", "9"])
def test_a_cool_down_has_the_course_of_the_shorter_run(tmp_path, monkeypatch, patience):
    """The result keeps what was learned before the branch; early stopping sees later evaluations only."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(experiment.LEARNED, "accuracy", 0.0)  # so that it is learned at once
    words = ["--data.size=4", "--loop.eval_every=2", "--loop.report_every=0", "--optim.schedule=wsd", *SMALL, *QUIET]

    def result_of(name: str, steps: int, *more: str) -> dict[str, Any]:
        length = [f"--loop.steps={steps}", "--optim.warmup_steps=0", "--optim.decay_steps=1"]
        assert main(["train", "recall", f"--output.name={name}", *words, *length, *more]) == 0
        return json.loads(Path(f"runs/{name}/result.json").read_text())

    result_of("long", 8, "--loop.milestones=[6]")
    (start,) = Path("runs/long/checkpoints").glob("*-00000006")
    planned = result_of("planned", 7)
    cooled = result_of("cooled", 7, f"--loop.continue_from={start}", f"--loop.stop_patience={patience}")
    assert cooled["course"] == planned["course"] and list(cooled["course"]) == ["2", "4", "6", "7"]
    assert cooled["accuracy_step"] == planned["accuracy_step"] == 2
    assert ("best" in cooled) == (patience == "9") and cooled.get("best", {"step": 7})["step"] == 7


def test_a_task_without_sources_has_no_such_columns(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--task=s3", "--data.size=4", "--loop.steps=2", "--loop.eval_every=1", *SMALL, *QUIET]
    assert main(["train", "recall", "--preset=RCA", "--output.name=run", *words]) == 0
    table = printed(capsys, "evaluate", "runs/run", "--machine.threads=1")
    assert "previous" in table and "matching" not in table
    row = RECALL.row(json.loads(Path("runs/run/result.json").read_text()))
    assert "matching_step" not in row and "previous" in row


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task=s3", "--data.vocab_size=7"], "data.vocab_size: expected null or 6, those of s3, got 7"),
        (["--task=mqar", "--data.size=40"], "model.context: expected at least 320, the tokens of a sequence, got 128"),
        (["--data.size=1"], "data.size: expected at least 2, got 1"),
        (["--data.vocab_size=20"], "data.size, data.vocab_size: vocab_size: expected at least 24"),
        (["--task=mqar", "--data.size=4", "--data.vocab_size=8"], "vocab_size: expected at least 10 for 4 pairs"),
        (["--task=chess"], "task: expected one of 'in-context-copying'"),
        (["--preset=DAT-symbol"], "did you mean DAT-symbolic"),
    ],
)
def test_wrong_settings(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert message in refusal(capsys, "train", "recall", *words, *QUIET) and not Path("runs").exists()


# Grids --------------------------------------------------------------------------------------------------------------


def test_cells_have_the_steps_of_their_task():
    grid = RecallGrid(tasks=("parity-8", "mqar-4"), steps=(40, 99), models=("T",), evaluations=10)
    configs = [grid.config(cell) for cell in cells(RECALL, grid)]
    parity, mqar = ((c.task, c.data.size, c.loop.steps, c.loop.eval_every) for c in configs[:2])
    assert (parity, mqar) == (("parity", 8, 40, 4), ("mqar", 4, 99, 10))
    assert RECALL.cost(configs[1]).work > RECALL.cost(configs[0]).work


def test_sizes_may_be_written_in_several_ways():
    grid = RecallGrid(tasks=("parity-08", "mqar-4"), steps=(40, 90), models=("T",), evaluations=10)
    steps = {cell["task"]: grid.config(cell).loop.steps for cell in cells(RECALL, grid)}
    assert steps == {"parity": 40, "mqar": 90}


def test_a_narrower_grid_is_estimated_in_the_folder_of_a_wider_one(tmp_path, capsys):
    small: dict[str, Any] = {"data": RecallSets(n_val=4, n_test=4), "steps": (1,), "evaluations": 1, "models": ("T",)}
    wide = RecallGrid(out=str(tmp_path), tasks=("parity-2", "mqar-1"), seeds=1, **small)
    folder = GridFolder(RECALL, wide.out)
    folder.open(wide)
    for cell in cells(RECALL, wide):
        run_cell(RECALL, wide.config(cell), folder.path_of(cell), cache=folder.path)
    reproduce(RECALL, replace(wide, tasks=("mqar-1",), seeds=2), dry_run=True)
    assert "2 cells, 1 done, 1 to run" in capsys.readouterr().out


def test_a_grid_is_not_continued_with_other_steps(tmp_path):
    grid = RecallGrid(tasks=("parity-8", "mqar-4"), steps=(40, 90), evaluations=10)
    folder = GridFolder(RECALL, tmp_path / "grid")
    folder.open(grid)
    folder.open(replace(grid, evaluations=5))  # nothing was run yet
    folder.open(grid)
    (folder.cells / "one.json").write_text("{}")
    for changes, message in (
        ({"steps": (40, 80)}, "steps: expected 90 for mqar-4, which the cells of the folder were run with, got 80"),
        ({"evaluations": 5}, "evaluations: expected 10, which the cells of the folder were run with, got 5"),
    ):
        with pytest.raises(ValueError, match=message):
            folder.open(replace(grid, **changes))
    replace(grid, tasks=("mqar-4", "s3-4"), steps=(90, 20)).check_extends(grid)


@pytest.mark.parametrize("grid", RECALL.scales.values(), ids=RECALL.scales)
def test_grids_that_come_with_it_can_be_run(grid):
    assert {config.seed for config in map(grid.config, cells(RECALL, grid))} == {*range(grid.seeds)}


test_impossible_grids = refused(
    ({"tasks": ("mqar",)}, "tasks: expected TASK-SIZE, TASK one of in-context-copying, mqar,"),
    ({"tasks": ("mqar-0",)}, "tasks: expected TASK-SIZE"),
    ({"steps": (1, 2, 3)}, "steps: expected one number, or 2, one for each of the tasks"),
    ({"evaluations": 501}, "evaluations: expected an integer from 1 to 500"),
    ({"models": ("U",)}, "models: expected names among T,"),
    by=lambda changes: RecallGrid(**changes),
)


def test_steps_are_timed_on_sequences_as_long_as_those_trained_on():
    config = RecallConfig(data=RecallDataConfig(size=2, n_val=1, n_test=1))
    assert 0 < timed_rate(RECALL, config, steps=1) < 10
    (tokens, *_) = timing_problem(RECALL, config).train.batch(torch.arange(3))
    assert tokens.shape == (3, config.trained_length) == (3, 4)
    longer = replace(config, loop=replace(config.loop, steps=config.loop.steps + 1))
    step = RECALL.cost(longer).work - RECALL.cost(config).work
    assert step == pytest.approx(config.loop.batch_size * RECALL.cost(config).example_work)


@pytest.mark.slow
def test_the_tiny_grid_smaller(tmp_path, monkeypatch):
    """As ``dat reproduce recall --scale tiny`` does it, one after another."""
    fork_workers(monkeypatch)
    monkeypatch.chdir(tmp_path)
    small = ["--data.n_val=8", "--data.n_test=8", "--tasks=[in-context-copying-4,s3-4]", "--steps=[4]", "--seeds=2"]
    words = ["--evaluations=2", "--loop.batch_size=4", "--workers=1", "--models=[T,DAT-relative]"]
    assert main(["reproduce", "recall", "--scale=tiny", "--out=grid", "--quiet", *small, *words]) == 0
    with open("grid/results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8 and {row["learned_step"] for row in rows} == {"4"}
    assert {row["matching_at_2"] == "" for row in rows if row["task"] == "s3"} == {True}
    assert "Step at which validation accuracy first reaches 90 %" in Path("grid/comparison.md").read_text()
    assert main(["plot", "recall", "grid", "--out=again", "--against=T"]) == 0
    assert "| s3 | 4 | DAT, relative symbols | 2 |" in Path("again/contrasts.md").read_text()
