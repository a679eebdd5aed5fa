"""What can be run again of the study of Relational Games, and what the tables of its README follow from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pandas

from dat.experiments.relational_games.config import EPOCHS, GamesModelConfig, Task
from dat.experiments.relational_games.experiment import RelationalGames
from dat.experiments.relational_games.grid import GamesGrid, GridData
from dat.experiments.relational_games.published import published_rows
from dat.experiments.relational_games.scales import QUICK_TASKS
from dat.training.configs import LoopConfig
from dat.training.metrics import Row
from studies._lib.inference import holm, mcnemar_p, sign_flip_p
from studies._lib.readings import interval
from studies._lib.tables import by_seed, failed
from studies.relational_games.baseline_figure import draw_baselines
from studies.relational_games.factors import CORELNETS, draw_factors, write_factors
from studies.relational_games.run_times import rises
from studies.relational_games.toolbox import CONTROLS, NORMALISED

EXPERIMENT = "relational-games"
RESULTS = Path(__file__).parent / "results"

# ---------------------------------------------------------------------------------------------------------------------
# What can be run: dat reproduce relational-games --study studies/relational_games/study.py --scale GRID
# ---------------------------------------------------------------------------------------------------------------------


def changed(name: str, **changes: Any) -> GamesModelConfig:
    """DAT 0+2 with symmetric relations, the main model, changed in one thing."""
    return replace(GamesModelConfig(), name=name, **changes)


def ranked(relations: int, *, symmetric: bool) -> GamesModelConfig:
    """A DAT whose relations have 64 features together."""
    width, kind = 64 // relations, "sym" if symmetric else "asym"
    keys = {"n_relations": relations, "rel_proj_dim": width, "symmetric_rels": symmetric}
    return changed(f"dat-0+2-nr{relations}-p{width}-{kind}", **keys)


DISENTANGLED = [changed(f"disrca-{a}+{b}", ra_type="disrca", n_heads_sa=a, n_heads_ra=b) for a, b in ((0, 2), (1, 1))]
COMPOSED = [changed(f"dat-{a}+{b}-nr2-sym", n_heads_sa=a, n_heads_ra=b) for a, b in ((6, 2), (4, 4), (2, 6), (0, 8))]
NUMBERS = (1, 2, 4, 8, 16, 32, 64)
RANKED = [ranked(number, symmetric=symmetric) for symmetric in (True, False) for number in NUMBERS]
ACTIVATED = [changed(f"dat-0+2-sym-{name}", rel_activation=name) for name in ("relu", "tanh", "sigmoid")]

PRESETS = {model.name: model for model in (*DISENTANGLED, *COMPOSED, *RANKED, *ACTIVATED, *CONTROLS, *NORMALISED)}
PRESETS |= CORELNETS


class Grid(GamesGrid):
    """A grid that may name these models, too."""

    presets: ClassVar[Mapping[str, GamesModelConfig]] = {**GamesGrid.presets, **PRESETS}


SYMBOLS = tuple(f"dat-0+2-sym-{kind}" for kind in ("symbolic", "relative", "relative-2d", "symbolic-frozen"))


def names(models: Sequence[GamesModelConfig]) -> tuple[str, ...]:
    """Names of models."""
    return tuple(model.name for model in models)


def small(name: str, *models: str) -> Grid:
    """Some models on three tasks with two sizes, from five seeds."""
    tasks: tuple[Task, ...] = ("same", "occurs", "xoccurs")
    return Grid(out=f"runs/relational-games-{name}", tasks=tasks, sizes=(500, 2000), models=models, seeds=5)


GRIDS = {
    # Ten seeds of the main comparison, measured after 50 epochs, too.
    "main": Grid(
        out="runs/relational-games-main",
        sizes=(250, 500, 1000, 2000),
        match_pattern_sizes=(5000, 10000),
        models=("transformer-128-h2", "dat-0+2-sym", "dat-1+1-sym"),
        seeds=10,
        data=GridData(n_val=250),
        loop=LoopConfig(epochs=EPOCHS, eval_every=0, checkpoint_every=0, measure_at=(50,)),
    ),
    # Why CoRelNet with softmax wins: softmax, order-keeping read-out and objects removed, each with and without.
    "corelnet-factors": Grid(
        out="runs/relational-games-corelnet-factors",
        tasks=("same", "occurs", "xoccurs", "between"),
        sizes=(500, 1000),
        models=tuple(CORELNETS),
        seeds=10,
    ),
    # Whether relations normalised over senders help a DAT: where they are looked for, and where a find is confirmed.
    "normalised": Grid(
        out="runs/relational-games-normalised",
        tasks=("same", "xoccurs"),
        sizes=(500, 1000),
        models=("dat-0+2-sym", *names(NORMALISED)),
        seeds=10,
    ),
    "normalised-confirm": Grid(
        out="runs/relational-games-normalised-confirm",
        tasks=("occurs", "between", "match_pattern"),
        sizes=(250, 500, 1000),
        match_pattern_sizes=(5000,),
        models=("dat-0+2-sym", *names(NORMALISED)),
        seeds=10,
        first_seed=10,
    ),
    # Relation or mere multiplication: controls as large as DAT 0+2.
    "multiplication": Grid(
        out="runs/relational-games-multiplication",
        tasks=("occurs", "between"),
        sizes=(1000, 2000),
        models=("transformer-128-h2-matched", "dat-0+2-sym", "rca-0+2-matched", *names(CONTROLS)),
        seeds=10,
    ),
    "multiplication-match-pattern": Grid(
        out="runs/relational-games-multiplication-match-pattern",
        tasks=("match_pattern",),
        match_pattern_sizes=(15000,),
        models=("transformer-128-h2-matched", "dat-0+2-sym", "rca-0+2-matched", *names(CONTROLS)),
        seeds=5,
    ),
    # Disentangled RCA, to be read beside the lab's `rca`.
    "disrca": Grid(
        out="runs/relational-games-disrca",
        tasks=QUICK_TASKS,
        sizes=(500, 1000, 1500, 2000, 2500),
        models=names(DISENTANGLED),
        seeds=3,
    ),
    # Eight heads, from all sensory to all relational.
    "heads": small("heads", "transformer-128-h8", *names(COMPOSED)),
    # Number against width of relations, 64 features in all.
    "rank": Grid(
        out="runs/relational-games-rank",
        tasks=("occurs", "between", "match_pattern"),
        sizes=(1000,),
        match_pattern_sizes=(15000,),
        models=names(RANKED),
        seeds=5,
    ),
    # Symbol mechanisms.
    "symbols": small("symbols", "dat-0+2-sym", *SYMBOLS),
    # Activations of relations; softmax is in `normalised`, too.
    "activation": small("activation", "dat-0+2-sym", "dat-0+2-sym-softmax", *names(ACTIVATED)),
}

FIGURES: dict[str, Callable[[Sequence[Row], Path], None]] = {
    "baselines.png": lambda rows, path: draw_baselines(RelationalGames.table, rows, path),
    "factors.md": lambda rows, path: write_factors(RelationalGames.table, rows, path),
    "factors.png": lambda rows, path: draw_factors(RelationalGames.table, rows, path),
}

# ---------------------------------------------------------------------------------------------------------------------
# The tables of the README
# ---------------------------------------------------------------------------------------------------------------------

TRANSFORMER, DAT, MIXED = "transformer-128-h2", "dat-0+2-sym", "dat-1+1-sym"
SETS = ("test", "hexominoes", "stripes")
LEARNED = 70.0
"""Accuracy in percent above which a run is said to have learned its task."""
MAIN = ("main/results.csv", "match-pattern/results.csv")

COMPARISONS = (
    ("negated squared distances", "inner products", "squared-distances", "squared-distance", DAT),
    ("symmetric relations", "asymmetric ones", "symmetry-rca/0+2", DAT, "dat-0+2-asym"),
    ("relational attention", "RCA, alone", "symmetry-rca/0+2", "dat-0+2-asym", "rca-0+2"),
    ("relational attention", "RCA, beside a sensory head", "symmetry-rca/1+1", "dat-1+1-asym", "rca-1+1"),
    ("relational heads only", "one of each kind", "main", DAT, MIXED),
    ("a Transformer under a linear gate", "DAT 0+2", "multiplication", "gated-objects", DAT),
    ("a Transformer as large", "DAT 0+2", "multiplication", "transformer-128-h2-matched", DAT),
    ("relations with a random sender", "DAT 0+2", "multiplication", "detached-shuffled", DAT),
    ("softmax of relations as CoRelNet's", "DAT 0+2", "normalised", "dat-0+2-sym-softmax-sharp", DAT),
    ("standardised relations", "DAT 0+2", "normalised", "dat-0+2-sym-standardised", DAT),
    ("the same on other tasks and seeds", "DAT 0+2", "normalised-confirm", "dat-0+2-sym-standardised", DAT),
    ("symbolic attention", "positional symbols", "symbols", "dat-0+2-sym-symbolic", DAT),
    ("64 relations of width 1", "1 of width 64", "rank", "dat-0+2-nr64-p1-sym", "dat-0+2-nr1-p64-sym"),
    ("CoRelNet", "DAT 0+2", "corelnet-factors main", "corelnet", DAT),
    ("CoRelNet with softmax", "DAT 0+2", "corelnet-factors main", "corelnet-softmax", DAT),
    ("Abstractor", "DAT 0+2", "before-dat", "abstractor", DAT),
)
"""What is compared with what, the folders of the runs, and both models."""


def runs_of(folders: str) -> pandas.DataFrame:
    """The rows of the runs in some folders of results."""
    return pandas.concat([pandas.read_csv(RESULTS / folder / "results.csv") for folder in folders.split()])


def failures(rows: pandas.DataFrame, *models: str) -> str:
    """Runs of models that have failed on new pentominoes, in the cells and seeds that all have, ``3 and 0 of 40``."""
    runs = rows.pivot_table(index=["seed", "task", "n_train"], columns="model", values="test")[[*models]].dropna()
    counts = [failed(runs[model].tolist()).partition(" of ")[0] for model in models]
    return f"{', '.join(counts[:-1])} and {counts[-1]} of {len(runs)}"


def differences(rows: pandas.DataFrame, model: str, reference: str, measure: str) -> pandas.Series:
    """Mean difference over the cells of both models, for every seed that all these cells have."""
    runs = rows.pivot_table(index=["seed", "task", "n_train"], columns="model", values=measure)
    return (runs[model] - runs[reference]).dropna().unstack(["task", "n_train"]).dropna().mean(axis=1)


def published_lead(rows: pandas.DataFrame, model: str) -> float:
    """Published means of a model less those of the Transformer on pentominoes, over the cells in ``rows``."""
    known = pandas.DataFrame(row for row in published_rows() if row["object_set"] == "test")
    known = known.merge(rows[["task", "n_train"]].drop_duplicates())
    means = known.pivot_table(index=["task", "n_train"], columns="model", values="accuracy")
    return float((means[model] - means[TRANSFORMER]).mean())


def markdown(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    rule = ["---"] * len(columns)
    return "\n".join("| " + " | ".join(line) + " |" for line in (columns, rule, *lines))


def leads() -> str:
    """DATs less the Transformer, by task."""
    rows = pandas.concat([pandas.read_csv(RESULTS / name) for name in MAIN])
    tasks = ["same", "occurs", "xoccurs", "between"]
    parts = {f"`{task}`": [task] for task in tasks} | {"all four": tasks, "`match_pattern`": ["match_pattern"]}
    columns = ["task", "DAT 0+2", "published", "DAT 1+1", "published", "DAT 0+2, hexominoes", "DAT 0+2, stripes"]
    lines = []
    for name, chosen in parts.items():
        line, part = [name], rows.query(f"task in {chosen}")
        for model in (DAT, MIXED):
            line.append(interval(differences(part, model, TRANSFORMER, "test")))
            line.append(f"{published_lead(part, model):+.1f}".replace("-", "−"))
        line += [interval(differences(part, DAT, TRANSFORMER, of)) for of in SETS[1:]]
        lines.append([*line, failures(part, DAT, MIXED, TRANSFORMER)])
    return markdown([*columns, "failed"], lines)


def findings() -> str:
    """What else was compared."""
    lines = []
    for title, than, folder, model, reference in COMPARISONS:
        rows = runs_of(folder)
        found = [differences(rows, model, reference, of) for of in SETS]
        lines.append([title, than, str(len(found[0])), *map(interval, found), failures(rows, model, reference)])
    return markdown(["accuracy of", "less that of", "seeds", "pentominoes", "hexominoes", "stripes", "failed"], lines)


def learned() -> str:
    """DATs less the Transformer on ``match_pattern``, where runs learn the task or not; Holm over the four."""
    rows = pandas.read_csv(RESULTS / "match-pattern/results.csv")
    cells = [
        (f"{size:,}", model, by_seed(rows[rows["n_train"] == size], "model", "test"))
        for model in (DAT, MIXED)
        for size in (5000, 10000)
    ]
    p = holm([sign_flip_p((table[model] - table[TRANSFORMER]).tolist()) for _, model, table in cells])
    lines = []
    for (size, model, table), adjusted in zip(cells, p, strict=True):
        ahead, learn = table[model] - table[TRANSFORMER], table > LEARNED
        shares = f"{learn[model].sum()} and {learn[TRANSFORMER].sum()} of {len(learn)}"
        exact = mcnemar_p(learn[model].tolist(), learn[TRANSFORMER].tolist())
        of = [interval(ahead), f"{(ahead > 0).sum()} of {len(ahead)}", f"{adjusted:.3f}", shares, f"{exact:.2f}"]
        lines.append(["DAT 0+2" if model == DAT else "DAT 1+1", size, *of])
    columns = ["model", "images", "less the Transformer", "ahead", "p, signs flipped (Holm)", "above 70 %", "p of that"]
    return markdown(columns, lines)


def leads_by_steps() -> str:
    """DAT 0+2 less the Transformer after fewer and more optimiser steps, from the runs that settled the protocol."""
    rows = pandas.concat(
        [pandas.read_csv(RESULTS / f"protocol/{name}.csv") for name in ("choice", "controls", "batches_128")]
    )
    lengths = [(512, 50), (512, 75), (512, 100), (512, 150), (128, 50)]
    lines = []
    cells: Any = rows.groupby(["task", "n_train"])
    for (task, n), cell in cells:
        line, theirs = [f"`{task}`", f"{n:,}"], []
        for batch, epochs in lengths:
            own = cell[(cell["batch_size"] == batch) & (cell["epochs"] == epochs)]
            table = by_seed(own, "model", "test")
            found = (table[DAT] - table[TRANSFORMER]).mean() if len(own) else 0.0
            steps = f" ({own['steps'].iloc[0]})" if len(own) else ""
            line.append(f"{found:+.1f}{steps}".replace("-", "−") if len(own) else "")
            theirs += [table[TRANSFORMER].mean()] if len(own) else []
        lines.append([*line, f"{min(theirs):.1f} to {max(theirs):.1f}" if len(theirs) > 1 else f"{theirs[0]:.1f}"])
    titles = [f"{epochs} epochs of {batch}" for batch, epochs in lengths]
    return markdown(["task", "images", *titles, "Transformer's accuracy"], lines)


def by_task() -> str:
    """Comparisons whose means hide that tasks differ."""
    tasks = ["same", "occurs", "xoccurs", "between"]
    lines = []
    for title, than, folder, model, reference in COMPARISONS:
        if model in ("squared-distance", "corelnet", "corelnet-softmax") or reference in ("rca-0+2", MIXED):
            parts = [runs_of(folder).query(f"task == {task!r}") for task in tasks]
            of = [interval(differences(part, model, reference, "test")) if len(part) else "" for part in parts]
            lines.append([title, than, *of])
    return markdown(["accuracy of", "less that of", *(f"`{task}`" for task in tasks)], lines)


TABLES = {
    "leads": leads,
    "findings": findings,
    "learned": learned,
    "by task": by_task,
    "steps": leads_by_steps,
    "run times": rises,
}
