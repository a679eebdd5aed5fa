"""Cards of relations of image classifiers say what follows from the weights and the pictures."""

import json
from dataclasses import replace

import pytest
import torch

from dat.explorer.cards import PAIRS
from dat.explorer.exporting import Exporter
from dat.explorer.image_cards import image_card
from dat.explorer.images import ImageSession
from dat.explorer.packing import unpacked_array
from dat.explorer.view_state import View
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.interventions import Ablate, Target, intervene
from tests.lab.explorer.conftest import rows_of, vision
from tests.lab.explorer.test_baselines import session_of
from tests.lab.explorer.test_cards import area
from tests.lab.explorer.test_server import ask

LAYER, NUMBER, FIRST = "blocks.0", 1, 1  # a class token before the patches


@pytest.fixture(scope="module")
def session():
    return ImageSession(vision(), "a model", {"weights": "abc"}, task="same", names=("different", "same"))


@pytest.fixture(scope="module")
def found(session):
    return image_card(session, {"layer": LAYER, "relation": NUMBER})


@pytest.fixture(scope="module")
def seen(session, found):
    """Relations of all pictures, their two objects, answers, and predictions."""
    pictures, answers = session.pictures(found["pictures"])
    with torch.no_grad(), capture(session.model, ["relations"], layers=LAYER) as maps:
        before = session.model(session.normalised(pictures)).log_softmax(-1)
    with torch.no_grad(), intervene(session.model, Ablate(Target("relation", layers=LAYER, relations=NUMBER), "mean")):
        after = session.model(session.normalised(pictures)).log_softmax(-1)
    cells = pictures.unflatten(2, (3, 12)).unflatten(4, (3, 12)).sum((1, 3, 5)).flatten(1)
    objects = cells.topk(2).indices.sort().values + FIRST
    return maps[LAYER].relational.relations[..., NUMBER], objects, answers, before, after


def test_effects_are_of_all_pictures(found, seen):
    _, _, answers, before, after = seen
    losses = [-one[range(len(answers)), answers].mean() for one in (before, after)]
    right = [float((one.argmax(-1) == answers).float().mean()) for one in (before, after)]
    assert found["effect"][0] == pytest.approx(float(losses[1] - losses[0]), abs=2e-5)
    assert found["effect"][1] == pytest.approx(float((before.exp() * (before - after)).sum(-1).mean()), abs=2e-5)
    assert [found["right"], found["effect"][2]] == pytest.approx(right)
    assert len({tuple(one) for one in found["effects_random"]}) == 5


def test_equal_objects_are_told_apart_from_others_at_the_same_places(found, seen):
    values, objects, answers, *_ = seen
    areas = []
    for b in answers.nonzero()[:, 0].tolist():
        for i, j in (objects[b].tolist(), objects[b].tolist()[::-1]):
            others = [c for c in range(len(answers)) if not answers[c] and torch.equal(objects[c], objects[b])]
            own = {one: values[one, i, j] for one in (b, *others)}
            areas += [area(own, [b], others)] if others else []
    (label,) = found["labels"]
    assert label["name"] == "equal patches" and label["pairs"] == len(areas)
    assert label["auc"] == pytest.approx(sum(areas) / len(areas), abs=1e-9)
    assert set(label["controls"]) == {"attention", "cosine", "random projections", "untrained"}


def test_pairs_are_the_strongest_of_different_pictures_and_counterexamples_at_the_same_places(session, found, seen):
    values, objects, answers, *_ = seen
    rows = torch.arange(len(answers))
    both = torch.stack([values[rows, objects[:, 0], objects[:, 1]], values[rows, objects[:, 1], objects[:, 0]]])
    for end, best in (("high", both.amax(0).sort(descending=True)), ("low", both.amin(0).sort())):
        entries = [one for one in found["pairs"] if one["end"] == end]
        assert [one["example"]["value"] for one in entries] == pytest.approx(best.values[:PAIRS].tolist(), abs=1e-4)
        for entry, picture in zip(entries, best.indices.tolist(), strict=False):
            own = entry["example"]
            assert own["picture"] == picture and {own["i"], own["j"]} == set(objects[picture].tolist())
            for other in entry["counterexamples"]:
                assert (other["i"], other["j"]) == (own["i"], own["j"]) and other["picture"] != picture
                assert other["value"] == pytest.approx(float(values[other["picture"], own["i"], own["j"]]), abs=1e-5)
    pictures, _ = session.pictures(found["pictures"])
    for number, one in found["shown"].items():
        assert torch.equal(unpacked_array(one["pixels"]).permute(2, 0, 1), pictures[int(number)])
        assert one["answer"] == session.names[answers[int(number)]]


def test_values_by_answer(found, seen):
    values, objects, answers, *_ = seen
    rows = torch.arange(len(answers))
    both = torch.stack([values[rows, objects[:, 0], objects[:, 1]], values[rows, objects[:, 1], objects[:, 0]]])
    for label, name in enumerate(("different", "same")):
        (one,) = [one for one in found["answers"] if one["name"] == name]
        wanted = both.amax(0)[answers == label].quantile(torch.tensor([0.05, 0.5, 0.95])).tolist()
        assert one["pictures"] == 128
        assert [one[part] for part in ("low", "median", "high")] == pytest.approx(wanted, abs=1e-4)


@pytest.mark.slow
def test_they_are_served_and_exported(serve, session, tmp_path):
    server = serve(session=session, text="game same")
    status, body, _ = ask(server, json.dumps({"layer": LAYER, "relation": 7}), path="/card")
    assert status == 422 and "relation: expected a number from 0 to 2, got 7" in json.loads(body)["error"]
    view = View.of(f"page=card&layer=0&relation={NUMBER}")
    Exporter(session, "game same", view).write(tmp_path / "card.csv")
    rows = {row["measure"]: row["value"] for row in rows_of(tmp_path / "card.csv")}
    assert rows["pictures"] == "256" and {"share", "right", "AUC equal patches", "strongest pair, same"} <= set(rows)
    Exporter(session, "game same", view).write(tmp_path / "card.html")
    assert f'"{LAYER} {NUMBER}"' in (tmp_path / "card.html").read_text()


def test_a_model_that_attends_to_nothing_has_cards(tmp_path):
    compares = replace(session_of("corelnet"), task="same", names=("different", "same"))
    Exporter(compares, "game same", View.of("card")).write(tmp_path / "card.csv")
    measures = {row["measure"] for row in rows_of(tmp_path / "card.csv")}
    assert {one for one in measures if "," in one and "AUC" in one} == {
        "AUC equal patches, cosine",
        "AUC equal patches, untrained",
    }


def test_models_of_other_pictures_have_none(serve):
    plain = ImageSession(vision(), "a model")
    with pytest.raises(ValueError, match="pictures: there are none of the kind that this model was trained on"):
        image_card(plain, {"layer": LAYER, "relation": 0})
    assert ask(serve(session=plain, text="game same"), "{}", path="/card")[0] == 404
