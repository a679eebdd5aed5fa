"""Size or kind of relations: the grids that can be run, and the tables of the README."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from dat.experiments.relational_games.config import EPOCHS, GamesModelConfig
from dat.experiments.relational_games.grid import GamesGrid, GridData
from dat.experiments.relational_games.presets import PRESETS as GAMES
from dat.training.configs import LoopConfig
from dat.training.metrics import Row
from dual_attention._base.plots import house_style, legend_below, matplotlib_figure, save_figure
from studies._lib.inference import half_width, holm, mcnemar_p, sign_flip_p
from studies._lib.rates import RATES, at_rate, at_rates, every_rate, own_rates, table_of_rates
from studies._lib.readings import Compared, compared, interval, p_text
from studies._lib.tables import Frame, by_seed, failed, markdown, read_results
from studies.relational_games.toolbox import toolbox

EXPERIMENT = "relational-games"
RESULTS = Path(__file__).parent / "results"
INNER_PRODUCTS = Path(__file__).parents[1] / "relational_games" / "results" / "match-pattern" / "results.csv"
"""Runs of the paper's DAT on ``match_pattern``."""

# ---------------------------------------------------------------------------------------------------------------------
# What can be run
# ---------------------------------------------------------------------------------------------------------------------

SIZES = (0.17, 0.5, 1.0)
"""Initial sizes of W_r r: about those with which asymmetric, symmetric and squared-distance relations begin as
published."""

SYMMETRIC = GAMES["dat-0+2-sym"]
KINDS: dict[str, GamesModelConfig] = {
    "symmetric": SYMMETRIC,
    "asymmetric": GAMES["dat-0+2-asym"],
    "distance": GAMES["dat-0+2-sym-squared-distance"],
    "cosine": toolbox("cosine", relation="cosine"),
    "norms": toolbox("norms", relation="dot_and_norms"),
    "64-relations": replace(SYMMETRIC, n_relations=64, rel_proj_dim=2),
}
"""DAT 0+2 by the kind of its relations."""
FIRST = ("symmetric", "asymmetric", "distance", "cosine")


def sized(kind: str, size: float) -> GamesModelConfig:
    """A kind of relations with an initial size."""
    return replace(KINDS[kind], name=f"{kind}-{size:g}", rel_init_size=size)


RATED = ("symmetric-0.5", "asymmetric-0.5", "distance-1")
"""Kinds at their best sizes, which are trained at other learning rates as well."""
AT_RATES = at_rates(RATED)
"""Arm and learning rate of the models of the grid ``rates``."""

PRESETS = {model.name: model for model in (sized(kind, size) for kind in KINDS for size in SIZES)}
PRESETS |= {name: replace(PRESETS[arm], name=name) for name, (arm, _) in AT_RATES.items()}


def grid(name: str, *kinds: str) -> GamesGrid:
    """Some kinds at all sizes on two tasks with 500 images."""
    return GamesGrid.with_presets(PRESETS)(
        out=f"runs/relation-size-{name}",
        tasks=("same", "occurs"),
        sizes=(500,),
        models=tuple(f"{kind}-{size:g}" for kind in kinds for size in SIZES),
        seeds=10,
        first_seed=20,
        data=GridData(n_val=1000, n_test=4000, n_heldout=1000),
        loop=LoopConfig(epochs=EPOCHS, eval_every=0, checkpoint_every=0),
    )


GRIDS: dict[str, Any] = {
    "size": grid("size", *FIRST),
    # What distances add, and number against width of relations.
    "further": grid("further", "norms", "64-relations"),
    # The first kinds at their best sizes and at those nearest to the published ones, on other tasks and seeds.
    "confirm": replace(
        grid("confirm", *FIRST),
        tasks=("between", "xoccurs"),
        sizes=(1000,),
        models=("symmetric-0.5", "asymmetric-0.5", "asymmetric-0.17", "distance-1", "cosine-0.5", "cosine-0.17"),
        first_seed=30,
    ),
    # Three kinds at the rates that `size` lacks, on its images.
    "rates": replace(
        grid("rates", *FIRST), models=tuple(AT_RATES), lr_of={name: rate for name, (_, rate) in AT_RATES.items()}
    ),
    # On the images and seeds of Relational Games' own grid, which has inner products.
    "match-pattern": replace(
        grid("match-pattern", *FIRST),
        tasks=("match_pattern",),
        match_pattern_sizes=(5000, 10000),
        models=("distance-1",),
        first_seed=0,
        data=GridData(n_val=250),
    ),
}

