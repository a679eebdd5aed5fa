"""The two pictures of the demonstration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ...training.plots import house_style, matplotlib_figure, save_figure
from .figures import TITLES, curve
from .grid import Row
from .problem import TEST_SETS
from .relations import Relation, draw_relation, object_pairs

DAT_COLOUR, RIVAL_COLOUR = "#1f6fb4", "#7f7f7f"


def draw_demo_curves(rows: Sequence[Row], path: Path, *, dat: str, rival: str) -> None:
    """Accuracy against training-set size on each object set: means as lines, trials as dots."""
    with house_style():
        figure, axes = matplotlib_figure(1, len(TEST_SETS), figsize=(8.6, 3.3), sharey=True)
        for axis, object_set in zip(axes, TEST_SETS, strict=True):
            for model, name, colour in ((dat, "DAT", DAT_COLOUR), (rival, "Transformer", RIVAL_COLOUR)):
                points = curve(rows, object_set, rows[0]["task"], model)
                sizes, means = [p[0] for p in points], [p[1] for p in points]
                axis.plot(sizes, means, color=colour, label=name, linewidth=2.6, zorder=3)
                dots = [(row["n_train"], row[object_set]) for row in rows if row["model"] == model]
                axis.scatter(*zip(*dots, strict=True), color=colour, s=26, alpha=0.55, linewidths=0, zorder=4)
                axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
            axis.axhline(50, color="#a0a0a0", linewidth=1, linestyle=":")
            axis.set_title(TITLES[object_set], fontsize=11)
            axis.set_ylim(45, 100)
            axis.set_xlabel("training images")
        axes[0].set_ylabel("accuracy (%)")
        axes[0].legend(loc="upper left")
        trials = len({row["seed"] for row in rows})
        figure.suptitle(
            "Is the object on top among the three below?  "
            + (f"Lines: means of {trials} trials, shown as dots" if trials > 1 else "One trial"),
            fontsize=12,
            x=0.01,
            ha="left",
        )
        figure.tight_layout()
        save_figure(figure, path, dpi=110)


def draw_demo_relation(model: nn.Module, splits: dict[str, Any], relation: Relation, path: Path, source: int) -> None:
    """The relation on images of two object sets: two in which the answer is yes, in different places, and one no."""
    groups = []
    for name, caption in (("test", "new pentominoes"), ("hexominoes", "hexominoes, never trained on")):
        images, labels = splits[name].images, splits[name].labels
        match = object_pairs(images)[1][:, source]
        place = match.int().argmax(-1)
        yes = ((labels == 1) & match.any(-1)).nonzero()[:, 0]
        places = place[yes].unique()
        chosen = [int(yes[place[yes] == cell][0]) for cell in places[-2:]]
        chosen.append(int((labels == 0).nonzero()[0, 0]))
        groups.append((caption, images[chosen]))
    title = (
        f"What relation {relation.index + 1} of layer {relation.layer + 1} says about the outlined object i and every "
        "cell.\nA frame marks an object equal to i."
    )
    draw_relation(model, groups, relation, path, source=source, title=title)
