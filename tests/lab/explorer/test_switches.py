"""Effects of switches are those of the interventions that they stand for."""

import math

import pytest
import torch

from dat.explorer.session import Session
from dat.explorer.switches import CONTROLS, Switch, interventions_of, switch_effects
from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.model_analysis.interventions import Ablate, Prediction, Scale, Target, intervene, measure_effects
from tests.lab.explorer.conftest import TEXT, transformer
from tests.support.refusals import refused

HEAD = {"mediator": "head", "layer": "blocks.1", "kind": "sensory", "number": 1}
RELATION = {"mediator": "relation", "layer": "blocks.0", "kind": "relational", "number": 2}
SYMBOL = {"mediator": "symbol", "layer": "blocks.0", "kind": "relational", "number": 0}


def effects(session, *switches, text=TEXT, **request):
    return switch_effects(session, {"text": text, "switches": list(switches), **request})


@pytest.mark.parametrize(
    ("switch", "request_", "expected"),
    [
        (HEAD, {}, Ablate(Target("head", layers=["blocks.1"], heads={"sensory": [1]}))),
        (RELATION, {"change": "mean"}, Ablate(Target("relation", layers=["blocks.0"], relations=[2]), "mean")),
        (SYMBOL, {"change": "scale", "factor": -2}, Scale(Target("symbol", layers=["blocks.0"], heads=[0]), -2)),
    ],
)
def test_effects_are_those_of_interventions(session, switch, request_, expected):
    found = effects(session, switch, **request_)
    document = torch.tensor([ByteTokenizer().encode(TEXT)])
    answers = torch.cat([document[:, 1:], torch.tensor([[-1]])], 1)  # the mean is over the last token, too
    loss, divergence = measure_effects(
        session.model,
        [document],
        {"it": expected},
        metrics=["loss", "kl"],
        predict=lambda model, tokens: Prediction(model(tokens).logits, answers),
    )
    assert found["loss"]["after"] - found["loss"]["before"] == pytest.approx(loss.mean, abs=1e-5)
    # Ours includes the prediction after the last token, which has no right answer.
    with torch.no_grad():
        before = session.model(document).logits[0].log_softmax(-1)
        with intervene(session.model, expected):
            after = session.model(document).logits[0].log_softmax(-1)
    by_place = (before.exp() * (before - after)).sum(-1)
    assert found["divergence"]["after"] == pytest.approx(float(by_place.mean()), abs=1e-6)
    assert float(by_place[:-1].mean()) == pytest.approx(divergence.mean, abs=1e-6)
    assert abs(found["loss"]["after"] - found["loss"]["before"]) > 1e-6
    # Next tokens are in the order of their probability, which is that of the softmax.
    best = before[-1, :256].exp().topk(3)
    assert [one["before"] for one in found["next"][:3]] == pytest.approx(best.values.tolist(), rel=1e-4)
    assert len({one["token"] for one in found["next"]}) == 12
    low, high = found["next"][0]["controls"]
    assert low <= found["next"][0]["control"] <= high


def test_losses_of_tokens(session):
    found = effects(session, HEAD)
    for name in ("before", "after"):
        assert len(found["losses"][name]) == len(TEXT) - 1
        assert math.fsum(found["losses"][name]) / (len(TEXT) - 1) == pytest.approx(found["loss"][name], rel=1e-5)
    assert len(found["loss"]["controls"]) == CONTROLS == len(set(found["loss"]["controls"]))
    assert sum(found["losses"]["control"]) / (len(TEXT) - 1) == pytest.approx(
        sum(found["loss"]["controls"]) / CONTROLS, rel=1e-5
    )


def test_a_place(session):
    """The prediction after an earlier token is that for the text up to there."""
    found, short = effects(session, HEAD, place=4), effects(session, HEAD, text=TEXT[:5])
    assert found["place"] == short["place"] == 4
    for one, other in zip(found["next"], short["next"], strict=True):
        assert one["token"] == other["token"] and one["after"] == pytest.approx(other["after"], rel=1e-4)


def test_several_switches_act_at_once(session):
    both = effects(session, HEAD, RELATION)["loss"]["after"]
    assert both not in (effects(session, HEAD)["loss"]["after"], effects(session, RELATION)["loss"]["after"])
    assert len(interventions_of([Switch(**HEAD), Switch(**{**HEAD, "number": 0}), Switch(**RELATION)])) == 2


def test_a_text_of_one_token_and_a_model_without_relations(session):
    found = effects(session, HEAD, text="x")
    assert found["loss"]["before"] is None and found["losses"]["after"] == [] and found["divergence"]["after"] > 0
    baseline = Session(transformer(), ByteTokenizer(), "a model")
    assert effects(baseline, {**HEAD, "layer": "blocks.0"})["divergence"]["after"] > 0


test_a_model_without_relations = refused(
    (lambda: effects(Session(transformer(), ByteTokenizer(), "a model"), RELATION),
     "expected layers with relational heads that have a relation"),
)  # fmt: skip


def test_nothing_stays_on_the_model(session):
    before = session.packed(TEXT)
    effects(session, HEAD, RELATION, SYMBOL)
    assert session.packed(TEXT) == before
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in session.model.modules())