# ---------------------------------------------------------------------------------------------------------------------
# What it shows: the rules are those of ANNOUNCED.md
# ---------------------------------------------------------------------------------------------------------------------

SEEDS = 10
"""Seeds with which readings are decided."""
BOUND = 2.0
"""Points below which a difference is small."""
SETS = {"test": "points", "hexominoes": "hexominoes", "stripes": "stripes"}


def means_over_tasks(measure: str, rows: Frame, kinds: Sequence[str]) -> Frame:
    """A measure by seed and arm, for the seeds that have all arms of these kinds in both tasks."""
    arms = [f"{kind}-{size:g}" for kind in kinds for size in SIZES]
    table = by_seed(rows[rows["model"].isin(arms)], "model", measure, points=["task"])
    return table.reindex(columns=arms).dropna()


class Results:
    """Accuracies of the grids that were run, by seed and arm."""

    def __init__(self) -> None:
        files = [RESULTS / name / "results.csv" for name in ("size", "further")]
        self.rows = read_results(*(file for file in files if file.is_file()))
        self.kinds = FIRST if not files[1].is_file() else tuple(KINDS)

    def of(self, measure: str, *kinds: str) -> Frame:
        return means_over_tasks(measure, self.rows, tuple(dict.fromkeys((*FIRST, *kinds))))

    def best(self, kind: str) -> str:
        """The arm of a kind with the highest mean validation accuracy; the smaller size of two that are equal."""
        means = self.of("val", kind).mean()
        return max((f"{kind}-{size:g}" for size in SIZES), key=lambda arm: means[arm])


def slopes(table: Frame, kind: str) -> list[float]:
    """Slopes by seed of accuracy over log2 of the size, by least squares."""
    x = [math.log2(size) for size in SIZES]
    centred = [value - fmean(x) for value in x]
    arms = table[[f"{kind}-{size:g}" for size in SIZES]].to_numpy()
    return (arms @ centred / sum(value**2 for value in centred)).tolist()


def of_arms(rows: Frame, *arms: str) -> str:
    """How many single runs of some arms have failed, ``0, 1, 0 of 20``."""
    counts = [failed(rows.loc[rows["model"] == arm, "test"].tolist()).split(" of ") for arm in arms]
    return f"{', '.join(count for count, _ in counts)} of {counts[0][1]}"


def table_of_sizes() -> str:
    """Accuracy by kind and size, the size that validation chose, and the slope over doublings."""
    results, lines = Results(), []
    for family in (FIRST, [kind for kind in results.kinds if kind not in FIRST]):
        found = {kind: results.of("test", kind) for kind in family}
        corrected = compared({kind: slopes(table, kind) for kind, table in found.items()}, BOUND)
        for kind, table in found.items():
            line = {"kind": f"`{kind}`", "seeds": len(table)}
            line |= {f"size {size:g}": interval(table[f"{kind}-{size:g}"], sign=False) for size in SIZES}
            line["failed"] = of_arms(results.rows, *(f"{kind}-{size:g}" for size in SIZES))
            line |= {"best (validation)": results.best(kind).rpartition("-")[2]}
            slope = corrected[kind]
            lines.append(line | {"by doubling": interval(slope.values), "p (Holm)": p_text(slope.p)})
    return markdown(pd.DataFrame(lines))


