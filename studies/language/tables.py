"""Paired differences of bits per byte, their tests and readings, as ANNOUNCED.md fixes them; tables and figure."""

from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from dat.experiments.language.model_keys import model_preset
from dat.experiments.language.published import published_results
from dat.training.metrics import Row
from dual_attention._base.files import write_atomically
from dual_attention._base.plots import house_style, matplotlib_figure, save_figure
from studies._lib.inference import holm, sign_flip_p
from studies._lib.tables import Frame, by_seed, differences, markdown, mean_text, read_results
from studies.language.models import ARMS, COLOURS, DISTANCE, LABELS, LARGER, RATED, RATES

FOLDER = Path(__file__).parent

MEASURE = "bits_per_byte"
BOUND, LEVEL, FEWEST = 0.005, 0.05, 3
"""Differences that count as none, level of the tests, pairs that a difference needs."""
PRIMARY = {"parameters": ("DAT", "T"), "operations": ("DAT", "T-operations"), "time": ("DAT", "T-time")}
"""What is held equal, and the arms that are compared."""
SECONDARY = {
    "RCA or a Transformer": ("RCA", "T"),
    "a gate or none": ("T-gated", "T"),
    "relations or a gate": ("DAT", "T-gated"),
    "relations or RCA": ("DAT", "RCA"),
}
"""Differences at equal parameters that are reported beside them."""
AT_OWN_RATES = {
    "a Transformer of as many operations": ("DAT", "T-operations"),
    "a linear output gate": ("DAT", "T-gated"),
}
"""Differences that the grid `rates` was run for."""
OF_RELATIONS = {
    "size": (LARGER.name, "DAT-64"),
    "kind, at equal size": (DISTANCE.name, LARGER.name),
    "equal parameters": (LARGER.name, "T-64"),
    "equal operations": (LARGER.name, "T-operations-64"),
}
"""Differences that the grid `relations` was run for."""
DRAWS = 10_000
"""Times that the validation documents are drawn again."""


def ends(rows: Frame, d_model: int) -> Frame:
    """The rows of the longest training of each arm of a width, by the arm's name without it."""
    own = rows[rows["model"].isin([name for name, arm in ARMS.items() if arm.d_model == d_model])]
    own = own[own["steps"] == own.groupby("model")["steps"].transform("max")]
    return own.assign(model=own["model"].str.removesuffix(f"-{d_model}"))


def found_differences(rows: Frame, family: Mapping[str, tuple[str, str]]) -> Frame:
    """Differences of a family of questions, of those whose two arms have enough seeds in common.

    p-values are corrected for the whole family, which was announced; those that are missing count as 1.
    """
    table = by_seed(rows, "model", MEASURE)
    there = {
        question: pair
        for question, pair in family.items()
        if {*pair} <= {*table.columns} and len(table[[*pair]].dropna()) >= FEWEST
    }
    if not there:
        return pd.DataFrame()
    found = differences(table, list(there.values())).assign(question=list(there))
    found["holm"] = holm([*found["p"], *[1.0] * (len(family) - len(there))])[: len(there)]
    return found.assign(
        reading=[reading(*one) for one in zip(found["mean"], found["half"], found["holm"], strict=True)]
    )


def reading(mean: float, half: float, adjusted: float) -> str:
    """Words that ANNOUNCED.md has for this outcome; below zero the first arm is better."""
    alike = abs(mean) + half < BOUND
    if adjusted < LEVEL:
        side = "better" if mean < 0 else "worse"
        return f"{side}, by less than {BOUND}" if alike else side
    return "alike" if alike else "undecided"


def study_text(rows: Frame) -> str:
    """Arms, differences and readings of every width as Markdown; empty where there is no difference."""
    parts = []
    for d_model in sorted({arm.d_model for arm in ARMS.values()}):
        own = ends(rows, d_model)
        families = {"held equal": PRIMARY, "beside it": SECONDARY}
        found = {title: found_differences(own, family) for title, family in families.items() if len(own)}
        tables = [markdown(in_words(frame, title)) for title, frame in found.items() if len(frame)]
        if tables:
            parts += [f"## Width {d_model}", arms_table(own), *tables]
    head = (
        "# At equal parameters, operations and time\n\nBits per byte of the validation text after the last step, lower "
        "is better. Differences are paired by seed: mean ± half of the 95 % t-interval; alike: that interval lies "
        f"within ±{BOUND}. Seconds are of training, of one thread, and depend on what else the machine did."
    )
    return "\n\n".join([head, *parts]) + "\n" if parts else ""


