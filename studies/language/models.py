"""The arms of the language studies, and the paper's models of Figure 12."""

from dataclasses import replace
from typing import Any

from dat.experiments.language.model_keys import LanguageModelKeys


def arms(d_model: int, n_layers: int, **dff: int) -> dict[str, LanguageModelKeys]:
    """The six arms of a width, by name.

    Args:
        dff: the width of the feed-forward blocks that makes RCA, the Transformer (T) and the gated one (gated) as large
            as the DAT within 1 %, and another Transformer (operations) as costly as the DAT in a training step.
    """
    dat = LanguageModelKeys(name=f"DAT-{d_model}", d_model=d_model, n_layers=n_layers, n_heads_ra=2)
    transformer = replace(dat, n_heads_sa=4, n_heads_ra=0, n_kv_heads=None)
    every = (
        dat,
        replace(dat, name=f"RCA-{d_model}", ra_type="rca", dff=dff["RCA"]),
        replace(transformer, name=f"T-{d_model}", dff=dff["T"]),
        replace(transformer, name=f"T-gated-{d_model}", output_gate="identity", dff=dff["gated"]),
        replace(transformer, name=f"T-operations-{d_model}", dff=dff["operations"]),
        replace(transformer, name=f"T-time-{d_model}", dff=dff["T"]),
    )
    return {arm.name: arm for arm in every}


ARMS = {
    **arms(64, 2, RCA=290, T=268, gated=236, operations=418),
    **arms(128, 4, RCA=578, T=504, gated=440, operations=690),
}
"""The arms of both widths. T-time is T, to be trained longer."""
LABELS = {
    "DAT": "DAT",
    "RCA": "DAT with RCA",
    "T": "Transformer",
    "T-gated": "Transformer, linear output gate",
    "T-operations": "Transformer, as many operations",
    "T-time": "Transformer, as much time",
}
COLOURS = dict(zip(LABELS, ("#1f6fb4", "#2e8b57", "#8c8c8c", "#c49c6b", "#4d4d4d", "#b8b8b8"), strict=True))

HEADS = ((3, 1), (1, 3), (0, 4))
"""Sensory and relational heads, four in all; 4 + 0 is the Transformer of the study."""
ABLATIONS: dict[str, dict[str, dict[str, Any]]] = {
    "rca": {kind: {"ra_type": kind} for kind in ("rca", "disrca")},
    "heads": {f"{sa}+{ra}": {"n_heads_sa": sa, "n_heads_ra": ra, "rel_proj_dim": 4} for sa, ra in HEADS},
    "symmetry": {"sym": {"symmetric_rels": True}},
    "rank": {f"nr{n}-p{32 // n}": {"n_relations": n, "rel_proj_dim": 32 // n} for n in (1, 2, 32)},
    "symbols": {
        "trained-symbols": {"trainable_symbols": True},
        "symbols-once": {"update_symbols_each_layer": False},
        "positional": {"symbols": "positional_symbols"},
        "relative": {"symbols": "position_relative"},
    },
    "activation": {name: {"rel_activation": name} for name in ("softmax", "relu", "tanh")},
}
"""Changes by grid in DAT-64, which has two heads of each kind and eight relations of width 4."""
ABLATED = {
    grid: {f"DAT-64-{name}": replace(ARMS["DAT-64"], name=f"DAT-64-{name}", **changes) for name, changes in own.items()}
    for grid, own in ABLATIONS.items()
}

VOCABULARY = 32_000
"""Tokens, as many as Llama 2's tokenizer has, which the published runs on Tiny Stories read."""
# The models of the first runs: SwiGLU, dropout, an output layer with a matrix of its own and a bias, and no last
# normalisation. All relations together are as wide as the model, not as the relational heads.
T_STORIES = LanguageModelKeys(
    name="T-stories",
    vocab_size=VOCABULARY,
    context=512,
    d_model=64,
    n_layers=4,
    n_heads_sa=8,
    n_heads_ra=0,
    n_kv_heads=None,
    dff=256,
    activation="swiglu",
    dropout_rate=0.1,
    tie_weights=False,
    final_norm=False,
    output_bias=True,
)
DAT_STORIES = replace(
    T_STORIES,
    name="DAT-4+4-stories",
    n_heads_sa=4,
    n_heads_ra=4,
    n_relations=4,
    rel_proj_dim=16,
    n_symbols=512,
    trainable_symbols=True,
)
RCA_STORIES = replace(DAT_STORIES, name="RCA-4+4-stories", ra_type="rca")
STORIES = {
    model.name: model
    for model in (
        T_STORIES,
        DAT_STORIES,
        RCA_STORIES,
        replace(RCA_STORIES, name="RCA-6+2-stories", n_heads_sa=6, n_heads_ra=2),
    )
}

RATES = {"DAT": (0.004, 0.008, 0.016), "T-operations": (0.004, 0.008, 0.016), "T-gated": (0.008, 0.016)}
"""Learning rates of the grid `rates`, by arm."""
RATED = {f"{arm}-64-lr{rate}": (arm, rate) for arm, rates in RATES.items() for rate in rates}
"""Arm and rate of its models."""
AT_RATES = {name: replace(ARMS[f"{arm}-64"], name=name) for name, (arm, _) in RATED.items()}

LARGER = replace(ARMS["DAT-64"], name="DAT-64-size0.02", rel_init_size=0.02)
DISTANCE = replace(LARGER, name="DAT-64-distance-size0.02", symmetric_rels=True, rel_score="squared_distance")
SIZED = {model.name: model for model in (LARGER, DISTANCE)}
"""DAT-64 with relations that start larger, and with another kind of them."""

PRESETS = STORIES | ARMS | AT_RATES | SIZED | {name: model for own in ABLATED.values() for name, model in own.items()}