def table_of_best() -> str:
    """Each kind at its best size less symmetric inner products at theirs, and at equal sizes."""
    results, lines = Results(), []
    symmetric = results.best("symmetric")
    for family in (FIRST[1:], [kind for kind in results.kinds if kind not in FIRST]):
        tables = {kind: {measure: results.of(measure, kind) for measure in SETS} for kind in family}
        less = {kind: {m: t[results.best(kind)] - t[symmetric] for m, t in of.items()} for kind, of in tables.items()}
        corrected = compared({kind: found["test"].tolist() for kind, found in less.items()}, BOUND)
        for kind, found in less.items():
            line = {"kind": f"`{kind}`", "at its best": interval(found["test"]), "p (Holm)": p_text(corrected[kind].p)}
            table = tables[kind]["test"]
            line |= {f"both {s:g}": interval(table[f"{kind}-{s:g}"] - table[f"symmetric-{s:g}"]) for s in SIZES}
            lines.append(line | {m: interval(found[m]) for m in ("hexominoes", "stripes")})
    return markdown(pd.DataFrame(lines))


def equal_sizes(table: Frame, kind: str) -> Any:
    """Mean lead of a kind over symmetric inner products of the same size, by seed."""
    return sum(table[f"{kind}-{size:g}"] - table[f"symmetric-{size:g}"] for size in SIZES) / len(SIZES)


def questions(results: Results) -> dict[str, tuple[Compared, Mapping[str, str]]]:
    """The announced comparisons, and what is said of each verdict."""
    table, best = results.of("test"), {kind: results.best(kind) for kind in results.kinds}

    def less(arm: str, other: str, table: Frame = table) -> list[float]:
        return (table[arm] - table[other]).tolist()

    primary = compared({kind: less(best[kind], best["symmetric"]) for kind in FIRST[1:]}, BOUND)
    part = (table["distance-1"] - table["symmetric-0.5"] - equal_sizes(table, "distance")).tolist()
    maps = {other: less("asymmetric-0.5", other) for other in ("symmetric-0.5", "asymmetric-0.17")}
    equal, larger = compared(maps, BOUND).values()
    norms = compared({"": less(best["distance"], best["cosine"])}, BOUND)[""]
    found: dict[str, tuple[Compared, Mapping[str, str]]] = {
        "1 `distance` less `symmetric`, best sizes": (
            primary["distance"],
            {"ahead": "better by kind", "within": "the lead was size", "behind": "worse by kind"},
        ),
        "1 lead as published less lead at equal sizes": (
            compared({"": part}, BOUND)[""],
            {"ahead": "size has a part in it", "within": "size has no part of two points"},
        ),
        "2 `asymmetric-0.5` less `symmetric-0.5`": (
            equal,
            {"within": "Figure 8 is size", "behind": "Figure 8 is kind", "ahead": "asymmetric ones are better"},
        ),
        "2 `asymmetric-0.5` less `asymmetric-0.17`": (larger, {"ahead": "Figure 8 is in part size"}),
        "3 `distance` less `cosine`, best sizes": (norms, {"ahead": "norms matter", "within": "norms do not matter"}),
    }
    if "norms" in results.kinds:
        table = results.of("test", "norms", "64-relations")
        further = compared(
            {
                "norms": less(best["norms"], best["symmetric"], table),
                "64-relations": equal_sizes(table, "64-relations").tolist(),
            },
            BOUND,
        )
        rest = compared({"": less(best["distance"], best["norms"], table)}, BOUND)[""]
        found |= {
            "4 `norms` less `symmetric`, best sizes": (
                further["norms"],
                {"ahead": "norms add something", "behind": "they cost points: neither sentence of 4 holds"},
            ),
            "4 `distance` less `norms`, best sizes": (
                rest,
                {"within": "it is the norms", "ahead": "distances do more"},
            ),
            "5 `64-relations` less `symmetric`, equal sizes": (
                further["64-relations"],
                {
                    "within": "number against width was size",
                    "behind": "wide ones are better",
                    "ahead": "many are better",
                },
            ),
        }
    return found


