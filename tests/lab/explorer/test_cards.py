"""Cards of relations say what follows from the weights."""

import math

import pytest
import torch

from dat.explorer.cards import PAIRS, card
from dat.explorer.exporting import Exporter
from dat.explorer.session import Session
from dat.explorer.view_state import View
from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.model_analysis.capture import capture
from tests.lab.explorer.conftest import TEXT, dat, rows_of, transformer
from tests.lab.explorer.test_ablations import without
from tests.support.refusals import refused

LAYER, NUMBER = "blocks.1", 2


@pytest.fixture(scope="module")
def session():
    return Session(dat(), ByteTokenizer(), "a model", {"weights": "abc"})


@pytest.fixture(scope="module")
def found(session):
    return card(session, {"text": TEXT, "layer": LAYER, "relation": NUMBER})


def heads_of(model):
    with torch.no_grad(), capture(model, ["relations", "contribution"]) as maps:
        logits = model(torch.tensor([[*TEXT.encode()]])).logits[0].log_softmax(-1)
    return maps[LAYER].relational, logits


def area(values, positive, negative):
    """The share of comparisons that are won, by counting."""
    won = [(values[p] > values[n]) + 0.5 * (values[p] == values[n]) for p in positive for n in negative]
    return sum(map(float, won)) / len(won)


def test_a_card_says_what_follows_from_the_weights(session, found):
    whole, before = heads_of(session.model)
    part = type("Part", (), {"layer": LAYER, "kind": "relational", "mediator": "relation", "number": NUMBER})
    rest, after = heads_of(without(session, part))
    relation = whole.relations[0, ..., NUMBER].double()
    asymmetry = (relation - relation.T).norm() / (relation + relation.T).norm()
    assert found["asymmetry"] == pytest.approx(float(asymmetry), rel=1e-5)
    others = rest.contribution[0].sum(0)  # the layer reads the same, and writes without the relation
    own = (whole.contribution[0].sum(0) - others).norm(dim=-1)
    assert found["share"] == pytest.approx(float((own / (own + others.norm(dim=-1))).mean()), rel=1e-3)
    answers = torch.tensor([*TEXT.encode()[1:]])
    losses = [-one[range(len(answers)), answers].mean() for one in (before, after)]
    assert found["effect"][0] == pytest.approx(float(losses[1] - losses[0]), abs=2e-5)
    assert found["effect"][1] == pytest.approx(float((before.exp() * (before - after)).sum(-1).mean()), abs=2e-5)
    assert len(found["effects_random"]) == 5 and (found["weights"], found["tokens"]) == ("abc", len(TEXT))


def test_areas_are_counted_within_strata(session, found):
    values = heads_of(session.model)[0].relations[0, ..., NUMBER]
    pairs = [(i, j) for i in range(len(TEXT)) for j in range(i)]
    by_name = {one["name"]: one for one in found["labels"]}
    assert list(by_name) == ["same token", "same word", "previous token", "near"]

    def expected(label, pairs, stratum):
        areas = []
        for positive in filter(label, pairs):
            alike = [one for one in pairs if not label(one) and stratum(one) == stratum(positive)]
            areas += [area(values, [positive], alike)] if alike else []
        return sum(areas) / len(areas), len(areas)

    def distance(pair):
        return pair[0] - pair[1]

    def same(pair):
        return TEXT[pair[0]] == TEXT[pair[1]]

    ends = [i for i in range(len(TEXT)) if (TEXT + " ")[i + 1] == " " and TEXT[i] != " "]  # of words
    word = {end: TEXT[: end + 1].rpartition(" ")[2] for end in ends}
    words = [pair for pair in pairs if set(pair) <= set(ends)]
    for name, wanted in {
        "same token": expected(same, pairs, distance),
        "same word": expected(lambda pair: word[pair[0]] == word[pair[1]], words, distance),
        "previous token": expected(lambda pair: pair[0] - pair[1] == 1, pairs, same),
        "near": expected(lambda pair: pair[0] - pair[1] <= 4, pairs, same),
    }.items():
        one = by_name[name]
        assert (one["auc"], one["pairs"]) == pytest.approx(wanted, abs=1e-6), name
        assert set(one["controls"]) == {"attention", "cosine", "random projections", "untrained"}
        furthest = max(abs(end - 0.5) for ends in one["controls"].values() for end in ends)
        assert one["beyond"] == (abs(one["auc"] - 0.5) > furthest) and 0 < one["p"] <= 1


def test_pairs_are_the_largest_and_those_beside_them_are_like_them(session, found):
    values = heads_of(session.model)[0].relations[0, ..., NUMBER]
    for end, sign in (("high", 1), ("low", -1)):
        best = {}
        for i in range(len(TEXT)):
            for j in range(i):
                best[TEXT[i], TEXT[j]] = max(best.get((TEXT[i], TEXT[j]), -math.inf), sign * float(values[i, j]))
        wanted = sorted(best.values(), reverse=True)[:PAIRS]
        entries = [one for one in found["pairs"] if one["end"] == end]
        assert [sign * one["example"]["value"] for one in entries] == pytest.approx(wanted, abs=1e-5)
        assert any(one["counterexamples"] for one in entries)
        for one in entries:
            pairs = [
                (pair["receiver"]["place"], pair["sender"]["place"])
                for pair in (one["example"], *one["counterexamples"])
            ]
            assert len({int(math.log2(i - j)) for i, j in pairs}) == 1
            assert all((TEXT[i], TEXT[j]) != (TEXT[pairs[0][0]], TEXT[pairs[0][1]]) for i, j in pairs[1:])


def test_a_card_of_little(session):
    short = card(session, {"text": "x", "layer": LAYER, "relation": 0})
    assert [one["pairs"] for one in short["labels"]] == [0, 0, 0, 0] and short["pairs"] == []
    assert short["effect"][0] is None and short["effect"][1] > 0


def test_a_card_as_a_file(session, found, tmp_path):
    Exporter(session, TEXT, View.of(f"page=card&layer=1&relation={NUMBER}")).write(tmp_path / "a.csv")
    rows = {row["measure"]: row for row in rows_of(tmp_path / "a.csv")}
    assert float(rows["share"]["value"]) == pytest.approx(found["share"])
    assert float(rows["divergence"]["control_largest"]) == max(one[1] for one in found["effects_random"])


def not_finite():
    model = dat()
    with torch.no_grad():
        model.get_parameter("layers.blocks.0.dual_attn.relational_attention.wq_rel.weight").fill_(torch.nan)
    return model


ASKED = {"text": TEXT, "layer": "blocks.0", "relation": 0}

test_models_that_have_no_card = refused(
    (transformer, r"layer: expected one with relations \(there is none\), got 'blocks.0'"),
    (not_finite, "scores: expected finite values"),
    by=lambda model: card(Session(model(), ByteTokenizer(), "a model"), ASKED),
)
