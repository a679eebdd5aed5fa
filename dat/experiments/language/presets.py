"""The named language models: the paper's, tiny ones, the arms of the announced study, and those of the ablations."""

from __future__ import annotations

from dual_attention.language_presets import LANGUAGE_PRESETS

from .ablations import ABLATED
from .arms import ARMS
from .model_keys import model_preset
from .stories import STORIES

PRESETS = {name: model_preset(name) for name in LANGUAGE_PRESETS} | STORIES | ARMS | ABLATED
"""Every named model."""
