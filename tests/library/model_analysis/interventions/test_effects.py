"""Effects of interventions: exact, direct and to first order, against other computations."""

import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.interventions import (
    Ablate,
    Effect,
    PartEffect,
    Patch,
    Prediction,
    Rotated,
    Scale,
    Steer,
    Target,
    approximate_effects,
    effects_over,
    faithfulness,
    intervene,
    intervene_directly,
    measure_effects,
    predict_next_tokens,
)
from dual_attention.model_analysis.sites import find_sites
from tests.library.hf.models import causal
from tests.library.model_analysis.models import FAMILIES, WITH_PARTS, call, hooks
from tests.support.language import VOCAB, close, lm, tokens
from tests.support.refusals import refusals, refused
from tests.support.seq2seq import build as seq2seq

HEAD = Ablate(Target("head", layers=0, heads={"relational": 1}))
X = tokens(2, 9)
EFFECTS = [Effect("0", "loss", (1.0, 2.0)), Effect("0", "kl", (1.0, 2.0))]
SOME = {
    "head": HEAD,
    "relation": Ablate(Target("relation", layers=0, relations=1), "mean"),
    "symbol": Ablate(Target("symbol", layers=1), "resample"),
    "selection": Scale(Target("selection", layers=1, heads={"sensory": 0}), 0.5),
    "pair": Ablate(Target("symbol", layers=0, pairs=[(5, 2), (3, 3)])),
    "two": [HEAD, Steer(Target("relation", layers=1), 0.3)],
}


def losses(model, x):
    logits = model(x[:, :-1]).logits
    return F.cross_entropy(logits.transpose(1, 2), x[:, 1:], reduction="none").mean(1)


def foiled(model, document):
    """Predictions of the last token of each document, beside a wrong one."""
    logits = model(document[:, :-1]).logits[:, -1]
    return Prediction(logits, document[:, -1], (document[:, -1] + 1) % VOCAB)


# ---- exact effects


def test_changes_of_losses_and_logit_differences():
    model, documents = lm("symbolic_attention"), [tokens(3, 9), tokens(2, 7)]
    effects = measure_effects(model, documents, SOME | {"pair": HEAD}, metrics=["loss", "kl"])
    assert [(effect.name, effect.metric) for effect in effects] == [(n, m) for n in SOME for m in ("loss", "kl")]
    for number, (name, intervention) in enumerate((SOME | {"pair": HEAD}).items()):
        changes, divergences = [], []
        for x in documents:
            before, old = losses(model, x), model(x[:, :-1]).logits.log_softmax(-1)
            with intervene(model, intervention):
                after, new = losses(model, x), model(x[:, :-1]).logits.log_softmax(-1)
            changes += (after - before).tolist()
            divergences += F.kl_div(new, old, reduction="none", log_target=True).sum(-1).mean(1).tolist()
        assert effects[2 * number].values == pytest.approx(changes, abs=1e-12), name
        assert effects[2 * number + 1].values == pytest.approx(divergences, abs=1e-12), name
    (effect,) = measure_effects(model, documents, {"head": HEAD}, metrics=["logit_difference"], predict=foiled)
    found = []
    for x in documents:
        right, wrong = x[:, -1:], (x[:, -1:] + 1) % VOCAB
        sides = []
        for interventions in ((), HEAD):
            with intervene(model, interventions):
                logits = model(x[:, :-1]).logits[:, -1]
            sides.append((logits.gather(1, right) - logits.gather(1, wrong))[:, 0])
        found += (sides[1] - sides[0]).tolist()
    assert effect.values == pytest.approx(found)


def test_what_is_not_scored_does_not_count():
    model, x = lm("symbolic_attention"), tokens(2, 9)

    def predict(model, document):
        prediction = predict_next_tokens(model, document)
        return Prediction(prediction.logits, prediction.targets.masked_fill(torch.arange(8) < 5, -1))

    (effect,) = measure_effects(model, [x], {"head": HEAD}, predict=predict)
    with intervene(model, HEAD):
        after = F.cross_entropy(model(x[:, :-1]).logits[:, 5:].transpose(1, 2), x[:, 6:], reduction="none").mean(1)
    before = F.cross_entropy(model(x[:, :-1]).logits[:, 5:].transpose(1, 2), x[:, 6:], reduction="none").mean(1)
    assert effect.values == pytest.approx((after - before).tolist())


