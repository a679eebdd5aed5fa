"""The named language models: the paper's, and tiny ones."""

from __future__ import annotations

from dual_attention.language_presets import LANGUAGE_PRESETS

from .model_keys import model_preset

PRESETS = {name: model_preset(name) for name in LANGUAGE_PRESETS}
"""Every named model."""
