"""Models of the ablations: DAT-832K, with four heads of each kind on both sides, changed in one thing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .model_keys import PRESETS, MathematicsModelKeys

BASE = replace(PRESETS["DAT-832K"], n_relations=4)
"""DAT-832K; its relations, one for each relational head there, stay four."""
HEADS = ((6, 2), (2, 6), (0, 8))
"""Sensory and relational heads, eight in all, of encoder and decoder."""
RELATIONS = (1, 2, 16, 64)
"""Numbers of relations whose widths make up 128 features of queries and of keys, as 4 times 32 do."""
ALL_FEATURES = 128


def changed(name: str, **changes: Any) -> MathematicsModelKeys:
    """That model under another name, with ``changes``."""
    return replace(BASE, name=name, **changes)


def composed(sensory: int, relational: int) -> MathematicsModelKeys:
    """With these heads in every layer of both sides."""
    heads = {"n_heads_sa": sensory, "n_heads_ra": relational}
    of_decoder = {"n_heads_sa_dec": sensory, "n_heads_ra_dec": relational}
    return changed(f"DAT-{sensory}+{relational}", **heads, **of_decoder)


def ranked(relations: int) -> MathematicsModelKeys:
    """With so many relations, of 128 features together."""
    width = ALL_FEATURES // relations
    return changed(f"DAT-4+4-nr{relations}-p{width}", n_relations=relations, rel_proj_dim=width)


COMPOSED = [composed(*heads) for heads in HEADS]
SYMMETRIC = [changed("DAT-4+4-sym", symmetric_rels=True)]
RANKED = [ranked(relations) for relations in RELATIONS]
ACTIVATED = [changed(f"DAT-4+4-{name}", rel_activation=name) for name in ("softmax", "relu", "tanh")]
OTHER_SYMBOLS = [
    changed("DAT-4+4-positional", symbols="positional_symbols"),
    changed("DAT-4+4-symbolic", symbols="symbolic_attention"),
]
CROSS = [
    changed("DAT-4+4-positional-rca", symbols="positional_symbols", ra_type="rca"),
    changed("DAT-4+4-positional-disrca", symbols="positional_symbols", ra_type="disrca"),
]
"""Relational cross-attention, for which symbols are of senders, not of pairs: to be read beside positional symbols."""

ABLATED = {model.name: model for model in (*CROSS, *COMPOSED, *SYMMETRIC, *RANKED, *OTHER_SYMBOLS, *ACTIVATED)}
"""All of them by name."""
