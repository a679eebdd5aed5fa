"""Figure of what was found in language models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dual_attention.model_analysis.views.plots import house_style, matplotlib_figure, save_figure

from .language_report import of_kind
from .language_results import ALL, LABELS, NOISE, LanguageFound
from .mediators import ALL as ALL_THREE
from .mediators import MEDIATORS, SENSORY

COLOURS = {"semantic": "#1f6fb4", "syntactic": "#c0632f"}
GREY = "#8c8c8c"


def draw(models: Sequence[LanguageFound], path: Path) -> None:
    """Reading, selectivity, single relations beside directions, and mediators: a panel each."""
    with house_style():
        figure, axes = matplotlib_figure(2, 2, figsize=(9.2, 7.2))
        _reading(axes[0][0], models)
        _selectivity(axes[0][1], models)
        _single(axes[1][0], models)
        _mediators(axes[1][1], models)
        figure.tight_layout()
        save_figure(figure, path)


def _reading(axis: Any, models: Sequence[LanguageFound]) -> None:
    kinds = list(dict.fromkeys(one.scores for found in models for one in found.read))
    for shift, label in zip((-0.12, 0.12), LABELS, strict=True):
        for found in models:
            own = [one for one in found.read if one.label == label]
            places = [kinds.index(one.scores) + shift for one in own]
            axis.plot([one.held_out for one in own], places, "o", color=COLOURS[label], markersize=5)
        axis.plot([], [], "o", color=COLOURS[label], label=label)
    axis.axvline(0.5, color="#606060", linewidth=1, linestyle=":")
    axis.set_yticks(range(len(kinds)), kinds)
    axis.invert_yaxis()
    axis.set_xlabel("AUC of the best, on other documents")
    axis.set_title("Which label can be read")
    axis.legend(loc="lower left")


def _selectivity(axis: Any, models: Sequence[LanguageFound]) -> None:
    names = []
    for group, what in enumerate((ALL, NOISE)):
        for shift, label in zip((-0.12, 0.12), LABELS, strict=True):
            for number, found in enumerate(models):
                one = getattr(found.effect(what), label)
                place = group * (len(models) + 1) + number
                axis.errorbar(
                    place + shift, 1e3 * one.difference, yerr=1e3 * one.half, color=COLOURS[label], marker="o"
                )
        names += [
            (group * (len(models) + 1) + number, f"{'noise' if what == NOISE else 'relations'}\nseed {found.seed}")
            for number, found in enumerate(models)
        ]
    axis.axhline(0, color="#606060", linewidth=1, linestyle=":")
    axis.set_xticks([place for place, _ in names], [name for _, name in names], fontsize=7)
    axis.set_ylabel("10⁻³ nats a pair")
    axis.set_title("Effect at pairs with the label, less without")


def _single(axis: Any, models: Sequence[LanguageFound]) -> None:
    for number, found in enumerate(models):
        for shift, kind, colour in ((-0.1, "relation", "#303030"), (0.4, "direction", GREY)):
            for place, one in enumerate(of_kind(found, kind)):
                d = one.difference
                x = number + shift + 0.02 * (place - 8)
                axis.errorbar(x, 1e3 * d.difference, yerr=1e3 * d.half, color=colour, marker=".", linewidth=0.8)
    for kind, colour in (("a relation", "#303030"), ("a random direction", GREY)):
        axis.plot([], [], ".", color=colour, label=kind)
    axis.axhline(0, color="#606060", linewidth=1, linestyle=":")
    axis.set_xticks(range(len(models)), [f"seed {found.seed}" for found in models])
    axis.set_ylabel("D, 10⁻³ nats a pair")
    axis.set_title("Semantic less syntactic, one at a time")
    axis.margins(y=0.25)
    axis.legend(loc="upper right", ncols=2, fontsize=8)


def _mediators(axis: Any, models: Sequence[LanguageFound]) -> None:
    names = [*MEDIATORS, ALL_THREE, SENSORY]
    for task, marker, colour in zip(("repeated text", "agreement"), "os", ("#303030", GREY), strict=True):
        shown = [one for found in models for one in found.mediation if one.task == task and one.readable]
        for number, one in enumerate(shown):
            for part in one.restored:
                x = names.index(part.mediator) + 0.12 * (number - 1) + (0.05 if marker == "s" else 0)
                between = [[100 * (part.share - part.low)], [100 * (part.high - part.share)]]
                axis.errorbar(x, 100 * part.share, yerr=between, color=colour, marker=marker, markersize=4)
        if shown:
            axis.plot([], [], marker, color=colour, label=task)
    axis.axhline(0, color="#606060", linewidth=1, linestyle=":")
    axis.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names], fontsize=8)
    axis.set_ylabel("restored (%)")
    axis.set_title("What carries what is copied")
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc="upper left")