def table_of_readings() -> str:
    """The announced comparisons, and what they decide."""
    lines = []
    for question, (found, words) in questions(Results()).items():
        enough, verdict = len(found.values) == SEEDS, found.verdict()
        reading = words.get(verdict, "undecided") if enough else "undecided, so far"
        line = {"question": question, "points": interval(found.values), "p": p_text(found.p)}
        lines.append(line | {"p within ±2": p_text(found.within), "reading": reading})
    return markdown(pd.DataFrame(lines))


CONFIRMATION = {
    "1": (("distance-1", "symmetric-0.5"), ("asymmetric-0.5", "symmetric-0.5"), ("cosine-0.5", "symmetric-0.5")),
    "2": (("asymmetric-0.5", "symmetric-0.5"), ("asymmetric-0.5", "asymmetric-0.17")),
    "3": (("distance-1", "cosine-0.5"),),
    "size of cosines": (("cosine-0.5", "cosine-0.17"),),
}
"""Pairs that are compared on two other tasks, by what they are corrected over."""


def table_of_confirmation() -> str:
    """The comparisons on two other tasks and ten other seeds, and whether they come out as on the first two."""
    rows = read_results(RESULTS / "confirm/results.csv")
    both = by_seed(rows, "model", "test", points=["task"])
    tasks = {str(task): by_seed(own, "model", "test") for task, own in rows.groupby("task")}
    lines = []
    for family, pairs in CONFIRMATION.items():
        found = compared({f"`{arm}` less `{other}`": (both[arm] - both[other]).tolist() for arm, other in pairs}, BOUND)
        for (name, one), (arm, other) in zip(found.items(), pairs, strict=True):
            line = {"question": f"{family}: {name}", "points": interval(one.values), "p": p_text(one.p)}
            line |= {f"`{task}`": interval((table[arm] - table[other]).tolist()) for task, table in tasks.items()}
            lines.append(line | {"failed, in this order": of_arms(rows, arm, other), "outcome": one.verdict()})
    return markdown(pd.DataFrame(lines))


RATED_ROWS = RESULTS / "size/results.csv", RESULTS / "rates/results.csv"


def rated(measure: str, *tasks: str) -> Frame:
    """A measure, mean over both tasks or some, by seed and model, for the seeds that have all arms at all rates."""
    rows = read_results(*RATED_ROWS)
    rows = rows[rows["task"].isin(tasks or ("same", "occurs"))]
    return every_rate(by_seed(rows, "model", measure, points=["task"]), RATED)


def table_by_rate() -> str:
    """Accuracy by kind and learning rate, and the rate that validation chose."""
    return table_of_rates(rated("test"), own_rates(rated("val"), RATED), {arm: f"`{arm}`" for arm in RATED})


def table_by_task() -> str:
    """Squared distances beside inner products by task and rate: means, failed runs, and runs below all of the other."""
    lines = []
    for task in ("same", "occurs"):
        table = rated("test", task)
        for rate in RATES:
            distance, symmetric = (table[at_rate(arm, rate)] for arm in ("distance-1", "symmetric-0.5"))
            less = (distance - symmetric).tolist()
            line = {"task": f"`{task}`", "rate": f"{rate:g}", "squared distances": interval(distance, sign=False)}
            line |= {"inner products": interval(symmetric, sign=False), "difference": interval(less)}
            line |= {"p (flips)": p_text(sign_flip_p(less)), "failed": _both(failed(distance), failed(symmetric))}
            below = failed(distance, symmetric.min()), failed(symmetric, distance.min())
            lines.append(line | {"below the other's worst run": _both(*below)})
    return markdown(pd.DataFrame(lines))


def _both(first: str, second: str) -> str:
    return f"{first.partition(' ')[0]} and {second}"


def table_of_own_rates() -> str:
    """Kinds less symmetric inner products, each at its own rate, and at equal ones."""
    table, own = rated("test"), own_rates(rated("val"), RATED)
    reference = at_rate(RATED[0], own[RATED[0]])
    found = compared({arm: (table[at_rate(arm, own[arm])] - table[reference]).tolist() for arm in RATED[1:]}, BOUND)
    lines = []
    for arm, one in found.items():
        line = {"model": f"`{arm}`", "at own rates": interval(one.values), "p (Holm)": p_text(one.p)}
        line |= {"p within ±2": p_text(one.within), "outcome": one.reading(SEEDS)}
        equal = {rate: table[at_rate(arm, rate)] - table[at_rate(RATED[0], rate)] for rate in RATES}
        lines.append(line | {f"both {rate:g}": interval(less) for rate, less in equal.items()})
    return markdown(pd.DataFrame(lines))


