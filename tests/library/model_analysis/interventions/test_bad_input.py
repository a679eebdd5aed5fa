"""Wrong interventions, and applications where they do not fit."""

from __future__ import annotations

import pytest

from dual_attention.baselines import ESBN, PrediNet
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.interventions import Ablate, Patch, Scale, Steer, Target, intervene
from tests.library.model_analysis.interventions.support import MEDIATORS
from tests.library.model_analysis.models import hooks
from tests.support.language import lm, tokens
from tests.support.refusals import refusals


@refusals(
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
    of="make",
)
def test_wrong_interventions(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_wrong_applications():
    model, x = lm("symbolic_attention"), tokens(2, 9)

    def fails(interventions, message, error=ValueError, source=None, inputs=x):
        with pytest.raises(error, match=message), intervene(model, interventions, source=source):
            model(inputs)
        assert not hooks(model)

    with capture(model, layers=0) as shorter:
        model(x[:, :5])
    with capture(model, "relations", relations=[0]) as one_relation:
        model(x)
    with capture(model) as three:
        model(tokens(3, 9))
    fails(["head"], "interventions: expected interventions, got str", TypeError)
    fails(Ablate(Target("head", layers=5)), "layers: expected some of blocks.0")
    fails(
        Ablate(Target("relation", relations=2)),
        "relations: expected numbers from 0 to 1, the relations of blocks.0, got 2",
    )
    fails(Patch(Target("head")), "source: Patch needs maps of other inputs")
    fails(Patch(Target("head")), "source: expected maps of a capture, got str", TypeError, source="maps")
    for mediator in MEDIATORS:
        fails(Patch(Target(mediator, layers=0)), "source: expected .* of the same lengths", source=shorter)
    fails(Patch(Target("relation", layers=1)), "source: expected maps with relations", source=shorter)
    fails(Patch(Target("relation")), r"source: expected the relations \(0, 1\)", source=one_relation)
    fails(Patch(Target("relation")), "source: expected 2 examples or one, got 3", source=three)
    fails(Ablate(Target("relation"), "resample"), "how: 'resample' takes another example", inputs=x[:1])
    fails(Ablate(Target("symbol"), "resample"), "how: 'resample' takes another example", inputs=x[:1])
    fails(Ablate(Target("relation", pairs=[(9, 0), (1, 0)])), r"was never given the places \[\(9, 0\)\]")
    fails(Ablate(Target("head", receivers=[12])), r"was never given the places \[12\]")
    fails(Steer(Target("head"), 1.0, [1.0]), "direction: expected 4 numbers, got 1")
    relative = lm("position_relative")
    for places in ({"pairs": [(1, 0)]}, {"senders": [2]}):
        message = rf"{next(iter(places))}: expected None, as pairs share relative symbols in blocks\.0"
        with pytest.raises(ValueError, match=message), intervene(relative, Ablate(Target("symbol", **places))):
            pass
    with pytest.raises(ValueError, match="target: expected layers with heads that have a head, got none"):
        Target("head").locate(ESBN(6))
    with pytest.raises(ValueError, match="target: expected layers with relational heads that have a relation"):
        Target("relation").locate(PrediNet(6, 5, 3, 2))
    with intervene(model, Ablate(Target("head", receivers=[12]))):
        pass  # no call, no complaint