def test_impossible_tokens_add_nothing_to_a_divergence():
    model, x = lm("symbolic_attention"), tokens(2, 9)

    def predict(model, document, impossible=-torch.inf):
        logits = model(document[:, :-1]).logits.clone()
        logits[..., 3:5] = impossible
        return Prediction(logits, document[:, 1:])

    how = {"metrics": ["kl"]}
    (effect,) = measure_effects(model, [x], {"head": HEAD}, predict=predict, **how)
    (nearly,) = measure_effects(model, [x], {"head": HEAD}, predict=partial(predict, impossible=-1e4), **how)
    assert effect.values == pytest.approx(nearly.values) and min(effect.values) > 0


def test_the_model_is_left_as_it_was():
    model = lm("symbolic_attention", dropout_rate=0.5).train()
    for measure in (measure_effects, approximate_effects):
        one = measure(model, [tokens(2, 9)], {"head": HEAD})
        assert len(one[0].values) == 2
        assert model.training and not hooks(model)
        assert all(parameter.grad is None for parameter in model.parameters())
    x = tokens(2, 9)
    assert measure_effects(model, [x], {"head": HEAD}) == measure_effects(model, [x], {"head": HEAD})  # no dropout


def test_transformers_classes():
    model, x = causal(), tokens(3, 9)
    for direct in (False, True):
        ours, theirs = (measure_effects(each, [x], {"head": HEAD}, direct=direct) for each in (model.model, model))
        assert ours[0].values == pytest.approx(theirs[0].values, rel=1e-4)
    assert approximate_effects(model, [x], {"head": HEAD})[0].values == pytest.approx(
        approximate_effects(model.model, [x], {"head": HEAD})[0].values, rel=1e-4
    )


# ---- intervals


def test_intervals():
    values = torch.randn(12, generator=torch.Generator().manual_seed(3), dtype=torch.float64).add(0.4)
    effect = Effect("head", "loss", tuple(values.tolist()))
    wanted = stats.t.interval(0.9, 11, loc=values.mean(), scale=stats.sem(values.numpy()))
    assert effect.interval(0.9) == pytest.approx(wanted)
    assert effect.p == pytest.approx(stats.ttest_1samp(values.numpy(), 0).pvalue)
    low, high = effect.interval(0.9, method="bootstrap")
    wanted = stats.bootstrap((values.numpy(),), np.mean, confidence_level=0.9, method="percentile", random_state=0)
    assert (low, high) == pytest.approx(tuple(wanted.confidence_interval), abs=0.03)
    assert (low, high) == effect.interval(0.9, method="bootstrap")
    assert str(effect).startswith("head: loss +") and "12 documents" in str(effect)
    assert str(Effect("head", "loss", (0.5,))) == "head: loss +0.5000 (one document)"
    unknown = Effect("head", "recovery", (0.5, float("nan"), 0.2))  # of one document, whose answers are the same
    for method in ("t", "bootstrap"):
        assert all(map(math.isnan, unknown.interval(method=method)))
    assert str(unknown) == "head: recovery +nan [+nan, +nan], 3 documents"


# ---- direct effects


@pytest.mark.parametrize("name", [name for name in FAMILIES | WITH_PARTS if not name.startswith("seq2seq")])
def test_the_direct_effect_of_a_head_is_that_of_its_contribution(name):
    """Taken from the last state, without any layer computing again."""
    model = (FAMILIES | WITH_PARTS)[name]()
    run = call(name, model)
    norm = model.layers.norm if name.startswith("language") else model.norm
    ends = []
    handle = norm.register_forward_pre_hook(lambda _, args: ends.append(args[0].detach()))
    with capture(model, "contribution", layers=0) as maps:
        run()
    handle.remove()
    for heads in maps.only.heads():
        target = Target("head", layers=0, heads={heads.kind: 1})
        with torch.no_grad(), intervene_directly(model, Ablate(target)):
            found = run()
        handle = norm.register_forward_pre_hook(lambda _, args, heads=heads: (ends[0] - heads.contribution[:, 1],))
        close(run(), found)
        handle.remove()
    assert not hooks(model)


