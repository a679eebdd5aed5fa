"""Kinship, a study's experiment: the solver against families, what stories do not tell, runs and refusals."""

import csv
import json
from itertools import pairwise, product
from pathlib import Path
from random import Random

import pytest
import torch

from dat.cli.main import main
from dat.sweeps.grid import cells
from studies.kinship.config import PRESETS, KinshipConfig, KinshipDataConfig
from studies.kinship.data import (
    ANSWERS,
    ASK,
    FIRST_NAME,
    FIRST_WORD,
    KINDS,
    PAD,
    REFUSED,
    STEPS,
    asked_chains,
    closed,
    compositions,
    draw_stories,
    relation_of,
    steps_of,
)
from studies.kinship.experiment import Kinship, story_text
from tests.lab.cli.commands import QUIET, printed, refusal
from tests.support.documents import ROOT
from tests.support.processes import fork_workers
from tests.support.refusals import refused

KINSHIP = Kinship()
FILE = f"{ROOT}/studies/kinship/experiment.py:Kinship"
SMALL = ["--data.n_val=8", "--data.n_test=12", "--loop.steps=2", "--loop.batch_size=4"]
ALONG = {
    "sibling-in-law": [("spouse", "sibling"), ("sibling", "spouse")],
    "aunt-or-uncle": [("parent", "sibling")],
    "niece-or-nephew": [("sibling", "child")],
    "cousin": [("parent", "sibling", "child")],
    "parent-in-law": [("spouse", "parent")],
    "child-in-law": [("child", "spouse")],
    "grandparent": [("parent", "parent")],
    "grandchild": [("child", "child")],
}


class Family:
    """Persons with their parents, of five generations; who marries into it may have parents and siblings."""

    def __init__(self, seed):
        random, self.count = Random(seed), 0
        self.parents, self.children, self.spouse = {}, {}, {}
        generation = self.born(self.couple(), 3)
        for _ in range(3):
            unmarried, generation = generation, []
            for person in unmarried:
                if random.random() < 0.8:
                    known = random.random() < 0.6
                    stranger = self.born(self.couple(), random.randint(1, 3))[0] if known else self.person()
                    generation += self.born(self.couple(person, stranger), random.randint(1, 3))

    def person(self):
        self.count += 1
        return self.count

    def couple(self, *persons):
        a, b = persons or (self.person(), self.person())
        self.spouse |= {a: b, b: a}
        return a, b

    def born(self, parents, n):
        children = [self.person() for _ in range(n)]
        self.parents |= dict.fromkeys(children, parents)
        self.children |= dict.fromkeys(parents, children)
        return children

    def step(self, person, kind):
        """Persons that are this to someone, by definition."""
        if kind in ALONG:
            return set().union(*(self.walk(person, kinds) for kinds in ALONG[kind]))
        parents = self.parents.get(person, ())
        return {
            "parent": {*parents},
            "child": {*self.children.get(person, ())},
            "sibling": {child for parent in parents for child in self.children[parent]} - {person},
            "spouse": {self.spouse[person]} if person in self.spouse else set(),
        }[kind]

    def walk(self, person, kinds):
        found = {person}
        for kind in kinds:
            found = {other for one in found for other in self.step(one, kind)}
        return found

    def kinds(self, a, b):
        return {kind for kind in KINDS if b in self.step(a, kind)}


FAMILIES = [Family(seed) for seed in range(6)]


def test_what_is_composed_follows_in_every_family():
    """Any two relations between different persons compose to the relation in the table, and to no other."""
    table, seen = compositions(), set()
    for family in FAMILIES:
        for a, (first, kind) in product(range(1, family.count + 1), enumerate(KINDS)):
            for b, (second, other) in product(family.step(a, kind), enumerate(KINDS)):
                made = int(table[first, second])
                for c in family.step(b, other) - {a, b} if made != -1 else ():
                    assert made >= 0 and family.kinds(a, c) == {KINDS[made]}, (kind, other)
                    seen.add((first, second))
    assert len(seen) == int((table >= 0).sum())  # each occurs somewhere


