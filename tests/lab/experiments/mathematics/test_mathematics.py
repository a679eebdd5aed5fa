"""Mathematics: the paper's models, what is learned from a batch, answers, and the command line."""

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dat.cli.main import main
from dat.data.mathematics import END, MODULES, PAD, START, QuestionSets
from dat.experiments.mathematics import answers
from dat.experiments.mathematics.answers import right_answers
from dat.experiments.mathematics.config import MathematicsConfig, QuestionsConfig
from dat.experiments.mathematics.experiment import Mathematics
from dat.experiments.mathematics.grid import MathematicsGrid
from dat.experiments.mathematics.model_keys import PRESETS, MathematicsModelKeys
from dat.experiments.mathematics.problem import (
    Answered,
    about_questions,
    answer_loss,
    answered,
    build_mathematics_model,
    by_character,
    empty_mathematics_model,
    prepare_questions,
)
from dat.experiments.mathematics.published import published_accuracies
from dat.sweeps.durations import timed_rate
from dat.sweeps.grid import cells
from dat.sweeps.report import comparison_text
from dat.training.config_io import build_parser, parse_config
from dat.training.configs import MachineConfig, PrecisionMachineConfig
from dat.training.experiment import count_parameters
from tests.lab.cli.commands import QUIET, printed, refusal
from tests.support.processes import fork_workers
from tests.support.questions import write_official
from tests.support.refusals import refused