def test_in_a_last_layer_without_feed_forward_all_effects_are_direct():
    models = {"language": lm("symbolic_attention"), "seq2seq": seq2seq("symbolic_attention")}
    x, y = tokens(3, 9), torch.randint(6, (3, 7))
    runs = {"language": lambda: models["language"](x).logits, "seq2seq": lambda: models["seq2seq"](x, y, y)[0]}
    blocks = {"language": models["language"].layers.blocks[1], "seq2seq": models["seq2seq"].layers["decoder_blocks"][1]}
    layers = {"language": "blocks.1", "seq2seq": "decoder.1.cross"}
    for name, run in runs.items():
        with torch.no_grad():
            for parameter in blocks[name].ff_block.parameters():
                parameter.zero_()
        for mediator in ("head", "selection") if name == "seq2seq" else ("head", "relation", "symbol", "selection"):
            intervention = Ablate(Target(mediator, layers=layers[name]), "resample")
            with intervene(models[name], intervention):
                whole = run()
            with intervene_directly(models[name], intervention):
                close(run(), whole)


def test_direct_effects_need_all_places_and_the_side_of_the_target():
    model, x, y = seq2seq("symbolic_attention"), tokens(3, 9), torch.randint(6, (3, 7))
    heads = Ablate(Target("head", layers="decoder"))
    with intervene_directly(model, heads), pytest.raises(ValueError, match=r"^model: expected a call with targets"):
        model(x, y)
    assert not hooks(model)


def test_direct_effects_do_not_pass_later_layers():
    model, x = lm("symbolic_attention"), tokens(3, 9)
    with capture(model) as before:
        model(x)
    with intervene_directly(model, HEAD), capture(model) as maps:
        direct = model(x).logits
    for one, other in zip(before.heads(), maps.heads(), strict=True):
        for name, values in one.kept.items():
            assert torch.equal(values, other.get(name))
    with intervene(model, HEAD):
        assert (model(x).logits - direct).abs().max() > 1e-3
    exact, only = (measure_effects(model, [x], {"head": HEAD}, direct=direct)[0] for direct in (False, True))
    assert exact.values != only.values


def test_the_second_computation_repeats_dropout():
    heads = {kind: {"dropout": 0.5} for kind in ("sa_kwargs", "ra_kwargs")}
    model, x, found = lm("symbolic_attention", **heads).train(), tokens(2, 9), []
    for intervening in (intervene, intervene_directly):
        torch.manual_seed(0)
        with torch.no_grad(), intervening(model, Ablate(HEAD.target, strength=0.0)):
            found.append((model(x, x).logits, torch.get_rng_state()))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_direct_effects_in_cached_decoding():
    model, x = lm("symbolic_attention"), tokens(2, 9)
    interventions = [HEAD, Ablate(Target("symbol", layers=1, senders=[4])), Steer(Target("relation", layers=0), 0.5)]
    with torch.no_grad(), intervene_directly(model, interventions):
        whole = model(x).logits
        for reserved in (None, 9):
            cache = model.new_cache(reserved)
            found = [model(piece, cache=cache).logits for piece in x.split([4, 1, 1, 3], dim=1)]
            close(torch.cat(found, 1), whole)
            assert cache.length == 9


def test_models_without_a_direct_path():
    for model, intervention, message in (
        (lm("symbolic_attention", norm_first=False), HEAD, "norm_first: expected True in the blocks of direct effects"),
        (seq2seq("symbolic_attention"), Ablate(Target("head", layers="encoder.0")), "target: encoder.0 reaches"),
        (lm("symbolic_attention", dropout_rate=0.5).train(), HEAD, "model: .* no residual dropout; got it in bl"),
        (lm("symbolic_attention").layers.blocks[0].dual_attn, Ablate(Target("head")), "model: direct effects need"),
    ):
        with pytest.raises(ValueError, match=message), intervene_directly(model, intervention):
            pass
        assert not hooks(model)


# ---- to first order


def test_the_first_order_is_the_slope_at_strength_zero():
    model, x = lm("symbolic_attention"), tokens(3, 9)
    strength = 1e-6

    def at(strength):
        return {
            "head": Ablate(HEAD.target, strength=strength),
            "relation": Ablate(Target("relation", layers=0, relations=1), "mean", strength=strength),
            "symbol": Ablate(Target("symbol", layers=1), "resample", strength=strength),
            "selection": Ablate(Target("selection", layers=0), "mean", strength=strength),
            "patch": Patch(Target("relation", layers=0, pairs=[(5, 2), (3, 1)]), strength=strength),
            "pair": Ablate(Target("symbol", layers=0, pairs=[(5, 2), (3, 3)]), strength=strength),
        }

    with capture(model) as source:
        model(tokens(3, 8))
    for metric, predict in (("loss", predict_next_tokens), ("logit_difference", foiled)):
        how = {"metrics": [metric], "predict": predict, "source": source}
        exact = measure_effects(model, [x], at(strength), **how)
        approximate = approximate_effects(model, [x], at(1.0), **how)
        for one, other in zip(exact, approximate, strict=True):
            slopes = [value / strength for value in one.values]
            assert slopes == pytest.approx(list(other.values), rel=1e-3, abs=1e-7), (metric, one.name)
            assert max(map(abs, slopes)) > 1e-6


