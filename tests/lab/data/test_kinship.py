"""Family relations: the solver against families, and what stories do not tell."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random

import pytest
import torch

from dat.data.kinship import (
    ANSWERS,
    ASK,
    COMPOSITIONS,
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
from tests.support.refusals import refused


class Family:
    """Persons with their parents, of four generations; couples have up to four children, and are no relatives."""

    def __init__(self, seed):
        random, self.parents, self.spouse = Random(seed), {}, {}
        self.count = 0
        generation = [self.person() for _ in range(8)]
        for _ in range(3):
            random.shuffle(generation)
            born = []
            for a in generation:
                if a in self.spouse or (a in self.parents and random.random() < 0.2):
                    continue
                b = self.person() if a in self.parents else None  # a stranger, with parents of its own sometimes
                if b is None:
                    continue
                self.marry(a, b)
                if random.random() < 0.6:
                    x, y = self.person(), self.person()
                    self.marry(x, y)
                    for child in (b, *(self.person() for _ in range(random.randint(0, 2)))):
                        self.parents[child] = (x, y)
                born += [self.child(a, b) for _ in range(random.randint(1, 4))]
            if not born:  # the first generation has no parents: couples of strangers
                for a, b in zip(generation[::2], generation[1::2], strict=True):
                    self.marry(a, b)
                    born += [self.child(a, b) for _ in range(random.randint(2, 4))]
            generation = born
        self.children = {}
        for child, pair in self.parents.items():
            for parent in pair:
                self.children.setdefault(parent, []).append(child)

    def person(self):
        self.count += 1
        return self.count

    def marry(self, a, b):
        self.spouse[a], self.spouse[b] = b, a

    def child(self, a, b):
        new = self.person()
        self.parents[new] = (a, b)
        return new

    def step(self, person, kind):
        """Persons that are this to someone, by definition."""
        parents = self.parents.get(person, ())
        if kind == "parent":
            return {*parents}
        if kind == "child":
            return {*self.children.get(person, ())}
        if kind == "sibling":
            return {child for parent in parents for child in self.children[parent]} - {person}
        if kind == "spouse":
            return {self.spouse[person]} if person in self.spouse else set()
        along = {
            "aunt-or-uncle": ("parent", "sibling"),
            "niece-or-nephew": ("sibling", "child"),
            "cousin": ("parent", "sibling", "child"),
            "parent-in-law": ("spouse", "parent"),
            "child-in-law": ("child", "spouse"),
            "grandparent": ("parent", "parent"),
            "grandchild": ("child", "child"),
        }
        if kind == "sibling-in-law":
            return self.walk(person, ("spouse", "sibling")) | self.walk(person, ("sibling", "spouse"))
        return self.walk(person, along[kind])

    def walk(self, person, kinds):
        found = {person}
        for kind in kinds:
            found = {other for one in found for other in self.step(one, kind)}
        return found

    def kinds(self, a, b):
        return {kind for kind in KINDS if b in self.step(a, kind)}


FAMILIES = [Family(seed) for seed in range(6)]


def test_what_is_composed_follows_in_every_family():
    """Of every two relations in the table, between different persons, what they make together, and no second kind."""
    table, seen = compositions(), set()
    for family in FAMILIES:
        for a in range(1, family.count + 1):
            for first, kind in enumerate(KINDS):
                for b in family.step(a, kind):
                    for second, other in enumerate(KINDS):
                        made = int(table[first, second])
                        ends = family.step(b, other) - {a, b} if made != -1 else ()
                        for c in ends:
                            assert made >= 0 and family.kinds(a, c) == {KINDS[made]}, (kind, other)
                            seen.add((first, second))
    assert len(seen) == int((table >= 0).sum())  # each occurs somewhere


def test_chains_in_families_have_the_answers_of_the_solver():
    """Random walks to persons that have not been met: no answer of the solver is wrong, and none of them is refused."""
    random, answered, refused_ones = Random(1), 0, 0
    for family in FAMILIES:
        for _ in range(1500):
            people, steps = [random.randint(1, family.count)], []
            while len(steps) < 8:
                kind = random.choice(STEPS)
                others = sorted(family.step(people[-1], kind) - {*people})
                if not others:
                    break
                people.append(random.choice(others))
                steps.append(kind)
            if not steps:
                continue
            number = 0
            for step in steps:
                number = 3 * number + STEPS.index(step)
            found = int(closed(len(steps))[number])
            refused_ones += found == REFUSED
            if found >= 0:
                assert family.kinds(people[0], people[-1]) == {KINDS[found]}, steps
                answered += len(steps) > 2
    assert answered > 500 and not refused_ones


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


def test_no_chain_has_two_answers():
    """What is refused is refused for want of a family: it has a spouse of a spouse in it."""
    for k in (3, 4, 5, 6):
        for number in (closed(k) == REFUSED).nonzero().squeeze(1).tolist():
            steps = steps_of(torch.tensor([number]), k)[0].tolist()
            text = "".join("pcs"[step] for step in steps).replace("s", "")
            assert "cpcp" in text or "pcpcp" in text or text.count("cp") > 1


def stories(k, n=9000, noise=0, seed=0, **how):
    generator = torch.Generator().manual_seed(seed)
    given = {"names": (0, 40), "shuffled": True, "length": 3 * (k + noise) + 3} | how
    return draw_stories(n, shortest=k, longest=k, noise=noise, generator=generator, **given)


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
        chain = [b for _, _, b in facts]
        if not shuffled and not noise:
            assert chain[-1] == last and all(a == b for (_, _, a), (b, _, _) in pairwise(facts))


def test_short_stories_are_filled_up():
    generator = torch.Generator().manual_seed(0)
    sequences, _ = draw_stories(
        64, shortest=2, longest=4, noise=1, names=(7, 20), shuffled=True, length=20, generator=generator
    )
    tokens, targets = sequences.tokens, sequences.targets
    assert {*(tokens != PAD).sum(1).tolist()} == {12, 15, 18}
    assert torch.equal((targets >= 0).int().argmax(1), (tokens != PAD).sum(1) - 1)
    names = tokens[tokens >= FIRST_NAME] - FIRST_NAME
    assert names.min() >= 7 and names.max() < 27


def test_every_kind_is_known():
    words = COMPOSITIONS.replace(":", "").replace(",", "").split()
    assert {*words} - {"nobody"} <= {*KINDS} and {*ANSWERS} <= {*KINDS}


test_chains_without_one_answer = refused(
    (lambda: relation_of(["child", "parent", "child", "parent"]), "chain: expected .*: no family is like this"),
    (lambda: relation_of(["child", "child", "parent"] * 2), "the answer is open"),
    (lambda: relation_of([]), "the answer is open"),
)
