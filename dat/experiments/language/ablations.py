"""Models of the ablations: DAT-64, with two heads of each kind and eight relations, changed in one thing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .arms import ARMS
from .model_keys import LanguageModelKeys

BASE = ARMS["DAT-64"]
HEADS = ((3, 1), (1, 3), (0, 4))
"""Sensory and relational heads, four in all; 4 + 0 is the Transformer of the study."""
RELATIONS = (1, 2, 32)
"""Numbers of relations whose widths make up 32 features of queries and of keys, as 8 times 4 do."""
ALL_FEATURES = 32


def changed(what: str, **changes: Any) -> LanguageModelKeys:
    """That model with ``changes``, named after them."""
    return replace(BASE, name=f"{BASE.name}-{what}", **changes)


def ranked(relations: int) -> LanguageModelKeys:
    """With so many relations, of 32 features together."""
    width = ALL_FEATURES // relations
    return changed(f"nr{relations}-p{width}", n_relations=relations, rel_proj_dim=width)


CROSS = [changed(kind, ra_type=kind) for kind in ("rca", "disrca")]
COMPOSED = [
    changed(f"{sensory}+{relational}", n_heads_sa=sensory, n_heads_ra=relational, rel_proj_dim=4)
    for sensory, relational in HEADS
]
SYMMETRIC = [changed("sym", symmetric_rels=True)]
RANKED = [ranked(relations) for relations in RELATIONS]
OTHER_SYMBOLS = [
    changed("trained-symbols", trainable_symbols=True),
    changed("symbols-once", update_symbols_each_layer=False),
    changed("positional", symbols="positional_symbols"),
    changed("relative", symbols="position_relative"),
]
ACTIVATED = [changed(name, rel_activation=name) for name in ("softmax", "relu", "tanh")]

ABLATED = {model.name: model for model in (*CROSS, *COMPOSED, *SYMMETRIC, *RANKED, *OTHER_SYMBOLS, *ACTIVATED)}
"""All of them by name."""
