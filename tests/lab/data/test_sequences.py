"""Synthetic sequence tasks: their definitions hold, and answers agree with slow, plain solutions."""

from collections import Counter
from itertools import permutations

import pytest
import torch

from dat.data.sequences import (
    UNSCORED,
    argsort,
    common,
    in_context_copying,
    linear_equation,
    mqar,
    parity,
    permutation_products,
    permutation_states,
    selective_copying,
)
from tests.support.refusals import refused


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("n", "below"), [(0, 3), (1, 1), (7, 5), (40, 11)])
def test_distinct_numbers_do_not_depend_on_what_is_sorted_at_once(n, below, monkeypatch):
    monkeypatch.setattr(common, "LARGEST_SORT", 12)
    ours, theirs = seeded(), seeded()
    assert torch.equal(common.distinct(n, 1, below, ours), torch.rand(n, below, generator=theirs).argsort(-1)[:, :1])
    assert torch.equal(ours.get_state(), theirs.get_state())


DRAWS = {
    "mqar": lambda n, g: mqar(n, pairs=4, length=32, vocab_size=24, generator=g),
    "selective": lambda n, g: selective_copying(n, remembered=5, length=30, alphabet=6, generator=g),
    "copying": lambda n, g: in_context_copying(n, length=32, vocab_size=40, generator=g),
    "argsort": lambda n, g: argsort(n, shortest=4, longest=7, objects=20, places=12, generator=g),
    "equation": lambda n, g: linear_equation(n, shortest=2, longest=6, generator=g),
    "parity": lambda n, g: parity(n, length=40, generator=g),
    "s3": lambda n, g: permutation_states(n, degree=3, length=20, generator=g),
    "s5": lambda n, g: permutation_states(n, degree=5, length=12, generator=g),
}


def plain(sequences):
    """Tokens, targets and sources of each sequence as lists."""
    return list(zip(*(part.tolist() for part in sequences), strict=True))


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_seed_decides_what_is_drawn(draw):
    one, again, other = draw(200, seeded(1)), draw(200, seeded(1)), draw(200, seeded(2))
    for first, second in zip(one, again, strict=True):
        assert first.dtype == torch.int64 and torch.equal(first, second)
    rows = {tuple(tokens) for tokens in one.tokens.tolist()}
    assert len(rows) == 200 and not rows & {tuple(tokens) for tokens in other.tokens.tolist()}


@pytest.mark.parametrize("name", ["mqar", "selective", "copying", "argsort"])
def test_an_answer_stands_where_its_source_says(name):
    for tokens, targets, sources in plain(DRAWS[name](200, seeded())):
        for place, (target, source) in enumerate(zip(targets, sources, strict=True)):
            assert (target == UNSCORED) == (source == UNSCORED)
            assert target == UNSCORED or (0 <= source < place + 1 and tokens[source] == target)


# Associations -------------------------------------------------------------------------------------------------------


def recalled(tokens: list[int], half: int) -> dict[int, int]:
    """The answer at each position that asks for a key, by reading from the left."""
    values: dict[int, int] = {}
    answers = {}
    for place, token in enumerate(tokens):
        if 0 < token < half and token in values:
            answers[place] = values[token]
        elif 0 < token < half:
            values[token] = tokens[place + 1]
    return answers


def test_every_key_is_asked_for_once_and_its_value_wanted():
    for tokens, targets, _ in plain(mqar(300, pairs=4, length=32, vocab_size=24, generator=seeded())):
        keys, values, rest = tokens[:8:2], tokens[1:8:2], tokens[8:]
        assert len({*keys}) == len({*values}) == 4
        assert all(0 < key < 12 for key in keys) and all(12 <= value < 24 for value in values)
        assert Counter(rest) == Counter({**dict.fromkeys(keys, 1), 0: 20})
        assert all(token == 0 for token in rest[1::2])  # queries stand where keys did, at even places
        answers = recalled(tokens, 12)
        assert answers == {place: target for place, target in enumerate(targets) if target != UNSCORED}
        assert len(answers) == 4