def test_chains_in_families_have_the_answers_of_the_solver():
    """Random walks to persons that have not been met: no answer of the solver is wrong, and none of them is refused."""
    random, answered = Random(1), 0
    for family in FAMILIES * 1500:
        people, steps, number = [random.randint(1, family.count)], [], 0
        while len(steps) < 8:
            step = random.randrange(3)
            others = sorted(family.step(people[-1], STEPS[step]) - {*people})
            if not others:
                break
            people.append(random.choice(others))
            steps.append(STEPS[step])
            number = 3 * number + step
        found = int(closed(len(steps))[number]) if steps else -1
        assert found != REFUSED
        if found >= 0:
            assert family.kinds(people[0], people[-1]) == {KINDS[found]}, steps
            answered += len(steps) > 2
    assert answered > 500


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_closed_graphs_by_brute_force(k):
    """Every order of composing a chain gives the same relation or none, one composition at a time."""
    table = compositions()

    def made(kinds):
        if len(kinds) == 1:
            return {kinds[0]}
        splits = [(made(kinds[:m]), made(kinds[m:])) for m in range(1, len(kinds))]
        found = {int(table[a, b]) for left, right in splits for a in left for b in right if min(a, b) >= 0}
        inner = {REFUSED} if any(REFUSED in side for pair in splits for side in pair) else set()
        return (found | inner) - {-1}

    for number, steps in enumerate(product(range(3), repeat=k)):
        answer, found = int(closed(k)[number]), made(steps)
        assert (answer == REFUSED) == (REFUSED in found or len(found) > 1)
        assert answer == REFUSED or found == ({answer} - {-1})


test_chains_without_one_answer = refused(
    (lambda: relation_of(["child", "parent", "child", "parent"]), "chain: expected .*: no family is like this"),
    (lambda: relation_of(["child", "child", "parent"] * 2), "the answer is open"),
    (lambda: relation_of([]), "the answer is open"),
)


def stories(k, n=9000, noise=0, **how):
    generator = torch.Generator().manual_seed(0)
    given = {"shortest": k, "names": (0, 40), "shuffled": True, "length": 3 * (k + noise) + 3} | how
    return draw_stories(n, longest=k, noise=noise, generator=generator, **given)


@pytest.mark.parametrize("k", [3, 4, 7, 10])
def test_answers_are_even_and_steps_alone_tell_no_more_than_a_third(k):
    sequences, guesses = stories(k)
    answers = sequences.targets.max(1).values
    counts = torch.bincount(answers - FIRST_WORD, minlength=len(ANSWERS)).double()
    expected = len(answers) / len(ANSWERS)
    assert ((counts - expected).square() / expected).sum() < 26.1  # chi-square with 8 degrees of freedom, p = .001
    bound = 4 * (2 / 9 / len(answers)) ** 0.5
    assert abs((guesses == answers).double().mean() - 1 / 3) < bound
    # The commonest answer to each bag of steps, fitted on half of the stories.
    words = torch.stack([(sequences.tokens == FIRST_WORD + step).sum(1) for step in range(3)], 1)
    bag = words[:, 0] * (k + 1) + words[:, 1]
    known = torch.zeros((k + 1) ** 2, FIRST_NAME).index_put_((bag[::2], answers[::2]), torch.ones(1), accumulate=True)
    right = (known.argmax(1)[bag[1::2]] == answers[1::2]).double().mean()
    assert abs(right - 1 / 3) < 2 * bound


