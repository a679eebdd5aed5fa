"""A sweep of learning rates: the best of each arm, whether the range holds it, and whether it is told from others."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from dual_attention.model_analysis.measures.intervals import half_width
from dual_attention.model_analysis.views.plots import (
    house_style,
    legend_below,
    matplotlib_figure,
    save_figure,
    scale_log,
)

from ..training.metrics import Row
from .comparison import mean_text
from .curves import colours_of
from .experiment import DIVERGED, AnySwept
from .results import LR

Trials = dict[float, dict[int, float]]
"""Values by learning rate and seed."""
TABLE, FIGURE = "learning_rates.md", "learning_rates.png"


def sweeps_rates(experiment: AnySwept, rows: Sequence[Row]) -> bool:
    """Whether some arm was run with several learning rates at one point, or diverged, which only sweeps record."""
    if any(DIVERGED in row for row in rows):
        return True
    places = {}
    for row in rows:
        places.setdefault(tuple(row[axis.name] for axis in experiment.axes), set()).add(row.get(LR))
    return any(len(rates) > 1 and None not in rates for rates in places.values())


@dataclass(frozen=True)
class Optimum:
    """The best learning rate of an arm, by the mean over points and seeds, of those with which no run diverged.

    Attributes:
        trials: the mean over points for each such learning rate and each seed that all of them have.
        best: None if there is no such seed.
        diverged: for each other learning rate, how many runs diverged.
    """

    arm: str
    trials: Trials
    best: float | None
    diverged: Mapping[float, int] = field(default_factory=dict)

    @property
    def rates(self) -> list[float]:
        """All learning rates."""
        return sorted({*self.trials, *self.diverged})

    @property
    def at_border(self) -> bool:
        """Whether it is the smallest or largest of the range, beyond which a better one may lie."""
        return self.best in (self.rates[0], self.rates[-1])

    @property
    def neighbours(self) -> list[float]:
        """The learning rates next to it."""
        rates = self.rates
        place = rates.index(self.best) if self.best is not None else 0
        return [rate for n, rate in enumerate(rates) if abs(n - place) == 1]

    def differences(self, rate: float) -> list[float]:
        """The measure at the best learning rate less that at another, by seed."""
        best = self.trials[self.best] if self.best is not None else {}
        return [best[seed] - self.trials[rate][seed] for seed in sorted(best)]


def trials_of(experiment: AnySwept, rows: Sequence[Row], measure: str, arm: str) -> Trials:
    """Means over the points of an arm, of the seeds that all learning rates and points have.

    Learning rates with which a run diverged are left out.
    """
    places = {
        tuple(row[axis.name] for axis in experiment.axes) for row in rows if row[experiment.curve_axis.name] == arm
    }
    diverged = diverged_of(experiment, rows, arm)
    found: dict[float, dict[int, dict[Any, float]]] = {}
    for row in rows:
        place = tuple(row[axis.name] for axis in experiment.axes)
        if place in places and LR in row and row.get(measure) is not None and row[LR] not in diverged:
            found.setdefault(float(row[LR]), {}).setdefault(int(row["seed"]), {})[place] = float(row[measure])
    complete = [{seed for seed, values in of.items() if values.keys() == places} for of in found.values()]
    seeds = set.intersection(*complete) if complete else set()
    return {rate: {seed: fmean(found[rate][seed].values()) for seed in sorted(seeds)} for rate in sorted(found)}


def diverged_of(experiment: AnySwept, rows: Sequence[Row], arm: str) -> dict[float, int]:
    """Numbers of runs of an arm that diverged, by learning rate; those with which all ended are left out."""
    own = (row for row in rows if row[experiment.curve_axis.name] == arm and DIVERGED in row)
    return dict(Counter(float(row[LR]) for row in own))


def optimum(experiment: AnySwept, rows: Sequence[Row], measure: str, arm: str) -> Optimum:
    """The best learning rate of an arm."""
    trials = trials_of(experiment, rows, measure, arm)
    means = {rate: fmean(values.values()) for rate, values in trials.items() if values}
    choose = min if experiment.lower_is_better(measure) else max
    best = choose(means, key=means.__getitem__) if means else None
    return Optimum(arm, trials, best, diverged_of(experiment, rows, arm))


def verdict(experiment: AnySwept, found: Optimum) -> list[str]:
    """Sentences about the best learning rate of an arm."""
    name = experiment.curve_axis.label(found.arm)
    if found.diverged and not found.trials:
        return [f"**{name}**: training diverged with every learning rate, so none is named: sweep smaller ones."]
    if found.best is None:
        return [f"**{name}**: no seed has been run with every learning rate, so none is named."]
    sentences = [f"**{name}**: best at {found.best:g}."]
    if found.at_border:
        side = "smallest" if found.best == found.rates[0] else "largest"
        sentences.append(
            f"This is the {side} of the range, so the optimum may lie beyond it: sweep further before using it."
        )
    digits = experiment.decimals
    for rate in found.neighbours:
        if rate in found.diverged:
            sentences.append(f"At {rate:g} training diverged.")
            continue
        values = found.differences(rate)
        if len(values) < 2:
            sentences.append(f"With one seed it cannot be told from {rate:g}.")
            continue
        difference, half = fmean(values), half_width(values)
        told = "distinguishable from" if abs(difference) > half else "not distinguishable from"
        sentences.append(f"It is {told} {rate:g} ({difference:+.{digits}f} ± {half:.{digits}f}, {len(values)} pairs).")
    return sentences


def rates_text(experiment: AnySwept, rows: Sequence[Row], measure: str) -> str:
    """The sweep as one Markdown text: a table, the best of each arm, and the option that gives each arm its own."""
    arms = experiment.curve_axis.ordered(rows)
    found = [optimum(experiment, rows, measure, arm) for arm in arms]
    rates = sorted({rate for one in found for rate in one.rates})
    direction = "smallest" if experiment.lower_is_better(measure) else "largest"
    parts = [
        "# Learning rates",
        "",
        f"{experiment.measures[measure][:1].upper()}{experiment.measures[measure][1:]}: mean over all points, and over "
        "the seeds that have been run with every learning rate ± half of its 95 % t-interval. The best of an arm has "
        f"the {direction} mean; it is compared with its neighbours by differences paired by seed (95 % t-interval)."
        + " A learning rate with which runs diverged, in brackets how many, is never the best."
        * any(one.diverged for one in found),
        "",
        "| " + " | ".join([experiment.curve_axis.name, "seeds", *(f"{rate:g}" for rate in rates)]) + " |",
        "|" + "---|" * (len(rates) + 2),
    ]
    for one in found:
        entries = []
        for rate in rates:
            values = list(one.trials.get(rate, {}).values())
            text = mean_text(values, experiment.decimals) if values else ""
            text = f"diverged ({one.diverged[rate]})" if rate in one.diverged else text
            entries.append(f"**{text}**" if rate == one.best else text)
        seeds = len(next(iter(one.trials.values()), {}))
        parts.append("| " + " | ".join([experiment.curve_axis.label(one.arm), str(seeds), *entries]) + " |")
    parts += ["", *(f"- {' '.join(verdict(experiment, one))}" for one in found)]
    if best := {one.arm: one.best for one in found if one.best is not None}:
        parts += ["", f"A grid gives each arm its own by `--lr_of '{json.dumps(best)}'`."]
    return "\n".join(parts) + "\n"


def draw_rates(experiment: AnySwept, rows: Sequence[Row], measure: str, path: Path) -> None:
    """Draw the measure against the learning rate: a panel for each panel of the experiment, a line for each arm.

    Values are means over the points of the panel. A star marks the best; it is hollow at the border of the range.
    """
    panels = [panel for panel in experiment.panels(rows) if any(experiment.panel(row) == panel for row in rows)]
    colours = colours_of(experiment, rows)
    with house_style():
        size = (max(5.0, 3.6 * len(panels)), 3.8)
        figure, axes = matplotlib_figure(1, len(panels), figsize=size, squeeze=False, sharey=True)
        for axis, panel in zip(axes[0], panels, strict=True):
            within = [row for row in rows if experiment.panel(row) == panel]
            drawn = [_draw_arm(axis, optimum(experiment, within, measure, arm), c) for arm, c in colours.items()]
            rates = sorted({float(row[LR]) for row in within if LR in row})
            axis.set(xscale="log", xlabel="peak learning rate")
            axis.set_xticks(rates, [f"{rate:g}" for rate in rates], minor=False)
            axis.xaxis.minorticks_off()
            axis.set_title(panel, loc="left", fontweight="bold")
            if experiment.log_scale and any(drawn):
                scale_log(axis)
        axes[0][0].set_ylabel(textwrap.fill(f"{experiment.y_title}: {experiment.measures[measure]}", 36))
        crosses = "; cross: diverged" if any(DIVERGED in row for row in rows) else ""
        title = f"Learning rates: mean and seeds; star: best, hollow at the border{crosses}"
        figure.suptitle(textwrap.fill(title, int(11 * size[0])), fontsize=12, x=0.01, ha="left")
        figure.tight_layout()
        line: Any = axes[0][0].plot
        label = experiment.curve_axis.label
        handles = [line([], [], color=c, marker="o", markersize=4, label=label(arm))[0] for arm, c in colours.items()]
        legend_below(figure, handles)
        save_figure(figure, path)


def _draw_arm(axis: Any, found: Optimum, colour: str) -> bool:
    """Draw the means of an arm as a line, its seeds as dots, and its best; whether there was anything to draw.

    Learning rates with which runs diverged are crosses at the lower edge.
    """
    crosses = {"color": colour, "marker": "x", "linestyle": "", "transform": axis.get_xaxis_transform()}
    axis.plot(list(found.diverged), [0.03] * len(found.diverged), **crosses)
    means = {rate: fmean(values.values()) for rate, values in found.trials.items() if values}
    if found.best is None:
        return False
    axis.plot(list(means), list(means.values()), color=colour, marker="o", markersize=4, zorder=3)
    dots = [(rate, value) for rate, values in found.trials.items() for value in values.values()]
    axis.scatter(*zip(*dots, strict=True), color=colour, s=12, alpha=0.55, linewidths=0, zorder=4)
    style = {"color": colour, "marker": "*", "markersize": 15, "zorder": 5}
    axis.plot([found.best], [means[found.best]], markerfacecolor="white" if found.at_border else colour, **style)
    return True