def test_gaps_follow_the_power_law():
    """The first key's place is chosen while all are free, so it has the probabilities themselves."""
    places, power = 12, 0.01
    drawn = mqar(20_000, pairs=4, length=32, vocab_size=24, generator=seeded(), power=power)
    at = (drawn.tokens[:, 8:] == drawn.tokens[:, :1]).float().argmax(-1) // 2
    expected = torch.arange(1, places + 1, dtype=torch.float64) ** (power - 1)
    found = torch.bincount(at, minlength=places) / len(at)
    torch.testing.assert_close(found.double(), expected / expected.sum(), atol=0.012, rtol=0)
    even = mqar(20_000, pairs=4, length=32, vocab_size=24, generator=seeded(), power=1.0)
    counts = (even.tokens[:, 8::2] > 0).float().mean(0)
    torch.testing.assert_close(counts, torch.full((places,), 4 / places), atol=0.015, rtol=0)


test_sequences_that_there_are_not = refused(
    (mqar, {"pairs": 0, "length": 32, "vocab_size": 24}, "pairs: expected at least 1, got 0"),
    (mqar, {"pairs": 4, "length": 14, "vocab_size": 24}, "length: expected at least 16, twice the 4 pairs"),
    (mqar, {"pairs": 4, "length": 33, "vocab_size": 24}, "length: expected an even number, got 33"),
    (mqar, {"pairs": 4, "length": 32, "vocab_size": 8}, "vocab_size: expected at least 10 for 4 pairs, got 8"),
    (mqar, {"pairs": 4, "length": 32, "vocab_size": 25}, "vocab_size: expected an even number, got 25"),
    (selective_copying, {"remembered": 6, "length": 11, "alphabet": 2}, "length: expected at least"),
    (selective_copying, {"remembered": 2, "length": 11, "alphabet": 0}, "alphabet: expected at"),
    (in_context_copying, {"length": 3, "vocab_size": 9}, "length: expected at least 4"),
    (in_context_copying, {"length": 32, "vocab_size": 23}, "vocab_size: expected at least 24"),
    (in_context_copying, {"length": 9, "vocab_size": 9, "shortest": 1}, "shortest: expected at"),
    (permutation_states, {"degree": 7, "length": 3}, "degree: expected 2 to 6, got 7"),
    (parity, {"length": 0}, "length: expected at least 1, got 0"),
    (argsort, {"shortest": 3, "longest": 2, "objects": 9, "places": 9}, "longest: expected at least 3"),
    (argsort, {"shortest": 1, "longest": 9, "objects": 8, "places": 9}, "objects: expected at least 9"),
    (argsort, {"shortest": 1, "longest": 9, "objects": 9, "places": 8}, "places: expected at least 9"),
    (linear_equation, {"shortest": 0, "longest": 2}, "shortest: expected at least 1, got 0"),
    by=lambda draw, arguments: draw(1, generator=seeded(), **arguments),
)


# Copying ------------------------------------------------------------------------------------------------------------


def test_scattered_letters_are_wanted_in_order():
    for tokens, targets, sources in plain(DRAWS["selective"](300, seeded())):
        letters = [token for token in tokens if 0 < token <= 6]
        assert len(letters) == 5 and tokens[-5:] == [7] * 5 and 7 not in tokens[:-5]
        assert targets == [UNSCORED] * 25 + letters
        assert sources[-5:] == sorted(sources[-5:])


def test_letters_stand_everywhere():
    drawn = selective_copying(5000, remembered=2, length=12, alphabet=3, generator=seeded())
    shares = (drawn.tokens[:, :10] > 0).float().mean(0)
    torch.testing.assert_close(shares, torch.full((10,), 0.2), atol=0.025, rtol=0)
    assert drawn.tokens[:, :10].unique().tolist() == [0, 1, 2, 3]


