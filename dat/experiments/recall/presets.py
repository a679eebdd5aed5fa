"""Models of the experiment: a Transformer and Dual Attention Transformers of one sensory and one relational head."""

from __future__ import annotations

from ..sequence_model import SequenceModelKeys

PRESETS = {
    model.name: model
    for model in (
        SequenceModelKeys(name="T", n_heads_sa=2, n_heads_ra=0, dff=300),
        SequenceModelKeys(name="DAT-symbolic", dff=256),
        SequenceModelKeys(name="DAT-relative", dff=264, symbols="position_relative"),
        SequenceModelKeys(name="DAT-frozen", dff=280, symbols="positional_symbols"),
        SequenceModelKeys(name="RCA", dff=289, ra_type="rca"),
        SequenceModelKeys(name="T-positions", n_heads_sa=2, n_heads_ra=0, dff=268, pos_enc_type="pos_emb"),
    )
}
"""Width 64, two blocks, two heads, rotary positions. The feed-forward widths make them equal in trained parameters to
0.1 %, 114,224 to 114,306 with 64 tokens. DAT-frozen has one random symbol for each position, which is never trained;
RCA has relational cross-attention with symbolic attention in place of relational attention. T-positions has trained
embeddings of positions, added to those of tokens, in place of rotary positions."""

ARMS = ("T", "DAT-symbolic", "DAT-relative", "DAT-frozen", "RCA")
"""Those of the announced study."""

LABELS = {
    "T": "Transformer",
    "DAT-symbolic": "DAT, symbols by content",
    "DAT-relative": "DAT, relative symbols",
    "DAT-frozen": "DAT, random symbol for each position",
    "RCA": "DAT with RCA heads",
    "T-positions": "Transformer, position embeddings",
}
COLOURS = {
    "T": "#8c8c8c",
    "DAT-symbolic": "#1f6fb4",
    "DAT-relative": "#2e8b57",
    "DAT-frozen": "#e0a000",
    "RCA": "#d1495b",
    "T-positions": "#4d4d4d",
}