def test_groups_have_the_same_steps_and_one_answer():
    for k in (2, 5, 8):
        known = asked_chains(k)
        for start, count in zip(known.starts.tolist(), known.counts.tolist(), strict=True):
            chains = known.chains[start : start + count]
            assert len(closed(k)[chains].unique()) == 1
            assert len(steps_of(chains, k).sort(1).values.unique(dim=0)) == 1


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("noise", [0, 3])
def test_stories_tell_a_chain_and_what_does_not_matter(shuffled, noise):
    sequences, _ = stories(5, 50, noise, shuffled=shuffled)
    for tokens, targets in zip(sequences.tokens.tolist(), sequences.targets.tolist(), strict=True):
        *facts, (ask, first, last) = [tokens[i : i + 3] for i in range(0, len(tokens), 3)]
        assert ask == ASK and targets[-1] == max(targets) and sorted(targets)[-2] == -1
        assert len({b for _, _, b in facts}) == len(facts) == 5 + noise  # of everybody but the first one thing is said
        towards = {b: (a, word) for a, word, b in facts}
        steps, person = [], last
        while person != first:
            person, word = towards[person]
            steps.insert(0, STEPS[word - FIRST_WORD])
        assert relation_of(steps) == ANSWERS[targets[-1] - FIRST_WORD] and len(steps) == 5
        if not shuffled and not noise:
            assert facts[-1][2] == last and all(a == b for (_, _, a), (b, _, _) in pairwise(facts))


def test_short_stories_are_filled_up():
    sequences, _ = stories(4, 64, 1, shortest=2, names=(7, 20), length=20)
    tokens, targets = sequences.tokens, sequences.targets
    assert {*(tokens != PAD).sum(1).tolist()} == {12, 15, 18}
    assert torch.equal((targets >= 0).int().argmax(1), (tokens != PAD).sum(1) - 1)
    names = tokens[tokens >= FIRST_NAME] - FIRST_NAME
    assert names.min() >= 7 and names.max() < 27


def prepared(task="shuffled", model="T", **data):
    config = KinshipConfig(task=task, data=KinshipDataConfig(**data), model=PRESETS[model])
    return KINSHIP.prepare(config, cache=Path()).problem


def test_models_are_as_large():
    models = [keys.empty(KinshipConfig().vocab_size) for keys in PRESETS.values()]
    sizes = [sum(p.numel() for p in model.parameters() if p.requires_grad) for model in models]
    assert max(sizes) < 1.01 * min(sizes), sizes