def test_what_repeats_is_told_by_its_one_earlier_place():
    parts = set()
    for tokens, targets, sources in plain(DRAWS["copying"](300, seeded())):
        for place, target in enumerate(targets):
            earlier = [j for j in range(place) if tokens[j] == tokens[place]]
            if place < len(tokens) - 1 and earlier:  # the same token before: what followed it is wanted
                assert len(earlier) == 1 and sources[place] == earlier[0] + 1
                assert target == tokens[earlier[0] + 1] == tokens[place + 1]
            else:
                assert target == UNSCORED
        parts.add(1 + sum(target != UNSCORED for target in targets))
    assert parts == {*range(8, 17)}  # of a random length, so that no distance tells


# State --------------------------------------------------------------------------------------------------------------


def test_parity_step_by_step():
    for bits, targets, sources in plain(DRAWS["parity"](100, seeded())):
        odd = False
        for bit, target in zip(bits, targets, strict=True):
            odd = odd != bool(bit)
            assert target == odd
        assert {*bits} == {0, 1} and {*sources} == {UNSCORED}


@pytest.mark.parametrize(("name", "degree"), [("s3", 3), ("s5", 5)])
def test_states_are_those_of_things_that_are_moved(name, degree):
    """A permutation p moves what is at i to p[i]."""
    elements = list(permutations(range(degree)))
    seen = set()
    for tokens, targets, _ in plain(DRAWS[name](100, seeded())):
        at = list(range(degree))  # place of each thing
        for token, target in zip(tokens, targets, strict=True):
            at = [elements[token][place] for place in at]
            assert elements[target] == tuple(at)
        seen.update(tokens)
    assert len(seen) == len(elements)


def test_products_form_a_group():
    products = permutation_products(3)
    numbers = torch.arange(6)
    assert torch.equal(products[0], numbers) and torch.equal(products[:, 0], numbers)
    assert all(torch.equal(row.sort().values, numbers) for row in products)
    assert torch.equal(products[products], products[:, products])  # (a b) c = a (b c)
    assert not torch.equal(products, products.T)


# Order and equations ------------------------------------------------------------------------------------------------


def test_names_are_wanted_in_the_order_of_their_objects():
    counts = Counter()
    for tokens, targets, _ in plain(argsort(300, shortest=2, longest=7, objects=20, places=12, generator=seeded())):
        sign = tokens.index(33)
        pairs = list(zip(tokens[:sign:2], tokens[1:sign:2], strict=True))
        names, objects = zip(*pairs, strict=True)
        assert list(names) == sorted({*names}) and all(20 < name <= 32 for name in names)
        assert len({*objects}) == len(objects) and all(0 < thing <= 20 for thing in objects)
        wanted = [name for name, _ in sorted(pairs, key=lambda pair: pair[1])]
        m = len(pairs)
        assert targets == [UNSCORED] * sign + wanted + [UNSCORED] * (21 - sign - m)
        assert tokens[sign + 1 :] == wanted[:-1] + [0] * (21 - sign - m)
        counts[m] += 1
    assert {*counts} == {*range(2, 8)}


def test_the_unknown_solves_its_equation():
    factors, seen = {42: 1, 43: 2, 44: 3}, set()
    for tokens, targets, sources in plain(linear_equation(500, shortest=2, longest=6, generator=seeded())):
        equals = tokens.index(45)
        left, right = tokens[:equals], tokens[equals + 1] - 21
        answer = [(place, target - 21) for place, target in enumerate(targets) if target != UNSCORED]
        assert len(answer) == 1 and answer[0][0] == equals + 1 and {*sources} == {UNSCORED}
        multiples = [token for token in left if token in factors]
        constants = [token - 21 for token in left if token not in factors]
        assert len(multiples) == 1 and all(0 < abs(constant) <= 9 for constant in constants)
        solutions = [x for x in range(-9, 10) if factors[multiples[0]] * x + sum(constants) == right]
        assert solutions == [answer[0][1]] and abs(right) <= 20
        assert not any(tokens[equals + 2 :])
        seen.add((len(constants), left.index(multiples[0])))
    assert seen == {(k, place) for k in range(2, 7) for place in range(k + 1)}
