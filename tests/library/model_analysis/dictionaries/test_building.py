"""Dictionaries of models: what capturing everything at once gives, in any batches."""

import itertools

import pytest
import torch

from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.dictionaries import DictionarySettings, build_dictionary
from dual_attention.model_analysis.dictionaries.pairs import rounded
from tests.library.model_analysis.models import FAMILIES
from tests.support import language
from tests.support.refusals import refused

SETTINGS = DictionarySettings(top=5, counterexamples=2, context=2)


EMPTY = torch.zeros(0, dtype=torch.long)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return language.lm("symbolic_attention")


@pytest.fixture(scope="module")
def documents() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    lengths = [6] * 9 + [4] * 5 + [1] + [6] * 8
    return [torch.randint(0, 9, (length,), generator=generator) for length in lengths]


def by_hand(model, documents, layer, relation, sign, size):
    """Pairs (value, document, receiver, sender) by a sort of all, one of each two tokens."""
    found = []
    for number, document in enumerate(documents):
        with capture(model, "relations") as maps, torch.no_grad():
            model(document[None])
        values = rounded(maps[layer].relational.relations[0, ..., relation])
        for i, j in itertools.product(range(len(document)), repeat=2):
            if j < i:
                found.append((sign * values[i, j].item(), number, i, j, (int(document[i]), int(document[j]))))
    kept, seen = [], set()
    for value, *place, kind in sorted(found, key=lambda row: (-row[0], *row[1:4])):
        if kind not in seen:
            seen.add(kind)
            kept.append((sign * value, *place))
    return kept[:size]


def test_entries_are_those_of_a_sort_of_all_pairs(model, documents):
    settings = DictionarySettings(top=5, ends=("high", "low"), context=2)
    found = build_dictionary(model, documents, settings, batch_size=4)
    assert found.relations == [(f"blocks.{layer}", r) for layer in range(2) for r in range(2)]
    for (layer, relation), (end, sign) in itertools.product(found.relations, (("high", 1), ("low", -1))):
        entries = found.of(layer, relation, end)
        got = [(e.example.value, e.example.document, e.example.receiver, e.example.sender) for e in entries]
        assert got == by_hand(model, documents, layer, relation, sign, 5)
        assert [entry.rank for entry in entries] == [1, 2, 3, 4, 5]
    for entry in found.entries:
        example, document = entry.example, documents[entry.example.document].tolist()
        assert (document[example.receiver], document[example.sender]) == (example.receiver_token, example.sender_token)
        start = example.sender_context.start
        assert list(example.sender_context.tokens) == document[start : example.sender + 3]
        assert start == max(0, example.sender - 2)


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_batches_change_nothing(model, documents, batch_size):
    assert build_dictionary(model, documents, SETTINGS, batch_size=batch_size) == build_dictionary(
        model, documents, SETTINGS, batch_size=5
    )


def test_counterexamples_are_matched(model, documents):
    settings = DictionarySettings(top=3, counterexamples=3)
    found = build_dictionary(model, documents, settings)
    counts = torch.bincount(torch.cat(list(documents)), minlength=9)
    octave = (counts + 1.0).log2().floor().long().tolist()
    compared = 0
    for entry in found.entries:
        one = entry.example
        for other in entry.counterexamples:
            compared += 1
            assert other.document != one.document
            assert (other.receiver_token, other.sender_token) != (one.receiver_token, one.sender_token)
            assert octave[other.receiver_token] == octave[one.receiver_token]
            assert octave[other.sender_token] == octave[one.sender_token]
            distances = [abs(pair.receiver - pair.sender).bit_length() for pair in (one, other)]
            assert distances[0] == distances[1]
            with capture(model, "relations", layers=entry.layer) as maps, torch.no_grad():
                model(documents[other.document][None])
            value = maps[entry.layer].relational.relations[0, other.receiver, other.sender, entry.relation]
            assert other.value == pytest.approx(value.item(), rel=2**-11)
    assert compared >= len(found.entries)
    other = build_dictionary(model, documents, DictionarySettings(top=3, counterexamples=3, seed=1))
    assert [entry.example for entry in other.entries] == [entry.example for entry in found.entries]
    assert other.entries != found.entries


def test_chosen_relations_and_a_model_left_alone(model, documents):
    model.train()
    found = build_dictionary(model, documents, SETTINGS, layers=1, relations=[1])
    assert found.relations == [("blocks.1", 1)] and model.training
    whole = build_dictionary(model, documents, SETTINGS)
    model.eval()
    assert found.entries == tuple(whole.of("blocks.1", 1))


test_bad_input = refused(
    (lambda model: build_dictionary(model, []), "documents: expected at least one"),
    (lambda model: build_dictionary(model, [EMPTY] * 2), "documents: expected one with tokens, got 2 empty ones"),
    (lambda model: build_dictionary(model, [torch.zeros(3)]), r"documents: .* shape \(N,\), got torch.float32 \(3,\)"),
    (lambda model: build_dictionary(model, [torch.arange(3)], batch_size=0), "batch_size: expected at least 1, got 0"),
    (lambda model: build_dictionary(FAMILIES["encoder transformer"](), [torch.arange(3)]), "kinds"),
    (lambda model: DictionarySettings(top=0), "top: expected at least 1, got 0"),
    (lambda model: DictionarySettings(ends=["middle"]), r"ends: expected some of high, low, got \['middle'\]"),
    (lambda model: DictionarySettings(context=-1), "context: expected at least 0, got -1"),
    by=lambda call, *, model: call(model),
)