def test_first_orders_add_up_and_need_no_parameters():
    model, x = lm("symbolic_attention"), tokens(3, 9)
    effects = approximate_effects(model, [x], SOME)
    model.requires_grad_(False)
    for one, other in zip(effects, approximate_effects(model, [x], SOME), strict=True):
        assert one.values == pytest.approx(other.values)
    steer = Steer(Target("relation", layers=1), 0.3)
    both = approximate_effects(model, [x], {"a": HEAD, "b": steer, "both": [HEAD, steer]})
    sums = [a + b for a, b in zip(both[0].values, both[1].values, strict=True)]
    assert both[2].values == pytest.approx(sums)
    model.requires_grad_().gradient_checkpointing = True
    for one, other in zip(effects, approximate_effects(model, [x], SOME), strict=True):
        assert one.values == pytest.approx(other.values)


def test_first_orders_are_of_one_call_outside_inference_mode():
    model, x = lm("symbolic_attention"), tokens(3, 9)

    def twice(model, document):
        predict_next_tokens(model, document.flip(1))
        return predict_next_tokens(model, document)

    with pytest.raises(ValueError, match="predict: expected one call of the model"):
        approximate_effects(model, [x], {"head": HEAD}, predict=twice)
    with torch.inference_mode(), pytest.raises(ValueError, match="needs gradients, which inference mode does not keep"):
        approximate_effects(model, [x], {"head": HEAD})
    assert not hooks(model)


def test_shared_symbols_need_documents_one_by_one():
    model, x = lm("position_relative"), tokens(3, 9)
    ablated = {"symbol": Ablate(Target("symbol", layers=0))}
    with pytest.raises(ValueError, match=r"documents: expected one at a time, as they share symbols in blocks\.0"):
        approximate_effects(model, [x], ablated)
    assert len(approximate_effects(model, x.split(1), ablated)[0].values) == 3


def test_every_part_over_a_corpus():
    """Means, intervals and random directions are those of each part by itself; beyond is beyond all of them."""
    model, documents = lm("symbolic_attention"), [tokens(2, 9), tokens(1, 6)]
    found = effects_over(model, documents, sites=1, mediators=("relation", "head"), draws=3, change="mean")
    assert [one.mediator for one in found].count("relation") == 2 * find_sites(model)[-1].n_relations
    for one in (found[-4], found[3], found[4]):
        chosen = {"relations": [one.number]} if one.mediator == "relation" else {"heads": {one.kind: [one.number]}}
        change = Ablate(Target(one.mediator, layers=[one.layer], **chosen), "mean")
        study = {"": change, **{f"{seed}": Rotated(change, seed=seed) for seed in range(3)}}
        own, *random = measure_effects(model, documents, study, metrics=[one.effect.metric])
        row, draws = one.row, [draw.mean for draw in random]
        assert (row["documents"], row["mean"], (row["low"], row["high"])) == (3, own.mean, own.interval())
        assert (row["random_least"], row["random_largest"]) == (min(draws), max(draws))
        means = [sum(values) / 3 for values in zip(*(draw.values for draw in random), strict=True)]
        assert row["random_mean"] == pytest.approx(sum(draws) / 3)
        assert (row["random_low"], row["random_high"]) == pytest.approx(Effect("", "", tuple(means)).interval())


@pytest.mark.parametrize(
    ("values", "random", "beyond"),
    [
        ([1.0, 1.1, 0.9], [[0.5, 0.5, 0.5], [-0.6, -0.6, -0.6]], True),
        ([-1.0, -1.1, -0.9], [[0.5, 0.5, 0.5]], True),
        ([1.0, 1.1, 0.9], [[0.9, 0.9, 0.9]], False),  # the mean is, its interval is not
        ([1.0, -1.1, 0.9], [[0.01, 0.01, 0.01]], False),
        ([1.0], [[0.5]], None),
        ([1.0, 1.1], [], None),
    ],
)
def test_beyond_random_directions(values, random, beyond):
    effect, *draws = (Effect("", "loss", tuple(some)) for some in (values, *random))
    assert PartEffect("blocks.0", "sensory", "head", 0, effect, tuple(draws)).row["beyond"] is beyond


