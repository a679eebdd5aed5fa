"""Interventions on what the attention of a model computes, and their effects.

================  =====================================================================================
``targets``       :class:`Target`: which mediator is changed, and where
``kinds``         :class:`Ablate`, :class:`Scale`, :class:`Patch`, :class:`Steer`
``rotated``       :class:`Rotated`: the same change in a random direction, a control
``applying``      :func:`intervene`: the context in which a model computes with them
``direct``        :func:`intervene_directly`: the same, but later layers do not see them
``predictions``   :class:`Prediction`: logits and right answers, and the metrics of effects
``effects``       :func:`measure_effects`: exact effects with intervals; :func:`faithfulness`
``patching``      :func:`measure_patching`: mediators of another input, one at a time, and how far they carry its answer
``approximate``   :func:`approximate_effects`: effects to first order, of many interventions at once
``files``         interventions as JSON
================  =====================================================================================
"""

from .applying import intervene
from .approximate import approximate_effects
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
    "Patch",
    "Prediction",
    "Rotated",
    "Scale",
    "Steer",
    "Target",
    "approximate_effects",
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
