"""Models of the experiment: a Transformer and Dual Attention Transformers of one sensory and one relational head."""

from __future__ import annotations

from dataclasses import replace

from ..sequence_model import SequenceModelKeys

CLIP = 16
"""Farthest relative position that has a symbol of its own. Sequences of ``argsort`` that are trained on are longer; of
``equation`` they have 13 tokens, so the symbols of 13 to 16 stay untrained, and DAT-clipped-8 is without them."""

CLIPPED = SequenceModelKeys(name="DAT-clipped", dff=272, symbols="position_relative", n_symbols=CLIP)

PRESETS = {
    model.name: model
    for model in (
        SequenceModelKeys(name="T", n_heads_sa=2, n_heads_ra=0, dff=300),
        SequenceModelKeys(name="DAT-symbolic", dff=256),
        SequenceModelKeys(name="DAT-symbolic-sym", dff=272, symmetric_rels=True),
        CLIPPED,
        replace(CLIPPED, name="DAT-clipped-sym", dff=288, symmetric_rels=True),
        replace(CLIPPED, name="DAT-clipped-8", dff=276, n_symbols=8),
    )
}
"""Width 64, two blocks, two heads, rotary positions. The feed-forward widths make them equal in trained parameters to
0.1 %."""

ARMS = ("T", "DAT-symbolic", "DAT-symbolic-sym", "DAT-clipped", "DAT-clipped-sym")
"""Those of the announced study."""

LABELS = {
    "T": "Transformer",
    "DAT-symbolic": "DAT, symbols by content",
    "DAT-symbolic-sym": "DAT, symbols by content, symmetric relations",
    "DAT-clipped": "DAT, relative symbols, clipped",
    "DAT-clipped-sym": "DAT, relative symbols, clipped, symmetric relations",
    "DAT-clipped-8": "DAT, relative symbols, clipped at 8",
}
COLOURS = {
    "T": "#8c8c8c",
    "DAT-symbolic": "#1f6fb4",
    "DAT-symbolic-sym": "#63b0e8",
    "DAT-clipped": "#2e8b57",
    "DAT-clipped-sym": "#8fce9f",
    "DAT-clipped-8": "#e0a000",
}