def test_faithfulness():
    exact = [Effect(str(i), "loss", (value, value + 1)) for i, value in enumerate((1.0, -2.0, 0.5, 3.0))]
    approximate = [Effect(str(i), "loss", (value, value)) for i, value in enumerate((1.2, -0.5, -0.5, 2.0))]
    found = faithfulness(exact, approximate)
    x, y = np.array([1.2, -0.5, -0.5, 2.0]), np.array([1.5, -1.5, 1.0, 3.5])
    assert found.n == 4 and found.same_sign == 0.75
    assert found.correlation == pytest.approx(stats.pearsonr(x, y).statistic)
    assert found.slope == pytest.approx(np.linalg.lstsq(x[:, None], y, rcond=None)[0][0])
    assert found.mean_error == pytest.approx(np.abs(x - y).mean())
    assert found.mean_size == pytest.approx(np.abs(y).mean())


# ---- bad input


def predict_nothing(model, x):
    return Prediction(model(x).logits, torch.full_like(x, -1))


@pytest.mark.parametrize("measure", [measure_effects, approximate_effects])
@refusals(
    ([X], {}, {}, "interventions: expected at least one"),
    ([], {"head": HEAD}, {}, "documents: expected at least one"),
    ([X], {"head": HEAD}, {"metrics": ["accuracy"]}, "metrics: expected some of loss"),
    ([X], {"head": HEAD}, {"metrics": "loss"}, TypeError, "metrics: expected several names"),
    ([X], {"head": HEAD}, {"metrics": []}, "metrics: expected at least one"),
    ([X], {"head": HEAD}, {"metrics": ["loss", "loss"]}, "metrics: expected each once, got loss, loss"),
    ([X], {"head": HEAD}, {"metrics": ["logit_difference"]}, "foils: a logit difference needs"),
    ([X], {"head": HEAD}, {"predict": predict_nothing}, "targets: expected something that is scored"),
    ([X[0]], {"head": HEAD}, {}, "document: expected token ids"),
    ([X], {"head": Patch(Target("head"))}, {}, "source: Patch needs maps"),
    of="documents, interventions, how",
)
def test_wrong_measurements(measure, documents, interventions, how, error, message):
    model = lm("symbolic_attention")
    with pytest.raises(error, match=message):
        measure(model, documents, interventions, **how)
    assert not hooks(model)


test_bad_input = refused(
    (lambda: Effect("head", "loss", (0.5, 1.0)).interval(level=1.0), "level"),
    (lambda: Effect("head", "loss", (0.5, 1.0)).interval(method="z"), "method"),
    (lambda: Effect("head", "loss", (0.5,)).interval(method="t"), "values: expected at least 2, got 1"),
    (lambda: Effect("head", "loss", (0.5,)).interval(method="bootstrap"), "values: expected at least 2, got 1"),
    (lambda: effects_over(lm("transformer"), [X], mediators=["relation"]), "mediators: expected some that the .* have"),
    (lambda: faithfulness(EFFECTS, EFFECTS[:1]), "approximate: expected effects of"),
    (lambda: faithfulness(EFFECTS[:1], EFFECTS[:1]), "at least two"),
    (lambda: faithfulness(EFFECTS, EFFECTS), "by one metric"),
    (lambda: approximate_effects(lm("transformer"), [X], {"head": HEAD}, metrics=["kl"]), "of loss, .*, got 'kl'"),
    (lambda: Prediction(torch.zeros(2, 8, 11), X), "targets: expected shape"),
    (lambda: effects_over(lm("transformer"), [X], mediators=["heads"]), "mediators: expected .* got 'heads'; did you"),
    (lambda: effects_over(lm("transformer"), [X], mediators="head"), TypeError, "mediators: expected a list, got 'hea"),
    (lambda: effects_over(lm("transformer"), [X], draws=-1), "draws: expected zero or more, got -1"),
    (lambda: predict_next_tokens(torch.nn.Embedding(20, 4), X), TypeError,
     r"model: expected a language model, .*got Tensor from Embedding; name a func"),
)  # fmt: skip
