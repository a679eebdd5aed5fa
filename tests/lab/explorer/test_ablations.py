"""Effects of ablations are those of edited weights, and of the same interventions one by one."""

import copy
import json
from typing import Any

import pytest
import torch

from dat.data.mathematics import START, VOCABULARY
from dat.explorer.ablations import MOST_EXAMPLES, ablated, ablations
from dat.explorer.images import ImageSession
from dat.explorer.questions import QuestionSession
from dat.explorer.session import Session
from dat.explorer.switches import Switch, switch_effects
from dual_attention import TransformerLM
from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.model_analysis.sites import find_sites
from tests.lab.explorer.conftest import TEXT, dat, transformer, vision
from tests.lab.explorer.test_questions import QUESTION, model_of
from tests.lab.explorer.test_server import ask


def language(model=None):
    session = Session(model or dat(), ByteTokenizer(), "a model")
    tokens = torch.tensor([ByteTokenizer().encode(TEXT)])
    return session, {"text": TEXT}, lambda model: model(tokens).logits[0], tokens[0, 1:]


def questions():
    session = QuestionSession(model_of(), "a model")
    labels = [label.replace("␣", " ") for label in session.record(QUESTION).sequences["answer"][1:]]
    question, read = session.question(QUESTION), torch.tensor([[START, *map(VOCABULARY.index, labels)]])
    with torch.no_grad():
        answer = session.model(question, read, read)[0][0].argmax(-1)  # greedily
    return session, {"text": QUESTION}, lambda model: model(question, read, read)[0][0], answer


def images():
    session = ImageSession(vision(), "a model", mean=(0.5,) * 3, std=(0.25,) * 3)
    pixels, _ = session.pixels("game occurs")
    x = (pixels[None].float() / 255 - 0.5) / 0.25
    with torch.no_grad():
        answer = session.model(x).argmax(-1)
    return session, {"pixels": session.packed("game occurs")["image"]["pixels"]}, lambda model: model(x), answer


SYMBOLS: dict[str, dict[str, Any]] = {
    "symbolic_attention": {},
    "positional_symbols": {
        "symbol_retrieval": "positional_symbols",
        "symbol_retrieval_kwargs": {"symbol_dim": 32, "max_length": 64},
    },
    "position_relative": {
        "symbol_retrieval": "position_relative",
        "symbol_retrieval_kwargs": {"symbol_dim": 32, "max_rel_pos": 64},
        "ra_kwargs": {"n_relations": 4, "use_relative_positional_symbols": True},
    },
}


def without(session, part):
    """The model with zeros in the weights of a part, which is what takes it away."""
    model = copy.deepcopy(session.model)
    (site,) = [site for site in find_sites(model) if (site.layer, site.kind) == (part.layer, part.kind)]
    width = site.module.head_dim
    own = slice(part.number * width, (part.number + 1) * width)
    with torch.no_grad():
        if part.mediator == "head":
            site.module.wo.weight[:, own] = 0
        elif part.mediator == "relation":
            site.module.wr[..., part.number] = 0
        else:
            site.module.wv.weight[own] = 0
    return model


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "subject",
    [language, lambda: language(transformer()), questions, images],
    ids=["language", "transformer", "questions", "images"],
)
def test_effects_are_those_of_edited_weights(subject):
    session, request, logits, answers = subject()
    found = ablated(session, {**request, "draws": 0})
    parts = [Switch(**part) for part in found["parts"]]
    mediators = {"head"} if isinstance(session.model, TransformerLM) else {"head", "relation", "symbol"}
    assert {part.mediator for part in parts} == mediators and len(parts) == len(set(parts))
    assert found["passes"] == 1 + len(parts) and found["controls"] == [[]] * len(parts)
    with torch.no_grad():
        before = logits(session.model).log_softmax(-1)
        for part, (rise, divergence) in zip(parts, found["effects"], strict=True):
            after = logits(without(session, part)).log_softmax(-1)
            losses = [-one[range(len(answers)), answers].mean() for one in (before, after)]
            assert rise == pytest.approx(float(losses[1] - losses[0]), abs=2e-5), part
            by_place = (before.exp() * (before - after)).sum(-1)
            assert divergence == pytest.approx(float(by_place.mean()), abs=2e-5), part
    assert max(abs(rise) for rise, _ in found["effects"]) > 1e-3
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in session.model.modules())


@pytest.mark.slow
@pytest.mark.parametrize("symbols", SYMBOLS)
@pytest.mark.parametrize("change", ["zero", "mean", "scale"])
def test_batches_compute_what_the_page_of_interventions_does(symbols, change):
    """Also where symbols are the same for all examples, or belong to pairs."""
    model = dat(**SYMBOLS[symbols])
    session = Session(model, ByteTokenizer(), "a model")
    about = {"text": TEXT, "change": change, "factor": 2.0}
    found = ablated(session, {**about, "draws": 5})
    assert len(found["parts"]) > MOST_EXAMPLES  # several batches
    for part, (rise, divergence), controls in zip(
        found["parts"][::3], found["effects"][::3], found["controls"][::3], strict=True
    ):
        one = switch_effects(session, {**about, "switches": [part]})
        assert rise == pytest.approx(one["loss"]["after"] - one["loss"]["before"], abs=2e-5)
        assert divergence == pytest.approx(one["divergence"]["after"], abs=2e-5)
        rises = [value - one["loss"]["before"] for value in one["loss"]["controls"]]
        assert controls == [
            pytest.approx(pair, abs=2e-5) for pair in zip(rises, one["divergence"]["controls"], strict=True)
        ]


def test_batches_stop_when_nobody_reads_them():
    session, request, *_ = language()
    calls = []
    session.model.register_forward_hook(lambda *_: calls.append(1))
    parts = ablations(session, request)
    for _ in range(2):
        next(parts)
    assert len(calls) == 2  # as it is, and the first batch
    parts.close()
    assert len(calls) == 2 and session.packed(TEXT)


def test_a_text_of_one_token_has_no_loss():
    session, *_ = language()
    found = ablated(session, {"text": "x", "draws": 1})
    assert found["loss"] is None and {rise for rise, _ in found["effects"]} == {None}
    assert max(divergence for _, divergence in found["effects"]) > 0


@pytest.mark.parametrize("pixels", [None, {}, {"type": "u1", "shape": [1], "data": "AA=="}, {"type": "x"}, "AA"])
def test_pixels_that_are_none(serve, pixels):
    server = serve(vision())
    status, body, _ = ask(server, json.dumps({"pixels": pixels}), path="/ablate")
    assert status == 400 and "The request needs" in json.loads(body)["error"]
