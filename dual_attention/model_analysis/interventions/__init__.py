"""Interventions on what the attention of a model computes, and their effects."""

from .applying import intervene
from .approximate import approximate_effects
from .corpus import PartEffect, effects_over
from .direct import intervene_directly
from .effects import Effect, Faithfulness, faithfulness, measure_effects
from .files import intervention_from_json, load_interventions, save_interventions
from .kinds import Ablate, Intervention, Patch, Scale, Steer
from .patching import measure_patching, mediator_targets, predict_answers
from .predictions import Prediction, predict_next_tokens
from .rotated import Rotated
from .targets import Target

__all__ = [
    "Ablate",
    "Effect",
    "Faithfulness",
    "Intervention",
    "PartEffect",
    "Patch",
    "Prediction",
    "Rotated",
    "Scale",
    "Steer",
    "Target",
    "approximate_effects",
    "effects_over",
    "faithfulness",
    "intervene",
    "intervene_directly",
    "intervention_from_json",
    "load_interventions",
    "measure_effects",
    "measure_patching",
    "mediator_targets",
    "predict_answers",
    "predict_next_tokens",
    "save_interventions",
]
