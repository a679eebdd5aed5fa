"""Models of the sequence tasks: Transformers and Dual Attention Transformers of one sensory and one relational head."""

from dataclasses import replace

from .model import SequenceModelKeys

CLIP = 16
"""Farthest relative position that has a symbol of its own in DAT-clipped. Sequences of ``argsort`` that are trained on
are longer; of ``equation`` they have 13 tokens, so the symbols of 13 to 16 stay untrained: DAT-clipped-8 has none."""

TRANSFORMER = SequenceModelKeys(name="T", n_heads_sa=2, n_heads_ra=0, dff=300)
CLIPPED = SequenceModelKeys(name="DAT-clipped", dff=272, symbols="position_relative", n_symbols=CLIP)

PRESETS = {
    model.name: model
    for model in (
        TRANSFORMER,
        replace(TRANSFORMER, name="T-positions", dff=268, pos_enc_type="pos_emb"),
        SequenceModelKeys(name="DAT-symbolic", dff=256),
        SequenceModelKeys(name="DAT-symbolic-sym", dff=272, symmetric_rels=True),
        SequenceModelKeys(name="DAT-relative", dff=264, symbols="position_relative"),
        CLIPPED,
        replace(CLIPPED, name="DAT-clipped-sym", dff=288, symmetric_rels=True),
        replace(CLIPPED, name="DAT-clipped-8", dff=276, n_symbols=8),
        SequenceModelKeys(name="DAT-frozen", dff=280, symbols="positional_symbols"),
        SequenceModelKeys(name="RCA", dff=289, ra_type="rca"),
    )
}
"""Width 64, two blocks, two heads, rotary positions. The feed-forward widths make them equal in trained parameters to
0.1 %, 114,224 to 114,306 with 64 tokens. DAT-frozen has one random symbol for each position, which is never trained;
RCA has relational cross-attention with symbolic attention in place of relational attention. T-positions has trained
embeddings of positions, added to those of tokens, in place of rotary positions."""

RECALL_ARMS = ("T", "DAT-symbolic", "DAT-relative", "DAT-frozen", "RCA")
LENGTH_ARMS = ("T", "DAT-symbolic", "DAT-symbolic-sym", "DAT-clipped", "DAT-clipped-sym")

LOOKS = {
    "T": ("Transformer", "#8c8c8c"),
    "T-positions": ("Transformer, position embeddings", "#4d4d4d"),
    "DAT-symbolic": ("DAT, symbols by content", "#1f6fb4"),
    "DAT-symbolic-sym": ("DAT, symbols by content, symmetric relations", "#63b0e8"),
    "DAT-relative": ("DAT, relative symbols", "#2e8b57"),
    "DAT-clipped": ("DAT, relative symbols, clipped", "#2e8b57"),
    "DAT-clipped-sym": ("DAT, relative symbols, clipped, symmetric relations", "#8fce9f"),
    "DAT-clipped-8": ("DAT, relative symbols, clipped at 8", "#e0a000"),
    "DAT-frozen": ("DAT, random symbol for each position", "#e0a000"),
    "RCA": ("DAT with RCA heads", "#d1495b"),
}
"""Name in figures and colour."""

LABELS = {name: label for name, (label, _) in LOOKS.items()}
COLOURS = {name: colour for name, (_, colour) in LOOKS.items()}
