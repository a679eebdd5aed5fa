"""Matrices: rules against brute force, one right answer, and nothing in the answers that tells it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch

from dat.data.matrices import (
    CONTEXT,
    RULES,
    MatrixRules,
    completions,
    filled_grids,
    likeliest_by_counting,
    rendered,
    sample_matrices,
)

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


def last_values(rule, grid, values):
    """The ninth values by the words of a rule, one row of a grid after another."""
    rows = [grid[:3], grid[3:6]]

    def fits(row):
        return {
            "constant": row[0] == row[1] == row[2],
            "progression": row[1] - row[0] == row[2] - row[1] != 0,
            "sum": row[0] + row[1] == row[2],
            "difference": row[0] - row[1] == row[2],
            "distribution": len({*row}) == 3,
        }[rule]

    found = []
    for last in range(values):
        whole = [*rows, [*grid[6:8], last]]
        if not all(map(fits, whole)):
            continue
        if rule == "progression" and len({row[1] - row[0] for row in whole}) > 1:
            continue
        if rule == "distribution":
            same = len({frozenset(row) for row in whole}) == 1
            if not same or any(len({*column}) < 3 for column in zip(*whole, strict=True)):
                continue
        found.append(last)
    assert len(found) < 2
    return found[0] if found else -1


def test_completions_are_those_of_brute_force():
    grids = torch.tensor(list(product(range(3), repeat=8)))  # every context of three values
    names = ("constant", "progression", "sum", "difference", "distribution")
    wanted = [[last_values(name, grid, 3) for name in names] for grid in grids[::3].tolist()]
    assert completions(grids[::3], 3).tolist() == wanted


@pytest.mark.parametrize("values", [4, 5, 7])
@pytest.mark.parametrize("held_out", [0, 1, 2])
def test_every_rule_that_is_allowed_leads_to_several_answers(values, held_out):
    if values - held_out < 4:
        held_out = values - 4
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
    """Of the pairs of values of an attribute, each is as often right as the other."""
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
    class Unordered(MatrixRules):
        ordered = False

    allowed = Unordered(held_out_rules=0).allowed("values")[0]
    assert dict(zip(RULES, allowed.tolist(), strict=True)) == {
        "constant": True,
        "progression": False,
        "arithmetic": False,
        "distribution": True,
    }


def test_counting_is_a_rule_and_not_an_oracle():
    panels, labels = sample_matrices(N, MatrixRules(), "train", generator())
    right = (likeliest_by_counting(panels) == labels).double().mean()
    assert 0.125 < right < 0.4
    shuffled = panels[:, torch.cat((torch.arange(CONTEXT).flip(0), torch.arange(CONTEXT, 16)))]
    assert torch.equal(likeliest_by_counting(shuffled), likeliest_by_counting(panels))  # of no order


@pytest.mark.parametrize(("form", "width"), [("codes", 8), ("numbers", 8), ("drawings", 8)])
def test_different_panels_look_different(form, width):
    values = 4
    panels = torch.tensor(list(product(range(values), repeat=6)))
    shown = rendered(panels, form, values=values, width=width, seed=0).flatten(1)
    assert len(shown.unique(dim=0)) == len(panels)
    assert torch.equal(shown, rendered(panels, form, values=values, width=width, seed=0).flatten(1))
    most = rendered(torch.tensor(list(product(range(12), repeat=2))), "drawings", values=12, width=24, seed=0)
    assert len(most.flatten(1).unique(dim=0)) == 144


def test_draws_depend_on_the_generator_only():
    for rules in (SMALL, replace(SMALL, noise=0)):
        same = [sample_matrices(50, rules, "noise", generator(seed))[0] for seed in (1, 1, 2)]
        assert torch.equal(same[0], same[1]) and not torch.equal(same[0], same[2])
