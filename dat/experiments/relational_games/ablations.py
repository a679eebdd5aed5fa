"""Models of the ablations: DAT 0+2 with symmetric relations, the main model, changed in one thing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .config import GamesModelConfig

RELATIONS = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of relations whose widths make up 64 features of queries and of keys."""
ALL_FEATURES = 64
HEADS = ((6, 2), (4, 4), (2, 6), (0, 8))
"""Sensory and relational heads, eight in all."""


def changed(name: str, **changes: Any) -> GamesModelConfig:
    """The main model under that name, with ``changes``."""
    return replace(GamesModelConfig(), name=name, **changes)


def disentangled(sensory: int, relational: int) -> GamesModelConfig:
    """A DAT whose relational heads are disentangled relational cross-attention."""
    heads = {"n_heads_sa": sensory, "n_heads_ra": relational}
    return changed(f"disrca-{sensory}+{relational}", ra_type="disrca", **heads)


def composed(sensory: int, relational: int) -> GamesModelConfig:
    """A DAT with these heads, and two relations 64 wide however many heads see them."""
    return changed(f"dat-{sensory}+{relational}-nr2-sym", n_heads_sa=sensory, n_heads_ra=relational)


def ranked(relations: int, *, symmetric: bool) -> GamesModelConfig:
    """A DAT with so many relations, of 64 features together."""
    width, kind = ALL_FEATURES // relations, "sym" if symmetric else "asym"
    keys = {"n_relations": relations, "rel_proj_dim": width, "symmetric_rels": symmetric}
    return changed(f"dat-0+2-nr{relations}-p{width}-{kind}", **keys)


def activated(activation: str) -> GamesModelConfig:
    """A DAT whose relations pass through an activation."""
    return changed(f"dat-0+2-sym-{activation}", rel_activation=activation)


DISENTANGLED = [disentangled(0, 2), disentangled(1, 1)]
COMPOSED = [composed(*heads) for heads in HEADS]
RANKED = [ranked(relations, symmetric=symmetric) for symmetric in (True, False) for relations in RELATIONS]
FROZEN = [changed("dat-0+2-sym-symbolic-frozen", symbols="symbolic_attention", trainable_symbols=False)]
ACTIVATED = [activated(name) for name in ("relu", "tanh", "sigmoid")]

ABLATED = (*DISENTANGLED, *COMPOSED, *RANKED, *FROZEN, *ACTIVATED)
"""All of them."""
