"""Patching from a second input, one mediator at a time."""

import math

import pytest
import torch

from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.interventions import (
    Patch,
    Prediction,
    Target,
    intervene,
    measure_patching,
    mediator_targets,
    predict_answers,
)
from dual_attention.model_analysis.interventions.predictions import logit_differences
from tests.library.model_analysis.interventions.support import logits
from tests.library.model_analysis.models import FAMILIES, call, hooks
from tests.support import seq2seq
from tests.support.language import close, lm, tokens

METRICS = ("recovery", "logit_difference", "loss", "kl")


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", [name for name in FAMILIES if not name.startswith("encoder")])
def test_the_same_input_changes_nothing(name):
    model = FAMILIES[name]()
    run = call(name, model)
    with capture(model) as source:
        wanted = run().detach()
    for targets in (mediator_targets(model), mediator_targets(model, by="head")):
        assert targets
        for target in targets.values():
            with torch.no_grad(), intervene(model, Patch(target), source=source):
                close(run(), wanted, 1e-12)
    assert not hooks(model)


@pytest.mark.parametrize("kind", ["symbolic_attention", "positional_symbols", "position_relative", "transformer"])
def test_all_mediators_make_the_heads_do_what_they_did(kind):
    model, (x, other) = lm(kind), tokens(2, 9)[:, None]
    with capture(model) as source:
        model(other)
    patched = logits(model, x, [Patch(target) for target in mediator_targets(model).values()], source)
    close(patched, logits(model, x, Patch(Target("head")), source), 1e-12)
    assert (patched - model(x).logits).abs().max() > 1e-3
    for part in ("value", "selection"):  # one of them does not
        assert (logits(model, x, Patch(Target(part)), source) - patched).abs().max() > 1e-6


def test_values_are_those_of_the_senders():
    """One head and one sender, against a message computed by hand."""
    model, (x, other) = lm("symbolic_attention"), tokens(2, 9)[:, None]
    with capture(model, layers=0) as source:
        model(other)
    with capture(model, layers=0) as before:
        model(x)
    target = Target("value", layers=0, heads=1, senders=[3])
    with intervene(model, Patch(target), source=source), capture(model, "head_output", layers=0) as after:
        model(x)
    old, new = before[0].sensory, source[0].sensory
    change = old.weights[:, 1, :, 3, None] * (new.values[:, 1, 3] - old.values[:, 1, 3])[:, None]
    close(after[0].sensory.head_output[:, 1] - old.head_output[:, 1], change, 1e-12)
    assert torch.equal(after[0].sensory.head_output[:, 0], old.head_output[:, 0])


def test_measures_are_those_of_interventions_by_hand():
    model, (x, other) = lm("symbolic_attention"), tokens(4, 9).unflatten(0, (2, 2))
    answers, foils = torch.tensor([3, 5]), torch.tensor([4, 7])
    targets = {**mediator_targets(model), "all": list(mediator_targets(model).values())}
    effects = measure_patching(model, x, other, targets, predict=predict_answers(answers, foils), metrics=METRICS)
    assert [(effect.name, effect.metric) for effect in effects] == [(name, one) for name in targets for one in METRICS]
    with capture(model) as source:
        goal = model(other).logits[:, -1]
    row = torch.arange(2)

    def difference(z):
        return z[row, answers] - z[row, foils]

    before = model(x).logits[:, -1]
    for name, given in targets.items():
        recovery, moved, loss, kl = (torch.tensor(e.values, dtype=torch.float64) for e in effects if e.name == name)
        listed = [given] if isinstance(given, Target) else given
        after = logits(model, x, [Patch(target) for target in listed], source)[:, -1]
        change = difference(after) - difference(before)
        close(moved, change, 1e-9)
        close(recovery, change / (difference(goal) - difference(before)), 1e-9)
        p, q = before.log_softmax(-1), after.log_softmax(-1)
        close(loss, (p - q)[row, answers], 1e-9)
        close(kl, (p.exp() * (p - q)).sum(-1), 1e-9)