LEARNED = 70.0
"""Accuracy in percent above which a run has learned ``match_pattern``."""


def table_of_match_pattern() -> str:
    """Runs that learn ``match_pattern`` with squared distances and with inner products, and their accuracies."""
    distance, symmetric = "distance-1", "dat-0+2-sym"
    rows = read_results(RESULTS / "match-pattern/results.csv", INNER_PRODUCTS)
    rows = rows[rows["model"].isin((distance, symmetric))]
    tables = {int(n): by_seed(own, "model", "test").dropna() for n, own in rows.groupby("n_train")}
    learned = [table > LEARNED for table in tables.values()]
    exact = holm([mcnemar_p(of[distance].tolist(), of[symmetric].tolist()) for of in learned])
    found = compared({f"{n}": (table[distance] - table[symmetric]).tolist() for n, table in tables.items()}, BOUND)
    lines = []
    for (n, table), of, p, one in zip(tables.items(), learned, exact, found.values(), strict=True):
        more = "more" if of[distance].sum() > of[symmetric].sum() else "fewer"
        line = {"images": f"{n:,}", "seeds": len(table), "learned, squared distances": of[distance].sum()}
        line |= {"learned, inner products": of[symmetric].sum(), "p (McNemar, Holm)": p_text(p)}
        line |= {"reading": more if p < 0.05 and len(table) == SEEDS else "undecided"}
        line |= {
            name: interval(table[model], sign=False)
            for name, model in (("squared distances", distance), ("inner products", symmetric))
        }
        lines.append(line | {"difference": interval(one.values), "p (flips, Holm)": p_text(one.p)})
    return markdown(pd.DataFrame(lines))


COLOURS = dict(zip(KINDS, ("#1f6fb4", "#63b0e8", "#08306b", "#17becf", "#d1495b", "#8c8c8c"), strict=True))


def draw_sizes(rows: Sequence[Row], path: Path) -> None:
    """Draw accuracy against the initial size, a line for each kind whose arms have two seeds."""
    frame = pd.DataFrame(rows)
    with house_style():
        figure, axis = matplotlib_figure(figsize=(6, 3.6))
        for number, (kind, colour) in enumerate(COLOURS.items()):
            table = means_over_tasks("test", frame, [kind])
            if len(table) < 2:
                continue
            arms = [table[f"{kind}-{size:g}"].tolist() for size in SIZES]
            places = [size * 1.02**number for size in SIZES]  # beside, not behind each other
            means, widths = [fmean(arm) for arm in arms], [half_width(arm) for arm in arms]
            axis.errorbar(places, means, widths, label=kind, color=colour, marker="o", markersize=4, capsize=2)
        axis.set_xscale("log")
        axis.set_xticks(SIZES, [f"{size:g}" for size in SIZES])
        axis.minorticks_off()
        axis.set_xlabel("initial size of relations in the messages")
        axis.set_ylabel("accuracy, new pentominoes (%)")
        axis.set_title("same and occurs, 500 images: means over seeds, 95 % t-intervals", fontsize=9)
        legend_below(figure, axis.get_legend_handles_labels()[0])
        save_figure(figure, path)


FIGURES: dict[str, Callable[[Sequence[Row], Path], None]] = {"sizes.png": draw_sizes}
TABLES: dict[str, Callable[[], str]] = {
    "sizes": table_of_sizes,
    "best": table_of_best,
    "readings": table_of_readings,
    "confirmation": table_of_confirmation,
    "rates": table_by_rate,
    "by task": table_by_task,
    "own rates": table_of_own_rates,
    "match pattern": table_of_match_pattern,
}
