"""Wrong interventions, and applications where they do not fit."""

import pytest

from dual_attention import with_parts
from dual_attention.baselines import ESBN, PrediNet
from dual_attention.mechanisms import Euclidean
from dual_attention.model_analysis.interventions import Ablate, Patch, Scale, Steer, Target, intervene
from tests.library.model_analysis.interventions.support import MEDIATORS, captured
from tests.library.model_analysis.models import hooks
from tests.support.language import lm, tokens
from tests.support.refusals import refusals, refused

test_wrong_interventions = refused(
    (lambda: Target("key"), "mediator: expected 'head', 'relation', 'symbol', 'selection' or 'value'"),
    (lambda: Target("relation", heads=0), "heads: expected None for 'relation'"),
    (lambda: Target("head", senders=[0]), "senders: expected None for 'head'"),
    (lambda: Target("symbol", receivers=[0]), "receivers: expected None for 'symbol'"),
    (lambda: Target("selection", relations=0), "relations: expected None for 'selection'"),
    (lambda: Target("relation", receivers=[-1]), "receivers: expected places"),
    (lambda: Target("relation", receivers=1.5), TypeError, "receivers: expected places"),
    (lambda: Target("relation", receivers=[]), "receivers: expected at least one"),
    (lambda: Target("relation", pairs=[(1, 2, 3)]), "pairs: expected pairs"),
    (lambda: Target("relation", pairs=[(1, 2)], senders=1), "pairs: expected either pairs"),
    (lambda: Ablate("head"), TypeError, "target: expected a Target, got str"),
    (lambda: Ablate(Target("head"), "noise"), "how: expected 'zero', 'mean' or 'resample', got 'noise'"),
    (lambda: Ablate(Target("head"), seed=-1), "seed: expected a number of 0 or more"),
    (lambda: Ablate(Target("selection"), direction=[1.0]), "direction: expected None"),
    (lambda: Ablate(Target("head"), direction=[0.0]), "direction: expected a vector other than zero"),
    (lambda: Ablate(Target("head"), strength=float("nan")), "strength: expected a finite number"),
    (lambda: Scale(Target("head"), "2"), TypeError, "factor: expected a number"),
    (lambda: Steer(Target("selection"), 1.0), "target: expected no selection"),
    (lambda: Steer(Target("head"), 1.0), "direction: expected a vector to steer a head by"),
    (lambda: Target("head").locate(ESBN(6)), "target: expected layers with heads that have a head, got none"),
    (lambda: Target("relation").locate(PrediNet(6, 5, 3, 2)), "target: expected layers .* that have a relation"),
)


MODEL, X = lm("symbolic_attention"), tokens(2, 9)
SHORTER = {"source": captured(MODEL, X[:, :5], (), layers=0)}
ONE_RELATION = {"source": captured(MODEL, X, (), "relations", relations=[0])}


@refusals(
    (["head"], {}, TypeError, "interventions: expected interventions, got str"),
    (Ablate(Target("relation", relations=2)), {}, "relations: .* 0 to 1, the relations of blocks.0, got 2"),
    (Ablate(Target("head", heads=[])), {}, "heads: expected at least one of the sensory heads of blocks.0, got none"),
    (Ablate(Target("relation", relations=[])), {}, "relations: expected at least one of .* of blocks.0, got none"),
    (Ablate(Target("symbol", heads="sensory")), {}, "heads: expected some that have a symbol, got 'sensory'"),
    (Ablate(Target("value", heads={"relational": 0})), {}, "heads: expected some that have a value, got .*relational"),
    (Patch(Target("head")), {}, "source: Patch needs maps of other inputs"),
    (Patch(Target("head")), {"source": "maps"}, TypeError, "source: expected maps of a capture, got str"),
    *((Patch(Target(name, layers=0)), SHORTER, "source: expected .* of the same lengths") for name in MEDIATORS),
    (Patch(Target("relation", layers=1)), SHORTER, "source: expected maps with relations"),
    (Patch(Target("relation")), ONE_RELATION, r"source: expected the relations \(0, 1\)"),
    (Patch(Target("relation")), {"source": captured(MODEL, tokens(3, 9), ())}, "source: .* 2 examples or one, got 3"),
    (Ablate(Target("relation"), "resample"), {"x": X[:1]}, "how: 'resample' takes another example"),
    (Ablate(Target("symbol"), "resample"), {"x": X[:1]}, "how: 'resample' takes another example"),
    (Ablate(Target("relation", pairs=[(9, 0), (1, 0)])), {}, r"was never given the places \[\(9, 0\)\]"),
    (Ablate(Target("head", receivers=[12])), {}, r"was never given the places \[12\]"),
    (Steer(Target("head"), 1.0, [1.0]), {}, "direction: expected 4 numbers, got 1"),
    of="interventions, how",
)
def test_wrong_applications(interventions, how, error, message):
    x, source = how.get("x", X), how.get("source")
    with pytest.raises(error, match=message), intervene(MODEL, interventions, source=source):
        MODEL(x)
    assert not hooks(MODEL)


@pytest.mark.parametrize("places", [{"pairs": [(1, 0)]}, {"senders": [2]}])
def test_pairs_that_share_symbols(places):
    message = rf"{next(iter(places))}: expected None, as pairs share relative symbols in blocks\.0"
    change = Ablate(Target("symbol", **places))
    with pytest.raises(ValueError, match=message), intervene(lm("position_relative"), change):
        pass


@pytest.mark.parametrize("ra_type", ["relational_attention", "rca", "disrca", "own relation"])
def test_symbols_of_pairs_while_weights_are_dropped(ra_type):
    """An intervention cannot see which are; at strength 0 it does not matter."""
    own = ra_type == "own relation"
    model = lm("symbolic_attention", dropout_rate=0.5, **({} if own else {"ra_type": ra_type}))
    model = with_parts(model, relation=Euclidean) if own else model
    target = Target("symbol", pairs=[(1, 0)])
    for training, strength in ((False, 1.0), (True, 0.0)):
        with intervene(model.train(training), Ablate(target, strength=strength)):
            model(X)
    message = r"pairs: expected evaluation or no dropout .* in blocks\.0, .*; got a rate of 0\.5 in training"
    with pytest.raises(ValueError, match=message), intervene(model, Ablate(target)):
        model(X)
    assert not hooks(model)


def test_without_a_call_there_is_no_complaint():
    with intervene(MODEL, Ablate(Target("head", receivers=[12]))):
        pass
