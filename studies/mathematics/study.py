"""Mathematics: the announced study after 2,000 steps, its control of relative symbols, and ablations."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from dat.data.mathematics import Module
from dat.experiments.mathematics.config import QuestionsConfig, paper_optim
from dat.experiments.mathematics.grid import MathematicsGrid
from dat.experiments.mathematics.model_keys import PRESETS as KNOWN
from dat.training.configs import LoopConfig
from studies._lib.inference import equivalence_p, holm, paired_p
from studies._lib.tables import Frame, by_seed, differences, markdown, mean_text, read_results

EXPERIMENT = "mathematics"
RESULTS = Path(__file__).parent / "results"

# Models: DAT-832K, with four heads of each kind on both sides and four relations of width 32, changed in one thing ----

HEADS = ((6, 2), (2, 6), (0, 8))
"""Sensory and relational heads, eight in all, of encoder and decoder."""
POSITIONAL: dict[str, Any] = {"symbols": "positional_symbols"}
ABLATIONS: dict[str, dict[str, dict[str, Any]]] = {
    # Announced when relational cross-attention took symbols of senders only, so all three have positional ones.
    "rca": {f"positional-{kind}": {**POSITIONAL, "ra_type": kind} for kind in ("rca", "disrca")},
    "heads": {
        f"{sa}+{ra}": {"n_heads_sa": sa, "n_heads_ra": ra, "n_heads_sa_dec": sa, "n_heads_ra_dec": ra}
        for sa, ra in HEADS
    },
    "symmetry": {"sym": {"symmetric_rels": True}},
    "rank": {f"nr{n}-p{128 // n}": {"n_relations": n, "rel_proj_dim": 128 // n} for n in (1, 2, 16, 64)},
    "symbols": {"positional": POSITIONAL, "symbolic": {"symbols": "symbolic_attention"}},
    "activation": {name: {"rel_activation": name} for name in ("softmax", "relu", "tanh")},
}
"""Changes by grid."""


def _named(grid: str, change: str) -> str:
    return f"DAT-{change}" if grid == "heads" else f"DAT-4+4-{change}"


ABLATED = {
    grid: {
        _named(grid, name): replace(KNOWN["DAT-832K"], name=_named(grid, name), **{"n_relations": 4, **changes})
        for name, changes in own.items()
    }
    for grid, own in ABLATIONS.items()
}
RELATIVE = {
    "T-871K-relative": {"relative_positions": KNOWN["T-871K"].n_symbols},
    "DAT-4+4-relative-rca": {"ra_type": "rca"},
}
"""The pair of the study, where both know relative positions: the Transformer too, and the DAT without relations."""
ROTARY = {"T-871K-rotary": {"rope_theta": 10_000.0}}
"""The Transformer of the study with rotary positions, too."""
PRESETS = {
    **{name: model for own in ABLATED.values() for name, model in own.items()},
    **{
        name: replace(KNOWN["T-871K" if name.startswith("T") else "DAT-832K"], name=name, **changes)
        for name, changes in (RELATIVE | ROTARY).items()
    },
}

# Grids ----------------------------------------------------------------------------------------------------------------

Grid = MathematicsGrid.with_presets(PRESETS)
STUDY = Grid(
    out="runs/mathematics-study",
    seeds=5,
    models=("T-871K", "DAT-832K"),
    optim=paper_optim(),
    epochs=(10,),
    data=QuestionsConfig(n_train=25_600, n_val=1_200, n_test=2_000, n_answered=500),
    loop=LoopConfig(
        epochs=10,
        batch_size=128,
        eval_batch_size=500,
        eval_every=0,
        checkpoint_every=0,
        measure_at=(1, 2, 5),
    ),
)


def beside(name: str, models: Sequence[str], module: Module = "algebra__linear_1d") -> MathematicsGrid:
    """Models to be read beside those of the study, on one of its modules with the same seeds."""
    return replace(STUDY, out=f"runs/mathematics-{name}", modules=(module,), models=tuple(models))


GRIDS: dict[str, MathematicsGrid] = {
    "study": STUDY,
    **{name: beside(name, list(models)) for name, models in ABLATED.items()},
    # A control: what on sequences is due to relations, and what to symbols of relative positions.
    "sequences": beside("sequences", ("DAT-4+4-positional", "DAT-4+4-positional-rca"), "algebra__sequence_next_term"),
    "relative": beside("relative", list(RELATIVE), "algebra__sequence_next_term"),
    "rotary": beside("rotary", list(ROTARY), "algebra__sequence_next_term"),
}

# Tables of README.md --------------------------------------------------------------------------------------------------

MODULES = ("algebra__linear_1d", "algebra__sequence_next_term")
PAIR = ("DAT-832K", "T-871K")


def study_table() -> str:
    """DAT less Transformer after 2,000 steps; Holm over the two modules."""
    rows = read_results(RESULTS / "study/results.csv")
    of_modules = [rows[rows["module"] == module] for module in MODULES]
    p = [differences(by_seed(own, "model", "interpolate"), [PAIR])["p"].item() for own in of_modules]
    lines = [_line(rows, "interpolate", "characters, interpolation: **both modules** (primary)", bold=True)]
    for module, own, adjusted in zip(MODULES, of_modules, holm(p), strict=True):
        lines.append(_line(own, "interpolate", f"– `{module}`", p=adjusted, name="p after Holm"))
    for measure, title in (
        ("extrapolate", "characters, extrapolation, both modules"),
        ("interpolate_answers", "whole answers, interpolation, both modules"),
    ):
        lines.append(_line(rows, measure, title))
    return markdown(pd.DataFrame(lines))


def _line(
    rows: Frame, measure: str, title: str, *, p: float | None = None, name: str = "p", bold: bool = False
) -> dict[str, str]:
    """Means of both models over the modules of ``rows``, and their difference."""
    table = by_seed(rows, "model", measure, points=["module"])
    found = differences(table, [PAIR]).iloc[0]
    means = {f"`{model}`": f"{table[model].mean():.1f}" for model in reversed(PAIR)}
    text = f"{found['mean']:+.1f} ± {found['half']:.1f}"
    shown = found["p"] if p is None else p
    return {"": title, **means, "difference": f"{f'**{text}**' if bold else text} ({name} = {shown:.2g})"}


def sequences_table() -> str:
    """The DAT with positional symbols less each other model on sequences, Holm over the three."""
    rows = read_results(RESULTS / "study/results.csv", RESULTS / "sequences/results.csv")
    table = by_seed(rows[rows["module"] == MODULES[1]], "model", "interpolate")
    others = ("DAT-832K", "DAT-4+4-positional-rca", "T-871K")
    found = differences(table, [("DAT-4+4-positional", other) for other in others])
    texts = {
        one["against"]: f"{one['mean']:+.1f} ± {one['half']:.1f} (p = {one['holm']:.2g})"
        for one in found.to_dict("records")
    }
    lines = [
        {"": f"`{model}`", "mean": f"{table[model].mean():.1f}", "`DAT-4+4-positional` less it": texts.get(model, "")}
        for model in sorted(table.columns, key=lambda model: -table[model].mean())
    ]
    return markdown(pd.DataFrame(lines))


def relative_table() -> str:
    """The DAT less each other model that knows relative positions: one-sided tests that it is ahead, Holm over both."""
    rows = read_results(RESULTS / "study/results.csv", RESULTS / "relative/results.csv")
    table = by_seed(rows[rows["module"] == MODULES[1]], "model", "interpolate")
    found = differences(table, [("DAT-832K", other) for other in RELATIVE], bound=1, test=_p_ahead)
    lines = [{"": "`DAT-832K`", "mean": f"{table['DAT-832K'].mean():.1f}"}]
    for one in found.to_dict("records"):
        values = (table["DAT-832K"] - table[one["against"]]).dropna().tolist()
        line = {"": f"`{one['against']}`", "mean": f"{table[one['against']].mean():.1f}"}
        line |= {"`DAT-832K` less it": mean_text(values, sign=True)}
        line |= {"seeds ahead": f"{sum(value > 0 for value in values)} of {len(values)}"}
        line |= {"p ahead, Holm": f"{one['holm']:.2g}", "p within a point": f"{one['equivalence']:.2g}"}
        lines.append(line | {"two-sided p": f"{paired_p(values):.2g}"})
    return markdown(pd.DataFrame(lines).fillna(""))


def rotary_table() -> str:
    """The DAT less a Transformer with rotary positions, and beside it that Transformer less the others."""
    rows = read_results(*(RESULTS / grid / "results.csv" for grid in ("study", "relative", "rotary")))
    rows = rows[rows["module"] == MODULES[1]]
    (rotary,), lines = ROTARY, []
    for arm, other in (("DAT-832K", rotary), ("T-871K-relative", rotary), (rotary, "T-871K")):
        of = {measure: by_seed(rows, "model", measure) for measure in ("interpolate", "extrapolate")}
        less = {measure: (table[arm] - table[other]).dropna().tolist() for measure, table in of.items()}
        values = less["interpolate"]
        line = {"": f"`{arm}` less `{other}`", "interpolation": mean_text(values, sign=True)}
        line |= {"seeds ahead": f"{sum(value > 0 for value in values)} of {len(values)}"}
        line |= {"p ahead": f"{_p_ahead(values):.2g}", "p behind": f"{_p_ahead([-value for value in values]):.2g}"}
        line |= {"p within a point": f"{equivalence_p(values, 1):.2g}"}
        lines.append(line | {"extrapolation": mean_text(less["extrapolate"], sign=True)})
    return markdown(pd.DataFrame(lines))


def _p_ahead(values: Sequence[float]) -> float:
    """p of the one-sided t-test that the mean is above zero."""
    half = paired_p(values) / 2
    return half if sum(values) > 0 else 1 - half


TABLES = {"study": study_table, "sequences": sequences_table, "relative": relative_table, "rotary": rotary_table}
