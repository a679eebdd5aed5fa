"""The arms of the announced study: a DAT, and what it is compared with at equal parameters, operations and time."""

from __future__ import annotations

from dataclasses import replace

from .model_keys import LanguageModelKeys


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

_LABELS = {
    "DAT": "DAT",
    "RCA": "DAT with RCA",
    "T": "Transformer",
    "T-gated": "Transformer, linear output gate",
    "T-operations": "Transformer, as many operations",
    "T-time": "Transformer, as much time",
}
_COLOURS = ("#1f6fb4", "#2e8b57", "#8c8c8c", "#c49c6b", "#4d4d4d", "#b8b8b8")

LABELS = {name: f"{_LABELS[name.rpartition('-')[0]]} (d {arm.d_model})" for name, arm in ARMS.items()}
"""Names in figures and tables."""
COLOURS = {name: _COLOURS[list(_LABELS).index(name.rpartition("-")[0])] for name in ARMS}
