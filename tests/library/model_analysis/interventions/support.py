"""Models under interventions: what they give, what is captured, and one intervention of each kind."""

import torch

from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.interventions import Ablate, Patch, Scale, Steer, Target, intervene
from tests.library.model_analysis.models import FAMILIES

MEDIATORS = ("head", "relation", "symbol", "selection", "value")
DUAL = [name for name in FAMILIES if "transformer" not in name]


def logits(model, x, interventions=(), source=None, **arguments):
    with torch.no_grad(), intervene(model, interventions, source=source):
        return model(x, **arguments).logits


def captured(model, x, interventions, *quantities, source=None, **choice):
    """Maps of a call with interventions."""
    with intervene(model, interventions, source=source), capture(model, quantities or None, **choice) as maps:
        model(x)
    return maps


def every(mediator, strength=1.0):
    """One intervention of each kind on a mediator; a source is needed."""
    target, vector = Target(mediator), None if mediator == "relation" else [1.0, 2.0, 3.0, 4.0]
    found = [Ablate(target, how, strength=strength) for how in ("zero", "mean", "resample")]
    found += [Scale(target, 3.0, strength=strength), Patch(target, strength=strength)]
    return found if mediator == "selection" else [*found, Steer(target, 2.0, vector, strength=strength)]
