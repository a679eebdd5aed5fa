"""Progressive matrices, a study's experiment: rules by brute force, answers that tell nothing, runs and refusals."""

import csv
import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from dat.cli.main import main
from dat.sweeps.grid import cells
from dat.training.experiment import count_parameters
from studies.matrices.config import MatricesConfig, MatricesDataConfig
from studies.matrices.data import (
    CONTEXT,
    RULES,
    MatrixRules,
    completions,
    filled_grids,
    likeliest_by_counting,
    rendered,
    sample_matrices,
)
from studies.matrices.experiment import ProgressiveMatrices
from studies.matrices.model import PRESETS
from tests.lab.cli.commands import QUIET, printed, refusal
from tests.support.documents import ROOT
from tests.support.processes import fork_workers

pytestmark = pytest.mark.sweep(3)

MATRICES = ProgressiveMatrices()
FILE = f"{ROOT}/studies/matrices/experiment.py:ProgressiveMatrices"
QUICK = ["--data.n_val=8", "--data.n_test=12", "--loop.batch_size=4"]
SMALL = MatrixRules(attributes=4, values=6, ruled=2, noise=1, more_noise=2, answers=4, held_out_values=2)
SETS = ("train", "values", "pairs", "noise")
N = 4000


def solutions(panels, values):
    """The answers that follow every rule that a context shows."""
    given = completions(panels[:, :CONTEXT].transpose(1, 2), values)[:, None]
    fits = (given == panels[:, CONTEXT:, :, None]).any(-1) | (given < 0).all(-1)
    return fits.all(-1)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


RIGHT = {
    "constant": lambda rows: all(len({*row}) == 1 for row in rows),
    "progression": lambda rows: len(steps := {x for a, b, c in rows for x in (b - a, c - b)}) == 1 and 0 not in steps,
    "sum": lambda rows: all(a + b == c for a, b, c in rows),
    "difference": lambda rows: all(a - b == c for a, b, c in rows),
    "distribution": lambda rows: (
        len({frozenset(row) for row in rows}) == 1
        and all(len({*line}) == 3 for line in (*rows, *zip(*rows, strict=True)))
    ),
}


def test_completions_are_those_of_brute_force():
    grids = [*product(range(3), repeat=8)][::3]  # every third context of three values
    for grid, found in zip(grids, completions(torch.tensor(grids), 3).tolist(), strict=True):
        for fits, last in zip(RIGHT.values(), found, strict=True):
            right = [x for x in range(3) if fits((grid[:3], grid[3:6], (*grid[6:], x)))]
            assert right == [last] * (last >= 0)


@pytest.mark.parametrize(("values", "held_out"), [(4, 0), (5, 0), (5, 1), (7, 1), (7, 2)])
def test_every_rule_that_is_allowed_leads_to_several_answers(values, held_out):
    rules = MatrixRules(values=values, held_out_values=held_out, held_out_rules=0)
    for name in ("train", "values") if held_out else ("train",):
        for rule, allowed in zip(RULES, rules.allowed(name)[0].tolist(), strict=True):
            assert (len(filled_grids(rule, values, held_out, name == "values").answers) > 1) == allowed, (name, rule)


def test_grids_are_all_those_of_a_rule():
    found = {tuple(grid) for grid in filled_grids("progression", 4, 0, False).grids.tolist()}
    rows = [(v, v + s, v + 2 * s) for v in range(4) for s in (-1, 1) if 0 <= v + 2 * s < 4]
    every = [sum(three, ()) for three in product(rows, repeat=3)]
    clear = {
        grid
        for grid in every
        if len({grid[3 * i + 1] - grid[3 * i] for i in range(3)}) == 1
        and {*completions(torch.tensor(grid[:8]), 4).tolist()} <= {-1, grid[8]}
    }
    assert found == clear


@pytest.mark.parametrize("name", SETS)
def test_exactly_the_right_answer_follows_the_rules(name):
    for rules in (SMALL, MatrixRules()):
        panels, labels = sample_matrices(300, rules, name, generator())
        fits = solutions(panels, rules.values)
        assert (fits.sum(1) == 1).all() and (fits.int().argmax(1) == labels).all()
        wrong = panels.clone()
        wrong[torch.arange(300), CONTEXT + labels] = 99  # the right one taken away
        assert not solutions(wrong, rules.values).any()