MATHEMATICS = Mathematics()
RECIPE = Path(__file__).parents[4] / "examples" / "official-questions.yaml"
PARAMETERS = {
    "T-692K": 692_949,
    "DAT-783K": 783_189,
    "DAT-832K": 832_853,
    "T-871K": 871_717,
    "DAT-1.09M": 1_088_597,
    "DAT-1.11M": 1_113_941,
    "T-1.3M": 1_289_173,
    "DAT-1.43M": 1_426_773,
    "DAT-1.46M": 1_460_565,
    "T-1.7M": 1_706_629,
    # Of the same sizes, not published
    "DAT-750K": 750_421,
    "DAT-767K": 767_317,
    "T-1.02M": 1_023_061,
    "T-1.35M": 1_353_173,
}
SMALL = replace(PRESETS["DAT-tiny"], d_model=16, dff=32)
PAIRS = [(f"What is {i} + {j}?", str(i + j)) for i in range(-3, 9) for j in (5, 700)]
SETS = ["--data.official_folder=data", "--data.n_train=30", "--data.n_val=6", "--data.n_test=8", "--data.n_answered=8"]
MODEL = ["--model.d_model=16", "--model.dff=32"]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder with official files of 20 questions each."""
    monkeypatch.chdir(tmp_path)
    write_official(tmp_path / "data", n=20, extrapolate=True)
    return tmp_path


@pytest.fixture(scope="module")
def trained():
    """A small model that has learned some of :data:`PAIRS`."""
    model = build_mathematics_model(replace(SMALL, dropout_rate=0.0), seed=0)
    batch = answered(PAIRS, masked=True).batch(torch.arange(len(PAIRS)))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimiser.zero_grad()
        answer_loss(masked=True)(model, batch)[0].backward()
        optimiser.step()
    return model.eval()


# Models -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "expected"), PARAMETERS.items())
def test_sizes_of_the_papers_models(name, expected):
    assert count_parameters(empty_mathematics_model(PRESETS[name])) == expected


def test_every_published_row_has_a_preset():
    assert {model for _, model in published_accuracies()} == {*list(PARAMETERS)[:10]} <= PRESETS.keys()
    assert {module for module, _ in published_accuracies()} == {*MODULES}
    grid, parser = MATHEMATICS.scales["published"], build_parser(MathematicsConfig, prog="", description="")
    assert {*grid.models} == {*list(PARAMETERS)[:10]}
    recipe = parse_config(parser, MathematicsConfig, ["--config", str(RECIPE)])[0]
    config = grid.config(cells(MATHEMATICS, grid)[0])
    assert (config.data, config.optim) == (recipe.data, recipe.optim)
    assert config.loop == replace(recipe.loop, eval_every=0, checkpoint_every=0)


def test_a_side_alone_can_be_relational():
    for heads in ({"n_heads_ra": 0, "n_heads_sa": 8}, {"n_heads_ra_dec": 0, "n_heads_sa_dec": 8}):
        model = build_mathematics_model(replace(SMALL, **heads), seed=0)
        assert answer_loss(masked=True)(model, answered(PAIRS[:2], masked=True).batch(torch.arange(2)))[0] > 0


@pytest.mark.parametrize("relational", [0, 4])
def test_sensory_heads_of_both_sides_may_know_relative_positions(relational):
    heads = {"n_heads_sa": 4, "n_heads_ra": relational, "n_heads_sa_dec": 4, "n_heads_ra_dec": relational}
    model = empty_mathematics_model(replace(SMALL, **heads, relative_positions=7))
    tables = [name for name, w in model.named_parameters() if "rel_pos_" in name and w.shape[0] == 15]
    assert len(tables) == 2 * 2 * SMALL.n_layers  # keys and values of both sides
    assert not any("cross_attn" in name for name in tables)


def test_both_sides_may_have_rotary_positions():
    model = empty_mathematics_model(replace(SMALL, rope_theta=50.0))
    assert {side: rope.theta for side, rope in model.rope.items()} == {"encoder": 50.0, "decoder": 50.0}
    assert empty_mathematics_model(SMALL).rope is None


test_impossible_heads = refused(
    ({"rope_theta": 0.0}, r"model\.rope_theta: expected a positive number or null, got 0\.0"),
    ({"relative_positions": 0}, r"model\.relative_positions: expected an integer of at least 1 or null, got 0"),
    ({"n_heads_sa_dec": 0, "n_heads_ra_dec": 0}, r"model\.n_heads_sa_dec \+ .*: expected at least 1, got 0"),
    ({"n_heads_cross": 5}, r"model\.d_model: expected a multiple of the 5 heads, got 128"),
    ({"d_model": 9, "n_heads_sa": 9, "n_heads_ra": 0, "n_heads_sa_dec": 9, "n_heads_ra_dec": 0, "n_heads_cross": 9},
     r"model\.d_model: expected an even number"),
    ({"d_model": 6, "n_heads_sa": 2, "n_heads_ra": 0, "n_heads_sa_dec": 2, "n_heads_ra_dec": 0, "n_heads_cross": 2,
      "rope_theta": 9.0},
     r"model\.d_model: expected a multiple of twice the 2 heads, for rotary positions, got 6"),
    by=lambda changes: MathematicsModelKeys(**changes),
)  # fmt: skip


# Loss and answers ---------------------------------------------------------------------------------------------------


def test_batches_are_as_long_as_they_must_be():
    pairs = [("What is 1?", "1"), ("What is 1 + 1?", "22")]
    questions, read, wanted = answered(pairs, masked=True).batch(torch.arange(2))
    assert (questions.shape, read.shape, wanted.shape) == ((2, 15), (2, 3), (2, 3))
    assert read[:, 0].tolist() == [START, START] and torch.equal(read[:, 1:], wanted[:, :-1])
    assert (wanted[0] == END).tolist() == [False, True, False] and wanted[0, 2] == PAD
    assert answered(pairs, masked=False).batch(torch.arange(2))[0].shape == (2, 161)


@pytest.mark.slow
@pytest.mark.parametrize("masked", [True, False])
def test_shorter_batches_change_nothing(trained, masked):
    examples = answered(PAIRS[:4], masked=masked)
    loss = answer_loss(masked=masked)
    value, numbers = loss(trained, examples.batch(torch.arange(4)))
    questions, answers = (tensor.long() for tensor in examples.tensors)
    whole, of_whole = loss(trained, (questions, answers[:, :-1], answers[:, 1:]))
    torch.testing.assert_close(value, whole)
    assert numbers["right"] == of_whole["right"] and numbers["answers"] == of_whole["answers"]


def test_numbers_are_over_characters(trained):
    """Whatever the batches: answers have two or four characters with their ends."""
    examples, loss = answered(PAIRS, masked=True), answer_loss(masked=True)
    means = [loss(trained, examples.batch(indices))[1] for indices in (torch.arange(4), torch.arange(4, len(PAIRS)))]
    parts = {name: (4 * means[0][name] + (len(PAIRS) - 4) * means[1][name]) / len(PAIRS) for name in means[0]}
    value, _ = loss(trained, examples.batch(torch.arange(len(PAIRS))))
    numbers = by_character({f"val_{name}": number.item() for name, number in parts.items()})
    assert numbers["val_loss"] == pytest.approx(value.item(), rel=1e-5)
    assert 0 < numbers["val_accuracy"] < 1


def test_greedy_answers_are_right_where_every_character_is(trained):
    examples = answered(PAIRS, masked=True)
    indices = torch.arange(len(PAIRS))
    questions, read, wanted = examples.batch(indices)
    logits = trained(questions, read, wanted, source_padding_mask=questions != PAD)[0]
    known = ((logits.argmax(-1) == wanted) | (wanted == PAD)).all(-1)
    assert 0 < known.sum() < len(PAIRS)
    assert torch.equal(right_answers(trained, examples, indices), known)
    assert right_answers(trained, examples, indices, beams=3).sum() > 0


def test_questions_that_are_left_out_are_counted():
    found = QuestionSets({"train": [("a", "b")]}, {"val": 2, "interpolate": 1}, 0, "")
    assert about_questions("algebra", found) == "algebra: 1 question to train on; left out: 3 that another set has, too"
    assert about_questions("algebra", found._replace(left_out={"val": 0})) == "algebra: 1 question to train on"


# Runs ---------------------------------------------------------------------------------------------------------------


def test_a_model_is_trained_and_evaluated(here, capsys):
    words = ["--loop.epochs=1", *SETS, *MODEL, *QUIET]
    assert main(["train", "mathematics", "--output.name=run", *words]) == 0
    result = json.loads(Path("runs/run/result.json").read_text())
    assert set(result["accuracy"]) == set(result["beams"]) == {"val", "interpolate", "extrapolate"}
    assert result["greedy"]["interpolate"] == result["answers"]["interpolate"]
    assert result["data"] == json.loads(Path("runs/run/data.json").read_text())
    assert result["data"]["questions"]["train"] == 30
    numbers = json.loads(printed(capsys, "evaluate", "runs/run", "--json", "--machine.threads=1"))
    for metric in MATHEMATICS.table.metrics:
        assert numbers["extrapolate"][metric] == pytest.approx(result[metric]["extrapolate"], rel=1e-6)
    table = printed(capsys, "evaluate", "runs/run", "--machine.threads=1")
    assert "extrapolation" in table and "beams" in table and "linear 1d, 30 questions: DAT (1 layer, width 16" in table


def test_other_questions_than_a_run_began_with_are_refused(here):
    config = MathematicsConfig(
        data=QuestionsConfig(n_train=9, n_val=3, n_test=3, official_folder="data"),
        model=SMALL,
        machine=PrecisionMachineConfig(threads=1),
    )
    prepared = prepare_questions(config, cache=here)
    Path("run").mkdir()
    prepared.write_files(Path("run"))
    assert prepare_questions(config, cache=here, run=Path("run")).origin == prepared.origin
    path = here / "data" / "train-hard" / "algebra__linear_1d.txt"
    path.write_text(path.read_text().replace("2 + 1?", "1 + 2?"))
    with pytest.raises(ValueError, match=r"run: the questions are not those that the run began with, see data\.json"):
        prepare_questions(config, cache=here, run=Path("run"))


def test_without_validation_questions_interpolation_is_looked_at(here):
    data = QuestionsConfig(n_train=9, n_val=0, n_test=3, official_folder="data", padding="attended")
    prepared = MATHEMATICS.prepare(MathematicsConfig(data=data, model=SMALL), cache=here)
    assert prepared.problem.watch == ("interpolate",) and "val" not in prepared.problem.evaluation
    assert isinstance(prepared.problem.train, Answered) and not prepared.problem.train.masked


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data.official_folder=none"], "data.official_folder: none/train-easy/algebra__linear_1d.txt: there is no"),
        (["--data.official_folder=data", "--data.n_train=99"], "linear_1d.txt: expected at least"),
        (["--data.official_folder="], "data.official_folder: expected a folder or null"),
        (["--data.n_train=2"], "data.n_train: expected an integer of at least 3"),
        (["--data.beams=1"], "data.beams: expected an integer of at least 2"),
        (["--module=chess"], "module: expected one of 'algebra__linear_1d'"),
        (["--preset=T-690K"], "did you mean T-692K?"),
    ],
)
def test_wrong_settings(here, capsys, words, message):
    assert message in refusal(capsys, "train", "mathematics", *words, *QUIET) and not Path("runs").exists()


def test_without_the_generator_both_ways_out_are_named(here, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "mathematics_dataset", None)  # as if it were not installed
    error = refusal(capsys, "train", "mathematics", *QUIET)
    assert "relational-attention[mathematics]" in error and "data.official_folder" in error


# Grids --------------------------------------------------------------------------------------------------------------


def test_cells_share_questions_and_order():
    grid = MathematicsGrid(seeds=2, epochs=(2, 4), loop=replace(MathematicsGrid().loop, measure_at=(1, 3)))
    every = cells(MATHEMATICS, grid)
    assert every[0].name == "algebra__linear_1d__T-tiny__epochs2__seed0" and len(every) == 16
    configs = [grid.config(cell) for cell in every]
    assert {config.data.seed for config in configs} == {0}
    assert [config.loop.measure_at for config in configs[:3]] == [(1,), (1,), (1, 3)]
    assert configs[0].machine == PrecisionMachineConfig(device="cpu", threads=1)
    assert isinstance(configs[0].machine, MachineConfig)
    identity = {"module": MODULES[0], "model": "T-tiny", "epochs": 2, "n_train": 2000, "batch_size": 64}
    assert MATHEMATICS.identity(configs[0]) == identity
    assert MATHEMATICS.cost(configs[2]).work > MATHEMATICS.cost(configs[0]).work


def test_steps_are_timed_without_questions(tmp_path):
    assert 0 < timed_rate(MATHEMATICS, replace(MathematicsConfig(), model=SMALL), steps=1) < 10
    assert list(tmp_path.iterdir()) == []


def test_published_numbers_stand_beside_measured_ones():
    row = {"module": MODULES[0], "model": "DAT-832K", "epochs": 100, "seed": 0, "interpolate": 70.0}
    text = comparison_text(MATHEMATICS.table, [row])
    assert f"| {MODULES[0]} | DAT-832K | 70.0 (66.3) |" in text


def test_questions_of_all_levels_are_answered_freely(monkeypatch):
    asked: list[int] = []
    monkeypatch.setattr(answers, "right_answers", lambda _model, _set, places, beams: asked.extend(places) or places)
    run: Any = SimpleNamespace(
        device=torch.device("cpu"), problem=SimpleNamespace(model=None), config=SimpleNamespace()
    )
    run.problem.evaluation = dict.fromkeys(("val", "extrapolate"), range(9))  # of three levels
    run.config.data, run.config.loop = SimpleNamespace(n_answered=3, beams=2), SimpleNamespace(eval_batch_size=3)
    run.config.machine = SimpleNamespace(autocast=None)
    for name, places in (("val", [0, 3, 6]), ("extrapolate", [0, 1, 2])):
        asked.clear()
        answers.free_accuracies(run, name)
        assert asked == 2 * places


@pytest.mark.slow
def test_the_tiny_grid_smaller(here, monkeypatch):
    """As ``dat reproduce mathematics`` does it, on generated questions."""
    fork_workers(monkeypatch)
    small = ["--data.n_train=30", "--data.n_val=3", "--data.n_test=10", "--data.n_answered=5", "--seeds=1"]
    loop = ["--epochs=[2]", "--loop.measure_at=[1]", "--workers=2"]
    assert main(["reproduce", "mathematics", "--out=grid", "--quiet", *small, *loop]) == 0
    with open("grid/results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 and {row["module"] for row in rows} == {*MODULES[:2]}
    assert all(row["interpolate_greedy"] and 0 <= float(row["extrapolate"]) <= 100 for row in rows)
    with open("grid/epochs.csv", newline="") as file:
        earlier = next(csv.DictReader(file))
    assert earlier["epochs"] == "1" and "interpolate_greedy" not in earlier and "interpolate_answers" in earlier
    assert "Extrapolation, whole answers" in Path("grid/comparison.md").read_text()
    assert Path("grid/figures/accuracy.png").stat().st_size > 10_000
    assert main(["plot", "mathematics", "grid", "--out=again", "--against=T-tiny"]) == 0