def in_words(found: Frame, title: str, digits: int = 4) -> Frame:
    """Differences as a table for readers."""
    means = [f"{mean:+.{digits}f} ± {half:.{digits}f}" for mean, half in zip(found["mean"], found["half"], strict=True)]
    return pd.DataFrame(
        {
            title: found["question"],
            "difference of": found["arm"] + " − " + found["against"],
            "pairs": found["pairs"],
            "bits per byte": means,
            "p": [f"{p:.2g}" for p in found["p"]],
            "p (Holm)": [f"{p:.2g}" for p in found["holm"]],
            "reading": found["reading"],
        }
    )


def arms_table(own: Frame) -> str:
    """The arms of a width, their sizes and means."""
    lines = [
        {
            "arm": LABELS[arm],
            "parameters": f"{rows['parameters'].iloc[0]:,}",
            "tokens": f"{rows['tokens'].iloc[0]:,.0f}",
            "trials": len(rows),
            "bits per byte": mean_text(rows[MEASURE].tolist(), 4),
            "median seconds": f"{rows['seconds'].median():.0f}",
        }
        for arm in LABELS
        if len(rows := own[own["model"] == arm])
    ]
    return markdown(pd.DataFrame(lines))


def write_study(rows: Sequence[Row], path: Path) -> None:
    """Write :func:`study_text`, if there is anything to write."""
    if text := study_text(pd.DataFrame(rows)):
        write_atomically(path, text)


def draw_study(rows: Sequence[Row], path: Path) -> None:
    """Draw the differences of every width as intervals beside the bound; nothing where there are none."""
    found = {}
    for d_model in sorted({arm.d_model for arm in ARMS.values()}):
        own = ends(pd.DataFrame(rows), d_model)
        both = [found_differences(own, family) for family in (PRIMARY, SECONDARY)] if len(own) else []
        if any(len(frame) for frame in both):
            found[d_model] = by_seed(own, "model", MEASURE), pd.concat(both, ignore_index=True)
    if not found:
        return
    most = max(len(frame) for _, frame in found.values())
    with house_style():
        figure, axes = matplotlib_figure(
            1, len(found), figsize=(3.0 + 4.2 * len(found), 1.4 + 0.45 * most), squeeze=False
        )
        for axis, (d_model, (table, frame)) in zip(axes[0], found.items(), strict=True):
            axis.axvspan(-BOUND, BOUND, color="#e9e9e9", zorder=0)
            axis.axvline(0, color="#606060", linewidth=1.2, linestyle=":")
            labels = []
            for place, one in enumerate(frame.to_dict("records")):
                colour, pairs = COLOURS[one["arm"]], (table[one["arm"]] - table[one["against"]]).dropna()
                look = {"color": colour, "marker": "o", "markerfacecolor": colour if one["holm"] < LEVEL else "white"}
                axis.errorbar(one["mean"], place, xerr=one["half"], **look)
                axis.scatter(pairs, [place + 0.22] * len(pairs), color=colour, s=7, alpha=0.5, linewidths=0)
                equal = "equal " * (one["question"] in PRIMARY)
                labels.append(f"{one['arm']} − {one['against']}\n({equal}{one['question']})")
            axis.set_yticks(range(len(labels)), labels, fontsize=9)
            axis.set_ylim(len(labels) - 0.4, -0.6)
            axis.set_title(f"width {d_model}", loc="left", fontweight="bold")
            axis.set_xlabel(
                "difference in bits per byte; left of 0 the first is better\n"
                "mean of pairs, 95 % t-interval, dots: pairs; filled: p < 0.05 (Holm); grey: counts as none",
                fontsize=8,
            )
            axis.grid(axis="y", visible=False)
        figure.tight_layout()
        save_figure(figure, path)


# Tables of README.md --------------------------------------------------------------------------------------------------


def result_table() -> str:
    """The three primary differences."""
    rows = ends(read_results(FOLDER / "results/study/results.csv"), 64)
    return markdown(in_words(found_differences(rows, PRIMARY), "held equal", 3).drop(columns="p"))


def rated_results() -> Frame:
    """Rows of the grid `rates` with their arm, of the seeds that all its models have."""
    rows = read_results(FOLDER / "results/rates/results.csv")
    rows = rows[rows["model"].isin(RATED)]
    of_seed = rows.groupby("seed")["model"].nunique()
    complete = of_seed.index[of_seed == len(RATED)]
    return rows[rows["seed"].isin(complete)].assign(arm=[RATED[model][0] for model in rows["model"]])