@pytest.mark.parametrize("name", SETS)
def test_answers_alone_do_not_tell_the_right_one(name):
    panels, labels = sample_matrices(N, SMALL, name, generator())
    answers = panels[:, CONTEXT:]
    bound = 4 * (0.25 * 0.75 / N) ** 0.5
    alike = (answers[:, :, None] == answers[:, None]).sum((2, 3))
    for guess in (alike.argmax(1), alike.argmin(1), answers.sum(2).argmax(1), torch.zeros_like(labels)):
        assert abs((guess == labels).double().mean() - 0.25) < bound
    # One logistic regression for all answers, on each value of each attribute: fitted on half, measured on the rest.
    features = torch.nn.functional.one_hot(answers, SMALL.values).flatten(2).double()
    features = torch.cat((features, alike[..., None].double()), -1)
    weights = torch.zeros(features.shape[-1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=40)

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(features[::2] @ weights, labels[::2]) + 1e-3 * weights.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    right = ((features[1::2] @ weights).argmax(1) == labels[1::2]).double().mean()
    assert abs(right - 0.25) < bound * 2**0.5


def test_right_and_wrong_values_are_drawn_alike():
    """In each pair of values of an attribute, either value is the right one equally often."""
    panels, labels = sample_matrices(20_000, SMALL, "train", generator())
    rows = torch.arange(len(labels))
    right = panels[rows, CONTEXT + labels]
    wrong = panels[rows, CONTEXT + (labels ^ 3)]  # in both attributes with a rule
    for attribute in range(SMALL.attributes):
        a, b = right[:, attribute], wrong[:, attribute]
        counts = torch.zeros(SMALL.values, SMALL.values).index_put_((a, b), torch.ones(len(a)), accumulate=True)
        gap = (counts - counts.T).abs()
        assert (gap <= 5 * (counts + counts.T).sqrt() + 1).all()


def test_sets_hold_what_training_has_not():
    rules = MatrixRules()
    below = rules.values - rules.held_out_values
    train = sample_matrices(1000, rules, "train", generator())[0]
    assert train.max() < below
    unseen = sample_matrices(1000, rules, "values", generator())[0]
    held = (unseen[:, :6] >= below).unflatten(1, (2, 3)).any(2).all(1)  # both rows that are whole, by attribute
    assert (held.sum(1) >= rules.ruled).all()
    assert not (rules.allowed("train") & rules.allowed("pairs")).any()
    assert (rules.allowed("train") | rules.allowed("pairs")).all()
    varying = {name: (sample_matrices(1000, rules, name, generator())[0].double().std(1) > 0) for name in SETS}
    assert varying["noise"].sum(1).double().mean() > varying["train"].sum(1).double().mean() + 1.5


def test_rules_without_order_where_codes_have_none():
    assert MatricesDataConfig(held_out_rules=0).allowed("values")[0].tolist() == [True, False, False, True]


def test_counting_is_a_rule_and_not_an_oracle():
    panels, labels = sample_matrices(N, MatrixRules(), "train", generator())
    right = (likeliest_by_counting(panels) == labels).double().mean()
    assert 0.125 < right < 0.4
    shuffled = panels[:, torch.cat((torch.arange(CONTEXT).flip(0), torch.arange(CONTEXT, 16)))]
    assert torch.equal(likeliest_by_counting(shuffled), likeliest_by_counting(panels))  # of no order


@pytest.mark.parametrize("form", ["codes", "numbers", "drawings"])
def test_different_panels_look_different(form):
    for values, attributes in ((4, 6), (12, 2)):
        panels = torch.tensor([*product(range(values), repeat=attributes)])
        shown, again = (rendered(panels, form, values=values, width=2 * values, seed=0).flatten(1) for _ in range(2))
        assert len(shown.unique(dim=0)) == len(panels) and torch.equal(shown, again)


def test_draws_depend_on_the_generator_only():
    for rules in (SMALL, replace(SMALL, noise=0)):
        same = [sample_matrices(50, rules, "noise", generator(seed))[0] for seed in (1, 1, 2)]
        assert torch.equal(same[0], same[1]) and not torch.equal(same[0], same[2])


EASY = {"rules": ("constant",), "attributes": 3, "values": 5, "ruled": 1, "noise": 0, "more_noise": 0, "answers": 2}
EASY |= {"held_out_values": 0, "held_out_rules": 0, "n_test": 1000}


def prepared(**data):
    config = MatricesConfig(data=MatricesDataConfig(**data), model=PRESETS["corelnet"])
    return MATRICES.prepare(config, cache=Path()).problem


@pytest.mark.parametrize("form", ["codes", "numbers", "drawings"])
def test_sets_are_drawn_apart_and_alike_in_every_run(form):
    first, again = (prepared(form=form, n_test=40) for _ in range(2))
    assert {*first.evaluation} == {"val", "test", "values", "pairs", "noise"}
    batches = [problem.train.batch(torch.arange(256)) for problem in (first, again)]
    assert all(torch.equal(a, b) for a, b in zip(*batches, strict=True))
    trained = {tuple(row) for row in batches[0][0].flatten(1).tolist()}
    for examples in first.evaluation.values():
        assert not trained & {tuple(row) for row in examples.tensors[0].flatten(1).tolist()}


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("form", ["codes", "drawings"])
def test_scores_follow_the_order_of_answers(name, form):
    """Answers in another order have the same scores; panels of the context in another order have others."""
    data = MatricesDataConfig(form=form, values=6, held_out_values=2)
    config = MatricesConfig(data=data, model=PRESETS[name])
    panels, *_ = config.draw("train", 3, 0)
    model = config.model.build(data.panel_shape, seed=0).eval()
    scores, order = model(panels), torch.tensor([3, 1, 0, 2, 7, 6, 5, 4])
    turned = torch.cat((panels[:, :8], panels[:, 8:][:, order]), 1)
    torch.testing.assert_close(model(turned), scores[:, order])
    assert scores.shape == (3, 8)
    other = torch.cat((panels[:, :8].flip(1), panels[:, 8:]), 1)
    assert not torch.allclose(model(other), scores, atol=1e-6)
    assert count_parameters(config.model.empty(data.panel_shape)) == count_parameters(model)


@pytest.mark.parametrize("form", ["codes", "numbers", "drawings"])
def test_hidden_contexts_are_all_alike(form):
    drawn = [MatricesConfig(data=MatricesDataConfig(form=form, blind=blind)).draw("train", 20, 0) for blind in (0, 1)]
    (shown, labels, _), (hidden, same, _) = drawn
    assert not hidden[:, :8].any() and torch.equal(hidden[:, 8:], shown[:, 8:]) and torch.equal(labels, same)


def trained(**data):
    """Accuracy after 150 steps."""
    problem = prepared(**data)
    optimizer = torch.optim.Adam(problem.model.parameters(), lr=3e-3)
    for step in range(150):
        loss, _ = problem.loss(problem.model, problem.train.batch(torch.arange(32 * step, 32 * step + 32)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(problem.loss(problem.model, problem.evaluation["test"].batch(torch.arange(1000)))[1]["accuracy"])


def test_a_model_learns_a_small_case_and_nothing_without_the_context():
    assert trained(**EASY) > 0.8
    assert abs(trained(**EASY, blind=True) - 0.5) < 4 * (0.25 / 1000) ** 0.5


@pytest.mark.slow
def test_a_model_with_heads_of_the_users_own_is_trained_and_evaluated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--preset=transformer-places", "--data.form=drawings", "--loop.steps=2", *QUICK, *QUIET]
    words += [f"--model.heads={ROOT}/examples/parts.py:Averaging", "--output.name=run"]
    assert main(["train", FILE, *words]) == 0
    result = json.loads(Path("runs/run/result.json").read_text())
    assert {*result["accuracy"]} == {*result["rule"]} == {"val", "test", "values", "pairs", "noise"}
    found = json.loads(printed(capsys, "evaluate", "runs/run", "--experiment", FILE, "--json", "--machine.threads=1"))
    assert found["noise"]["accuracy"] == pytest.approx(result["accuracy"]["noise"])
    assert f"{result['parameters']:,}" in printed(capsys, "info", "runs/run")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--data.held_out_values=12", "data.held_out_values: expected 0 to 6, so that 4 of 10 are trained on"),
        ("--data.values=13", "data.values: expected an integer from 4 to 12, got 13"),
        ("--data.held_out_rules=4", "data.held_out_rules: expected 0 to 3, so that one is trained on, got 4"),
        ("--data.rules=[constant,constant]", "data.rules: expected different rules, at least one"),
        ("--data.ruled=5", "data.more_noise: expected 0 to 1, the attributes without a rule, got 3"),
        ("--data.answers=6", "data.answers: expected a power of two from 2 to 8, of 3 attributes with a rule, got 6"),
        ("--data.form=drawings --data.attributes=7", "data.attributes: expected at most 6 in drawings, got 7"),
        ("--data.form=drawings --data.width=19", "data.width: expected at least 20 pixels for 10 values, got 19"),
        ("--data.rules=[arithmetic,progression]", "one that can be asked in the set values with codes"),
        ("--model.n_heads_sa=3", "model.d_model: expected a multiple of the 5 heads, got 64"),
        ("--preset=scl --model.d_model=60", "d_model: expected a multiple of n_groups=8, got 60"),
    ],
)
def test_wrong_settings(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(MatricesConfig, "draw", lambda *_: pytest.fail("drawn"))
    assert message in refusal(capsys, "train", FILE, *words.split(), *QUIET)


def test_grids_that_come_with_it_can_be_run(tmp_path, monkeypatch):
    for grid in MATRICES.scales.values():
        assert {grid.config(cell).data.form for cell in cells(MATRICES, grid)} == {*grid.forms}
    fork_workers(monkeypatch)
    monkeypatch.chdir(tmp_path)
    words = ["--scale=tiny", "--out=grid", "--quiet", "--workers=1", "--models=[dat]", "--steps=[1]", *QUICK]
    assert main(["reproduce", FILE, *words]) == 0
    with open("grid/results.csv", newline="") as file:
        [row] = csv.DictReader(file)
    assert 0 <= float(row["pairs"]) <= 100 and row["test_rule"]
    assert "rules never trained on with these attributes" in Path("grid/comparison.md").read_text()


def test_a_picture_is_drawn(tmp_path):
    picture = tmp_path / "matrices.png"
    assert main(["data", FILE, f"--out={picture}"]) == 0
    assert picture.read_bytes()[:4] == b"\x89PNG"
