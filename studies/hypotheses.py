"""Every comparison of the studies with its raw p, corrected in its family and over all: ``hypotheses.csv``.

python -m studies.hypotheses

A comparison that is read in two families is in both. Left out: how runs agree with published ones, Theorem 1, and
looking inside, whose p are over pairs of tokens of a model.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pandas as pd
from statsmodels.stats.multitest import multipletests

from dat.experiments.sequences.presets import LENGTH_ARMS, RECALL_ARMS
from studies._lib.inference import holm, mcnemar_p, paired_p, sign_flip_p
from studies._lib.tables import Frame, by_seed, read_results
from studies.better_dat import reading as better_dat
from studies.digit_games import study as digit_games
from studies.divergence import study as divergence
from studies.emoji import study as emoji
from studies.emoji_games import study as emoji_games
from studies.emoji_matched import study as emoji_matched
from studies.images import study as images
from studies.kinship import study as kinship
from studies.language import tables as language
from studies.mathematics import study as mathematics
from studies.matrices import study as matrices
from studies.relation_or_product import study as relation_or_product
from studies.relation_size import study as relation_size
from studies.relational_games import study as games
from studies.relational_games.factors import effects_by_seed
from studies.rivals import study as rivals
from studies.shifted_objects import study as shifted_objects

STUDIES = Path(__file__).parent
FILE = STUDIES / "hypotheses.csv"
TESTS: dict[str, Callable[[Sequence[float]], float]] = {
    "t": paired_p,
    "flips": sign_flip_p,
    "McNemar": lambda values: mcnemar_p([one > 0 for one in values], [one < 0 for one in values]),
}
LATER = " (chosen after the runs)"
"""Ends the name of a family that was not announced."""


FURTHER = {
    "squared-distances": [("squared-distance", "cosine")],
    "symbols": [("dat-0+2-sym-symbolic-frozen", "dat-0+2-sym-symbolic")],
    "rank": [(f"dat-0+2-nr{n}-p{64 // n}-asym", "dat-0+2-nr1-p64-asym") for n in (2, 4, 8, 16, 32, 64)],
}
"""Pairs of Relational Games without the reference of their grid."""


class Hypothesis(NamedTuple):
    """That a difference, paired by seed, is zero; with the p by which its study decides, two-sided."""

    study: str
    family: str
    hypothesis: str
    pairs: int
    difference: float
    test: str
    p: float


def differing(
    study: str, family: str, table: Any, pairs: Iterable[Sequence[str]], test: str = "t"
) -> Iterator[Hypothesis]:
    """Hypotheses of a family of pairs of columns of :func:`~studies._lib.tables.by_seed`."""
    for arm, other, *at in pairs:
        values = (table[arm] - table[other]).dropna().tolist()
        name = " ".join([f"{arm} less {other}", *at])
        yield from valued(study, family, {name: values}, test)


def valued(study: str, family: str, values: Any, test: str = "t") -> Iterator[Hypothesis]:
    """Hypotheses of a family from differences by seed."""
    for name, some in values.items():
        yield Hypothesis(study, family, name, len(some), round(fmean(some), 4), test, TESTS[test](some))


def rows_of(study: str, *grids: str) -> Frame:
    """The runs of some grids of a study."""
    return read_results(*(STUDIES / study / "results" / grid / "results.csv" for grid in grids))


def of_games() -> Iterator[Hypothesis]:
    """Relational Games."""
    main = games.runs_of("main match-pattern")
    for task, rows in main.groupby("task"):
        pairs = [(model, games.TRANSFORMER, f"on {task}") for model in (games.DAT, games.MIXED)]
        if task != "match_pattern":
            table = by_seed(rows, "model", "test", points=["n_train"])
            yield from differing("relational_games", "DATs less Transformer", table, pairs)
            continue
        for n, own in rows.groupby("n_train"):
            sized = [(*pair, f"{n} images") for pair in pairs]
            table = by_seed(own, "model", "test")
            yield from differing("relational_games", "match_pattern" + LATER, table, sized, "flips")
    families = {
        "squared-distances": ("squared distances", games.DAT),
        "normalised": ("normalised relations", games.DAT),
        "normalised-confirm": ("standardised relations, again", games.DAT),
        "multiplication": ("relation or mere multiplication", games.DAT),
        "symbols": ("symbols", games.DAT),
        "before-dat": ("architectures before the DAT", games.DAT),
        "rank": ("number against width of relations", "dat-0+2-nr1-p64-sym"),
        "symmetry-rca/0+2": ("symmetry and RCA, 0+2", "dat-0+2-asym"),
        "symmetry-rca/1+1": ("symmetry and RCA, 1+1", "dat-1+1-asym"),
    }
    for folder, (family, reference) in families.items():
        rows = rows_of("relational_games", folder)
        table = by_seed(rows, "model", "test", points=["task", "n_train"])
        arms = [arm for arm in table if arm not in (reference, games.TRANSFORMER) and table[arm].notna().any()]
        pairs = [(arm, reference) for arm in arms if folder != "rank" or arm.endswith("-sym")]
        yield from differing("relational_games", family, table, pairs + FURTHER.get(folder, []))
    mixed = games.differences(games.runs_of("main"), games.DAT, games.MIXED, "test").tolist()
    yield from valued("relational_games", "heads of one kind or both" + LATER, {"DAT 0+2 less DAT 1+1": mixed})
    factors: Any = rows_of("relational_games", "corelnet-factors").to_dict("records")
    effects = {" × ".join(names): values for names, values in effects_by_seed(factors, "test").items()}
    yield from valued("relational_games", "why CoRelNet with softmax wins", effects)


def of_relation_size() -> Iterator[Hypothesis]:
    """Size or kind of relations."""
    study, results = "relation_size", relation_size.Results()
    of = {question: one.values for question, (one, _) in relation_size.questions(results).items()}
    _, part, kind, size, norms, added, distances, many = of
    for name, some in (
        ("part of size", [part]),
        ("Figure 8", [kind, size]),
        ("norms", [norms]),
        ("what distances add", [added, many]),
        ("distances or norms", [distances]),
    ):
        yield from valued(study, name, {question: of[question] for question in some}, "flips")
    best = {kind: results.best(kind) for kind in relation_size.KINDS}
    for kinds in (relation_size.FIRST, ("norms", "64-relations")):
        table, name = results.of("test", *kinds), ", ".join(kinds)
        pairs = [(best[kind], best["symmetric"]) for kind in kinds if kind != "symmetric"]
        yield from differing(study, f"best sizes of {name}", table, pairs, "flips")
        slopes = {f"slope of {kind}": relation_size.slopes(table, kind) for kind in kinds}
        yield from valued(study, f"size of {name}", slopes, "flips")
    table = by_seed(rows_of(study, "confirm"), "model", "test", points=["task"])
    for name, pairs in relation_size.CONFIRMATION.items():
        yield from differing(study, f"confirmation, {name}", table, pairs, "flips")
    rows = read_results(relation_size.INNER_PRODUCTS, STUDIES / study / "results/match-pattern/results.csv")
    rows = rows[rows["n_train"] == 10000]
    learned = by_seed(rows, "model", "test") > relation_size.LEARNED
    p = mcnemar_p(learned["distance-1"].tolist(), learned[games.DAT].tolist())
    less = round(float(learned["distance-1"].mean() - learned[games.DAT].mean()), 4)
    name = "share that learn match_pattern, squared distances less inner products"
    yield Hypothesis(study, "match_pattern", name, len(learned), less, "McNemar", p)
    for task in ("same", "occurs"):
        pairs = [("distance-1", "symmetric-0.5", f"on {task}")]
        table = relation_size.rated("test", task)
        yield from differing(study, "squared distances by task" + LATER, table, pairs, "flips")


def of_language() -> Iterator[Hypothesis]:
    """Language models; less is better."""
    study = language.ends(rows_of("language", "study"), 64)
    rated = language.rated_results()
    own = rated[rated["model"].isin(language.own_models(rated).values())].assign(model=lambda found: found["arm"])
    for family, rows, pairs in (
        ("primary", study, language.PRIMARY),
        ("beside it", study, language.SECONDARY),
        ("own rates", own, language.AT_OWN_RATES),
        ("size and kind of relations", language.relations_results(), language.OF_RELATIONS),
    ):
        yield from differing("language", family, by_seed(rows, "model", "bits_per_byte"), pairs.values())


def of_mathematics() -> Iterator[Hypothesis]:
    """Mathematics, characters of interpolation."""
    rows = rows_of("mathematics", "study")
    table = by_seed(rows, "model", "interpolate", points=["module"])
    yield from differing("mathematics", "primary", table, [mathematics.PAIR])
    for module, own in rows.groupby("module"):
        pairs = [(*mathematics.PAIR, f"on {module}")]
        yield from differing("mathematics", "modules", by_seed(own, "model", "interpolate"), pairs)
    rows = rows_of("mathematics", "study", "sequences", "relative", "rotary")
    table = by_seed(rows[rows["module"] == mathematics.MODULES[1]], "model", "interpolate")
    arm, dat, (rotary,) = "DAT-4+4-positional", "DAT-832K", mathematics.ROTARY
    pairs = [(arm, other) for other in (dat, f"{arm}-rca", "T-871K")]
    yield from differing("mathematics", "relations or relative symbols", table.loc[:2], pairs)
    yield from differing("mathematics", "relative positions", table, [(dat, other) for other in mathematics.RELATIVE])
    yield from differing("mathematics", "rotary positions", table, [(dat, rotary)])


def of_rivals() -> Iterator[Hypothesis]:
    """Rivals of relational attention; the higher the better."""
    for path in sorted((STUDIES / "rivals/results").glob("*.csv")):
        family, grid = path.stem.split("-")
        table, (transformer, dat, _) = rivals.measured(family, grid), rivals.FAMILIES[family]
        arms = [arm for arm in table if arm not in (transformer, dat, rivals.ROTARY.name)]
        of = {"Transformer": [(arm, transformer) for arm in arms], "the DAT": [(dat, arm) for arm in arms]}
        of["the DAT and the Transformer" + LATER] = [(dat, transformer)]
        if rivals.ROTARY.name in table:
            of["rotary positions"] = [(arm, rivals.ROTARY.name) for arm in (*arms, dat, transformer)]
        for name, pairs in of.items():
            yield from differing("rivals", f"{family}, {grid}: {name}", table, pairs)


def of_others() -> Iterator[Hypothesis]:
    """Digits, emoji, codes, recall and length."""
    rows = rows_of("digit_games", "digits")
    for measure in ("unseen", "fall"):
        table = by_seed(rows, "model", measure, points=["task"])
        pairs = [(arm, digit_games.REFERENCE) for arm in table if arm != digit_games.REFERENCE]
        yield from differing("digit_games", measure, table, pairs)
    for family, grid in (("primary", "digits"), ("other rates", "digits-2e-3"), ("other rates", "digits-4e-3")):
        table = by_seed(rows_of("images", grid), "model", "test", points=["n_train"])
        yield from differing("images", family, table, [(*images.PAIR, f"in {grid}")])
    rows = rows_of("emoji", "category")
    for measure in emoji.PRIMARY:
        pairs = [(*emoji.PAIR, f"on {measure}")]
        yield from differing("emoji", "primary", by_seed(rows, "model", measure), pairs, "flips")
    table = emoji_games.accuracies("unseen", read_results(emoji_games.RESULTS), *emoji_games.STUDY.tasks)
    yield from differing("emoji_games", "primary", table, emoji_games.PRIMARY.values(), "flips")
    beside = {f"{model} less {emoji_matched.RULE}": values for model, values in emoji_matched.margins().items()}
    yield from valued("emoji_matched", "beside a rule", beside, "flips")
    for name, family in relation_or_product.read().items():
        found = {f"DAT less {arm}": relation_or_product.less(family, "DAT", arm) for arm in relation_or_product.PRIMARY}
        yield from valued("relation_or_product", name, found)
    for family in better_dat.FAMILIES:
        pairs = better_dat.comparisons(family)
        found = {f"{change} less {other}": one.values for (change, other), one in pairs.items()}
        yield from valued("better_dat", family.name, found, "flips")
    runs, table = better_dat.failures(better_dat.GAMES).astype(int), better_dat.GAMES.measured()
    more = {"failed runs, bounded less squared": (runs["bounded"] - runs["squared"]).tolist()}
    yield from valued("better_dat", "games, failed runs", more, "McNemar")
    found = {f"squared less {arm}": one.values for arm, one in better_dat.confirmed().items()}
    yield from valued("better_dat", "games, confirmation", found, "flips")
    pairs = [("squared", other) for other in ("dat", *better_dat.BASELINES, better_dat.BESIDE)]
    yield from differing("better_dat", "games, squared distances" + LATER, table, pairs, "flips")
    for name, study in (("matrices", matrices), ("kinship", kinship)):
        if study.FAMILY.done():
            found = {f"DAT less {arm}": one.values for arm, one in study.comparisons().items()}
            yield from valued(name, "primary", found, "flips")
    yield from valued("divergence", "primary", divergence.more_often(), "McNemar")
    rows = rows_of("shifted_objects", "codes")
    many, few = (shifted_objects.accuracies(rows, n, *shifted_objects.UNSEEN) for n in (10_000, 1_000))
    yield from differing("shifted_objects", "primary", many, shifted_objects.PRIMARY, "flips")
    pairs = [("ra", "rca", "10,000 less 1,000"), ("ra", "disrca", "10,000 less 1,000")]
    yield from differing("shifted_objects", "with more data", many - few, pairs, "flips")
    rows = rows_of("recall", "study")
    for family, tasks, measure in (
        ("recall, steps", ("in-context-copying", "mqar"), "learned_step"),
        ("state", ("parity", "s3", "s5"), "accuracy"),
    ):
        own = rows.loc[rows["task"].isin(tasks), ["task", "size", "model", "seed", measure]]
        table = by_seed(own, "model", measure, points=["task", "size"])
        yield from differing("recall", family, table, [(arm, "T") for arm in RECALL_ARMS[1:]])
    rows = rows_of("recall", "study", "positions")[["task", "model", "seed", "accuracy"]]
    table = by_seed(rows[rows["task"].isin(["parity", "s3"])], "model", "accuracy", points=["task"])
    yield from differing("recall", "state, a control", table, [("DAT-relative", "T-positions")])
    table = by_seed(rows_of("length", "study", "clip"), "model", "beyond", points=["task"])
    yield from differing("length", "beyond the lengths of training", table, [(arm, "T") for arm in LENGTH_ARMS[1:]])
    yield from differing("length", "a control", table, [("DAT-clipped-8", "DAT-clipped")])


def hypotheses() -> Frame:
    """All of them, with p after Holm in each family, and after Holm and Benjamini-Hochberg over all."""
    makers = (of_games, of_relation_size, of_language, of_mathematics, of_rivals, of_others)
    table: Any = pd.DataFrame(one for maker in makers for one in maker())
    families = table.groupby(["study", "family"])["p"]
    table["holm_in_family"] = families.transform(lambda p: holm(p.tolist()))
    table["holm_over_all"] = holm(table["p"].tolist())
    table["benjamini_hochberg_over_all"] = multipletests(table["p"], method="fdr_bh")[1]
    shown = table.columns[6:]
    table[shown] = table[shown].map(lambda p: float(f"{p:.3g}"))
    return table


if __name__ == "__main__":
    hypotheses().to_csv(FILE, index=False)