def own_models(rows: Frame) -> dict[str, str]:
    """The model of each arm whose rate has the lowest mean."""
    means = rows.groupby(["arm", "model"], sort=False)[MEASURE].mean()
    return {arm: str(means[arm].idxmin()) for arm in RATES}


def rates_table() -> str:
    """Bits per byte of every arm at every rate."""
    rows = rated_results()
    best = own_models(rows).values()
    lines = []
    for name, (arm, rate) in RATED.items():
        own = rows.loc[rows["model"] == name, MEASURE].tolist()
        cells = {"arm": LABELS[arm], "rate": f"{rate}" + " (lowest)" * (name in best), "seeds": len(own)}
        lines.append({**cells, "bits per byte": mean_text(own, 3), "worst seed": f"{max(own):.3f}"})
    return markdown(pd.DataFrame(lines))


def over_documents(first: str, second: str) -> tuple[float, float]:
    """The 95 % interval of a difference of two models in bits per byte over documents drawn again."""
    table = pd.read_csv(FOLDER / "results/rates/documents.csv")
    drawn = np.random.default_rng(0).integers(len(table), size=(DRAWS, len(table)))
    less = (table[first] - table[second]).to_numpy()[drawn].sum(1) / table["bytes"].to_numpy()[drawn].sum(1)
    low, high = np.quantile(less, [0.025, 0.975])
    return float(low), float(high)


def own_rates_table() -> str:
    """The differences that the grid `rates` was run for, each arm at its own rate."""
    rows = rated_results()
    best = own_models(rows)
    own = rows[rows["model"].isin(best.values())].assign(model=lambda found: found["arm"])
    found = found_differences(own, AT_OWN_RATES)
    table = in_words(found, "against", 3).assign(**{"p (flips, Holm)": flips(own, AT_OWN_RATES)})
    pairs = AT_OWN_RATES.values()
    intervals = [over_documents(best[a], best[b]) for a, b in pairs]
    table["over documents"] = [f"{low:+.3f} to {high:+.3f}" for low, high in intervals]
    return markdown(table.drop(columns=["difference of", "p"]))


def flips(rows: Frame, family: Mapping[str, tuple[str, str]]) -> list[str]:
    """p of a family's differences by flips of signs, after Holm."""
    values = by_seed(rows, "model", MEASURE)
    return [
        f"{p:.2g}" for p in holm([sign_flip_p((values[a] - values[b]).dropna().tolist()) for a, b in family.values()])
    ]


def relations_results() -> Frame:
    """Rows of the grid `relations`, and of the arms of the study that they are compared with."""
    arms = {model for pair in OF_RELATIONS.values() for model in pair}
    rows = read_results(FOLDER / "results/study/results.csv", FOLDER / "results/relations/results.csv")
    return rows[rows["model"].isin(arms)]


def relations_table() -> str:
    """The announced differences of initial size and kind of relations."""
    rows = relations_results()
    found = found_differences(rows, OF_RELATIONS)
    table = in_words(found, "question", 3).assign(**{"p (flips, Holm)": flips(rows, OF_RELATIONS)})
    return markdown(table.drop(columns="p"))


def initial_variation(d_model: int, width: int, std: float) -> float:
    """Mean variance, over senders, of relations of random objects under projections from N(0, std²)."""
    objects = torch.randn(64, 10, d_model, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    sizes = d_model, min(max(2048 // width, 1), 64), width
    u, w = (torch.einsum("bmd,drp->bmrp", objects, std * torch.randn(sizes, generator=generator)) for _ in range(2))
    relations = torch.einsum("bnrp,bmrp->bnmr", u, w) / sqrt(width)
    return relations.double().var(2, correction=0).mean().item()


def sizes_table() -> str:
    """Initial sizes of relations whose weights all come from N(0, 0.02), as published, by model."""
    lines, std = [], 0.02
    for name in ("DAT-tiny", "DAT-343M-nr8", "DAT-343M-nr64", "DAT-734M", "DAT-1.27B-nr128"):
        keys = model_preset(name)
        relations, width = keys.n_relations or 0, keys.rel_proj_dim or 0
        variation = initial_variation(keys.d_model, width, std)
        about = {"model": f"`{name}`", "width": keys.d_model, "relations": f"{relations}, {width} wide"}
        lines.append({**about, "initial size": f"{std * sqrt(relations * variation):.2g}"})
    return markdown(pd.DataFrame(lines))


def published_table() -> str:
    """Table 5: perplexity after 10 billion tokens, one run each."""
    columns = ["model", "parameters", "perplexity"]
    return markdown(pd.DataFrame([row for row in published_results() if row["source"] == "Table 5"])[columns])