def test_the_whole_stream_recovers_the_answer_and_equal_inputs_recover_none():
    """Embeddings aside: the second input differs in an earlier token only, and one layer's heads carry all of it."""
    model, x = lm("symbolic_attention", n_layers=1), tokens(1, 9)
    other = x.clone()
    other[:, 2] = (other[:, 2] + 1) % 11
    targets = {"all": Target("head"), "each": list(mediator_targets(model).values())}
    for effect in measure_patching(model, x, other, targets, predict=predict_answers(3, 4)):
        assert effect.values == pytest.approx((1.0,), abs=1e-9)
    (equal,) = measure_patching(model, x, x, {"all": Target("head")}, predict=predict_answers(3, 4))
    assert math.isnan(equal.values[0])


def test_one_other_input_for_documents_with_answers_of_their_own():
    model, x = lm("symbolic_attention"), tokens(3, 9)
    documents, other, targets = x[:2], x[2:], mediator_targets(model)
    answers, foils = torch.tensor([3, 5]), torch.tensor([4, 7])
    together = measure_patching(model, documents, other, targets, predict=predict_answers(answers, foils))
    for place in range(2):
        predict = predict_answers(int(answers[place]), int(foils[place]))
        alone = measure_patching(model, documents[place : place + 1], other, targets, predict=predict)
        assert [effect.values[0] for effect in alone] == pytest.approx([effect.values[place] for effect in together])


def test_differences_are_not_rounded_to_half_precision():
    logits = torch.tensor([[100.0, 0.296875]], dtype=torch.bfloat16)  # their difference in bfloat16 would be 99.5
    assert logit_differences(Prediction(logits, torch.tensor([0]), torch.tensor([1]))).tolist() == [99.703125]


def test_images_and_answers_of_sequences():
    images = torch.randn(2, 1, 1, 8, 8, dtype=torch.float64)
    labels = torch.tensor([1]), torch.tensor([0])
    model = FAMILIES["vision"]()
    targets = mediator_targets(model, 1)
    assert list(targets)[:2] == ["blocks.1 sensory selection", "blocks.1 sensory value"]
    found = measure_patching(model, *images, targets, predict=lambda model, x: Prediction(model(x), *labels))
    assert len(found) == 5 and any(abs(effect.values[0]) > 1e-6 for effect in found)
    model = FAMILIES["seq2seq"]()
    source, target = seq2seq.words()
    inputs = (source[:1], target[:1]), (source[1:2], target[:1])

    def last(model, document):
        return Prediction(model(document[0], document[1], document[1])[0][:, -1], *labels)

    found = measure_patching(model, *inputs, mediator_targets(model), predict=last)
    assert any(effect.name.startswith("decoder.0.cross sensory value") and effect.values[0] for effect in found)


def test_what_is_refused():
    model, (x, other) = lm("symbolic_attention"), tokens(2, 9)[:, None]
    predict, targets = predict_answers(1, 2), mediator_targets(model)
    for arguments, options, message in (
        ((x, other[:, 1:], targets), {}, r"other: expected shape \(1, 9\), or one of those, got \(1, 8\)"),
        ((x, torch.cat([other, other]), targets), {}, r"other: expected shape \(1, 9\), or one of those"),
        ((x[0], other[0], targets), {}, r"document: expected token ids \(B, N\), got shape \(9,\)"),
        ((x, other, targets), {"predict": predict_answers(-1, 2)}, "answers: expected token ids from 0 to 10, got -1"),
        ((x, other, targets), {"predict": predict_answers(1, 11)}, "foils: expected token ids from 0 to 10, got 11"),
        ((x, other, {}), {}, "targets: expected at least one, got none"),
        ((x, other, targets), {"metrics": ["gain"]}, "metrics: expected some of recovery, loss"),
        ((x, other, targets), {"predict": predict_answers(1, 2, place=9)}, "place: expected a number from -9 to 8"),
    ):
        with pytest.raises(ValueError, match=message):
            measure_patching(model, *arguments, **{"predict": predict, **options})
    for wrong in (1.5, torch.tensor([1, 2])):
        with pytest.raises(TypeError, match=r"answers: expected a token id, or integers \(1,\), got"):
            measure_patching(model, x, other, targets, predict=predict_answers(wrong, 2))
    with pytest.raises(ValueError, match="by: expected 'kind' or 'head', got 'layer'"):
        mediator_targets(model, by="layer")
    assert not hooks(model)
