"""Table, figure and reading of what was found in models trained on ``occurs``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dual_attention.model_analysis.views.plots import house_style, matplotlib_figure, save_figure

if TYPE_CHECKING:
    from .games import Found, Lost

DECIDES = "test"
"""The set of images on which the announced rule is applied."""
CHANCE, MOST_LEFT = 0.5, 0.55
"""Accuracy of guessing; and the most that a model may have without a relation that it needs."""
SMALL, LARGE = 0.05, 0.1
"""Accuracy lost that counts as nothing much, and as much."""
FEWEST_AGAINST = 3
"""Models in which another relation costs more, from which the one that reads best is said not to be used."""


def lost_by_relation(found: Found, how: str = "resample", objects: str = DECIDES) -> dict[str, Lost]:
    """Cost of each relation, by its name."""
    return {
        one.what.removeprefix("relation "): one
        for one in found.lost
        if one.what.startswith("relation ") and (one.how, one.objects) == (how, objects)
    }


def verdict(models: Sequence[Found]) -> str:
    """The announced words for what was found in all models."""
    if not models:
        return "no model has learned the task"
    only = among = True
    against = 0
    for found in models:
        costs = lost_by_relation(found)
        own = costs.pop(found.best)
        others = max(one.lost for one in costs.values())
        only &= own.accuracy <= MOST_LEFT and others < SMALL
        among &= own.lost >= LARGE and own.lost > others
        against += others > own.lost
    if only:
        return "the model uses the relation that reads best, and no other"
    if among:
        return "it uses that relation among others"
    if against >= FEWEST_AGAINST:
        return "what reads best is not what is used"
    return "it differs from model to model"


def report(models: Sequence[Found], *, learned: float) -> str:
    """Tables of detection and of losses in Markdown, with the verdict by the announced rule."""
    kept = [found for found in models if found.accuracies[DECIDES] >= learned]
    left = [found for found in models if found not in kept]
    lines = ["# Relations of models trained on occurs", ""]
    lines += [f"By the announced rule, of {len(kept)} models: **{verdict(kept)}**.", ""]
    if left:
        lines += [f"Left out, below {learned:.0%} on new pentominoes: {', '.join(found.run for found in left)}.", ""]
    lines += ["## Equal objects, read", "", *_read_table(kept), ""]
    for how in ("resample", "mean", "zero"):
        lines += [f"## Accuracy with one relation taken away ({how})", "", *_lost_table(kept, how), ""]
    lines += ["## Other interventions, resampled, new pentominoes", "", *_others_table(kept)]
    return "\n".join(lines) + "\n"


def _read_table(models: Sequence[Found]) -> list[str]:
    lines = [
        "AUC among pairs of different cells with objects, against pairs in the same two cells. Held out: of the best "
        "of one half of the images, on the other half. p: of the best, against shuffled objects, for the maximum.",
        "",
        "| seed | scores | number | AUC | best | held out | p |",
        "|---|---|---|---|---|---|---|",
    ]
    for found in models:
        for read in found.read:
            own = read.scores == "relations"
            shown = ", ".join(f"{name}: {auc:.3f}" for name, auc in zip(found.relations, read.aucs, strict=False))
            best = found.best if own else "–"
            aucs = shown if own else f"{min(read.aucs):.3f} to {max(read.aucs):.3f}"
            lines.append(
                f"| {found.seed} | {read.scores} | {len(read.aucs)} | {aucs} | {best} | {read.held_out:.3f} "
                f"| {read.p:.3f} |"
            )
    return lines


def _lost_table(models: Sequence[Found], how: str) -> list[str]:
    if not models:
        return ["No model has learned the task."]
    names = models[0].relations
    head = "| seed | images | untouched | " + " | ".join(f"without {name}" for name in names) + " |"
    lines = [head, "|---" * (3 + len(names)) + "|"]
    for found in models:
        for objects, accuracy in found.accuracies.items():
            costs = lost_by_relation(found, how, objects)
            cells = []
            for name in names:
                text = f"{100 * costs[name].accuracy:.1f} ({_points(costs[name])})"
                cells.append(f"**{text}**" if name == found.best else text)
            lines.append(f"| {found.seed} | {objects} | {100 * accuracy:.1f} | " + " | ".join(cells) + " |")
    return lines


def _points(one: Lost) -> str:
    """Change of accuracy in points, with half of its interval."""
    return f"{-100 * one.lost + 0.0:+.1f} ± {100 * one.half:.1f}"


def _others_table(models: Sequence[Found]) -> list[str]:
    lines = ["| seed | what | accuracy | points |", "|---|---|---|---|"]
    for found in models:
        plain = [one for one in found.lost if one.objects == DECIDES and not one.what.startswith("relation ")]
        random = [one for one in plain if one.what.startswith("random direction")]
        for one in (one for one in plain if one not in random):
            lines.append(f"| {found.seed} | {one.what} | {100 * one.accuracy:.1f} | {_points(one)} |")
        for layer in dict.fromkeys(one.what.rpartition(" ")[2] for one in random):
            own = [one for one in random if one.what.endswith(f" {layer}")]
            accuracies, changes = sorted(100 * one.accuracy for one in own), sorted(-100 * one.lost for one in own)
            lines.append(
                f"| {found.seed} | {len(own)} random directions of layer {layer} "
                f"| {accuracies[0]:.1f} to {accuracies[-1]:.1f} | {changes[0]:+.1f} to {changes[-1]:+.1f} |"
            )
    return lines


def draw(models: Sequence[Found], path: Path, *, learned: float) -> None:
    """Accuracy without each relation over how well it tells equal objects apart, a panel for each set of images."""
    kept = [found for found in models if found.accuracies[DECIDES] >= learned]
    if not kept:
        return
    with house_style():
        panels = list(kept[0].accuracies)
        figure, axes = matplotlib_figure(1, len(panels), figsize=(3.6 * len(panels), 3.6), sharey=True, squeeze=False)
        for axis, objects in zip(axes[0], panels, strict=True):
            for found in kept:
                costs, aucs = lost_by_relation(found, objects=objects), found.read[0].aucs
                for name, auc in zip(found.relations, aucs, strict=True):
                    own = name == found.best
                    colour = "#1f6fb4" if own else "#8c8c8c"
                    one = costs[name]
                    place, half = 100 * one.accuracy, 100 * one.half
                    axis.errorbar(
                        abs(auc - 0.5) + 0.5, place, yerr=half, color=colour, marker="o" if own else "s", markersize=5
                    )
                axis.axhline(100 * found.accuracies[objects], color="#d0d0d0", linewidth=0.8, zorder=0)
            axis.axhline(100 * CHANCE, color="#606060", linewidth=1, linestyle=":")
            axis.set_title(objects)
            axis.set_xlabel("AUC for equal objects\n(or 1 − AUC, if larger)")
        axes[0][0].set_ylabel("accuracy without the relation (%)")
        figure.tight_layout()
        save_figure(figure, path)