def test_sets_hold_what_training_has_not():
    problem, again = prepared(n_test=64), prepared(n_test=64)
    assert {*problem.evaluation} == {"val", "names", "noise", *map(str, range(3, 11))}
    batches = [one.train.batch(torch.arange(256)) for one in (problem, again)]
    assert all(torch.equal(a, b) for a, b in zip(*batches, strict=True))
    tokens = {name: examples.tensors[0] for name, examples in problem.evaluation.items()}
    tokens["train"] = batches[0][0]
    new = {*range(FIRST_NAME + 40, FIRST_NAME + 60)}
    names = {name: {*of_set[of_set >= FIRST_NAME].tolist()} for name, of_set in tokens.items()}
    assert names["names"] <= new and not any(found & new for name, found in names.items() if name != "names")
    facts = {name: {*((of_set != 0).sum(1) // 3 - 1).tolist()} for name, of_set in tokens.items()}
    assert facts["10"] == {11} and facts["noise"] == {8, 9, 10}
    assert not {*map(tuple, tokens["train"].tolist())} & {*map(tuple, tokens["4"].tolist())}


def test_hidden_relations_are_all_one():
    shown, hidden = prepared(n_test=64), prepared(n_test=64, blind=True)
    for name in ("10", "val"):
        (a, targets, *_), (b, same, *_) = (one.evaluation[name].tensors for one in (shown, hidden))
        words = (a >= FIRST_WORD) & (a < FIRST_NAME)
        assert torch.equal(targets, same) and (b[words] == FIRST_WORD).all() and torch.equal(a[~words], b[~words])


def accuracy(**data):
    short = {"noise": 0, "more_noise": 1, "shortest": 1, "longest": 2, "lengths": (2,), "n_test": 900}
    problem = prepared("in-order", "T-positions", **short, **data)
    optimizer = torch.optim.Adam(problem.model.parameters(), lr=2e-3)
    for step in range(60):
        loss, _ = problem.loss(problem.model, problem.train.batch(torch.arange(32 * step, 32 * step + 32)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():  # in training mode: there is no dropout, and heads are not looked at
        return float(problem.loss(problem.model, problem.evaluation["2"].batch(torch.arange(900)))[1]["accuracy"])


@pytest.mark.slow
def test_a_model_learns_short_chains_and_nothing_without_relations():
    assert accuracy() > 0.6
    assert accuracy(blind=True) < 0.2 + 4 * (0.16 / 900) ** 0.5  # one of five answers


def test_a_model_is_trained_and_evaluated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--preset=T-relative", "--data.lengths=[3,4,6]", "--model.n_layers=1", *SMALL, *QUIET]
    assert main(["train", FILE, "--output.name=run", *words]) == 0
    result = json.loads(Path("runs/run/result.json").read_text())
    assert {*result["accuracy"]} == {*result["rule"]} == {"val", "3", "4", "6", "names", "noise"}
    row = KINSHIP.row(result)
    assert row["beyond"] == pytest.approx(100 * result["accuracy"]["6"], abs=1e-2)
    assert row["rule_within"] == pytest.approx(50 * (result["rule"]["3"] + result["rule"]["4"]), abs=1e-2)
    found = json.loads(printed(capsys, "evaluate", "runs/run", "--experiment", FILE, "--json", "--machine.threads=1"))
    assert found["names"]["accuracy"] == pytest.approx(result["accuracy"]["names"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--data.lengths=[5,4]", "data.lengths: expected different lengths from 2 to 1,024, ascending, got (5, 4)"),
        ("--data.lengths=[11]", "data.lengths: expected at most 10, got (11,)"),
        ("--data.names=11", "data.lengths: expected no more persons than data.names=11, needs 12 for 10 relations"),
        ("--data.new_names=5", "data.new_names: expected no more persons than data.new_names=5, needs 6 for 4"),
        ("--data.more_noise=36", "data.more_noise: expected no more persons than data.names=40, needs 41"),
        ("--data.shortest=5", "data.shortest: expected an integer from 1 to 4, got 5"),
        ("--data.names=90 --data.more_noise=50", "model.context: expected at least 165, the tokens of a sequence"),
        ("--model.relative_positions=0", "model.relative_positions: expected an integer of at least 1 or null"),
    ],
)
def test_wrong_settings(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert message in refusal(capsys, "train", FILE, *words.split(), *QUIET) and not Path("runs").exists()


def test_grids_that_come_with_it_can_be_run(tmp_path, monkeypatch):
    for grid in KINSHIP.scales.values():
        configs = [grid.config(cell) for cell in cells(KINSHIP, grid)]
        assert all(min(config.data.lengths) <= config.data.longest < max(config.data.lengths) for config in configs)
    fork_workers(monkeypatch)
    monkeypatch.chdir(tmp_path)
    words = ["--scale=tiny", "--out=grid", "--quiet", "--workers=1", "--models=[RCA]", *SMALL]
    assert main(["reproduce", FILE, *words]) == 0
    with open("grid/results.csv", newline="") as file:
        [row] = csv.DictReader(file)
    assert 0 <= float(row["at_6"]) <= 100 and row["rule_beyond"]
    assert "names never trained on" in Path("grid/comparison.md").read_text().lower()


def test_a_picture_is_drawn(tmp_path):
    picture = tmp_path / "kinship.png"
    assert main(["data", FILE, f"--out={picture}"]) == 0
    assert picture.read_bytes()[:4] == b"\x89PNG"
    tokens, *_ = KinshipConfig().draw("10", 1, 0)
    *facts, question = story_text(tokens[0])
    assert len(facts) == 11 and question.startswith("Who is ") and all(any(w in f for w in ANSWERS) for f in facts)
