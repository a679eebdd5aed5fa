"""Relations that a trained DAT computes over the grid, and how well each tells equal objects from different ones.

Shapes: B images, C = 9 cells of the grid (row by row), R relations of a layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dual_attention._base.colours import colour_map
from dual_attention._base.extras import require
from dual_attention._base.plots import empty_figure, house_style, save_figure
from dual_attention.generation import evaluating
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.measures import area_under_curve
from dual_attention.relational_attention import RelationalAttention

GRID = 3
CELL = 12


@dataclass(frozen=True)
class Detector:
    """One relation of one layer, counted from 0; ``sign`` is -1 if it is low, not high, for equal objects."""

    layer: int
    index: int
    sign: int
    auc: float


@torch.inference_mode()
def cell_relations(model: nn.Module, images: Tensor) -> list[Tensor]:
    """Relations r_ij between the cells of images (B, 3, 36, 36) uint8, for each layer: (B, C, C, R), float32.

    They are captured in a forward pass in evaluation mode. The class token is left out.

    Raises:
        ValueError: if the model has no relational attention.
    """
    if not any(isinstance(module, RelationalAttention) for module in model.modules()):
        raise ValueError("model: expected one with relational attention, got one without")
    device = next(model.parameters()).device
    with evaluating(model), capture(model, "relations", heads="relational") as maps:
        model(images.to(device, torch.float32).div_(255.0))
    return [heads.get("relations")[:, 1:, 1:].float().cpu() for heads in maps.heads()]


def cell_contents(images: Tensor) -> Tensor:
    """The pixels of each cell: (B, 3, 36, 36) -> (B, C, 3 * 12 * 12)."""
    batch = images.shape[0]
    cells = images.unfold(2, CELL, CELL).unfold(3, CELL, CELL)
    return cells.permute(0, 2, 3, 1, 4, 5).reshape(batch, GRID * GRID, -1)


def object_pairs(images: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of different cells that hold an object each, and those among them with equal ones: (B, C, C) bool each."""
    contents = cell_contents(images)
    filled = (contents != 0).any(-1)
    both = filled[:, :, None] & filled[:, None, :] & ~torch.eye(GRID * GRID, dtype=torch.bool)
    equal = (contents[:, :, None] == contents[:, None, :]).all(-1)
    return both, both & equal


def detection(model: nn.Module, images: Tensor, sources: Sequence[int] | None = None) -> list[Detector]:
    """AUC of every relation of every layer as a detector of equal objects in ``images``.

    Args:
        sources: cells i from which pairs (i, j) are taken; None takes all.
    """
    both, equal = object_pairs(images)
    if sources is not None:
        chosen = torch.zeros(GRID * GRID, dtype=torch.bool)
        chosen[list(sources)] = True
        both = both & chosen[None, :, None]
    found = []
    for layer, relations in enumerate(cell_relations(model, images)):
        for index in range(relations.shape[-1]):
            auc = area_under_curve(relations[..., index][both], equal[both])
            found.append(Detector(layer, index, 1 if auc >= 0.5 else -1, max(auc, 1 - auc)))
    return found


def best_detector(model: nn.Module, images: Tensor, sources: Sequence[int] | None = None) -> Detector:
    """The relation with the largest AUC on ``images``."""
    return max(detection(model, images, sources), key=lambda relation: relation.auc)


def most_improved(
    untrained: nn.Module, model: nn.Module, images: Tensor, sources: Sequence[int] | None = None
) -> Detector:
    """The relation whose AUC on ``images`` training raised most: others may be as good in an untrained model."""
    before = detection(untrained, images, sources)

    def gain(pair: tuple[Detector, Detector]) -> float:
        now, then = pair
        return now.auc - (then.auc if then.sign == now.sign else 1 - then.auc)

    return max(zip(detection(model, images, sources), before, strict=True), key=gain)[0]


def auc_of(model: nn.Module, images: Tensor, relation: Detector, sources: Sequence[int] | None = None) -> float:
    """AUC on ``images`` of a relation that was chosen, with its sign, on others."""
    for other in detection(model, images, sources):
        if (other.layer, other.index) == (relation.layer, relation.index):
            return other.auc if other.sign == relation.sign else 1 - other.auc
    raise ValueError(f"relation: the model has none of index {relation.index} in layer {relation.layer}")


def draw_relation(
    model: nn.Module, groups: Sequence[tuple[str, Tensor]], relation: Detector, path: Path, *, source: int, title: str
) -> None:
    """Draw images, and below each the relation from the cell ``source`` to every cell of the grid.

    Args:
        groups: (caption, images (b, 3, 36, 36) uint8), drawn from left to right.
        source: cell i of the relations r_ij, 0..8; it is outlined in the image.
    """
    images = torch.cat([images for _, images in groups])
    values = cell_relations(model, images)[relation.layer][:, source, :, relation.index]
    both, equal = object_pairs(images)
    others = values.index_fill(1, torch.tensor([source]), 0.0)
    limit = float(others.abs().max())
    rectangle = require("matplotlib.patches", extra="train").Rectangle
    with house_style():
        figure, axes = grouped_columns([len(images) for _, images in groups])
        heat, colours = None, colour_map(signed=True)
        for column, image in enumerate(images):
            top, bottom = axes[0][column], axes[1][column]
            top.imshow(image.permute(1, 2, 0).numpy(), interpolation="nearest")
            corner = ((source % GRID) * CELL - 0.5, (source // GRID) * CELL - 0.5)
            top.add_patch(rectangle(corner, CELL, CELL, fill=False, edgecolor="white", linewidth=2.2))
            heat = bottom.imshow(others[column].view(GRID, GRID).numpy(), cmap=colours, vmin=-limit, vmax=limit)
            annotate(bottom, others[column], limit, both[column, source], equal[column, source], source)
            for axis in (top, bottom):
                axis.set(xticks=[], yticks=[])
                axis.grid(False)
                for spine in axis.spines.values():
                    spine.set_visible(False)
        caption_groups(axes[0], groups)
        axes[0][0].set_ylabel("image")
        axes[1][0].set_ylabel("relation to i")
        figure.suptitle(title, fontsize=12, x=0.04, y=0.99, ha="left")
        figure.colorbar(heat, cax=figure.add_axes((0.945, 0.03, 0.012, 0.34)))
        save_figure(figure, path, dpi=110)


def draw_relation_on_splits(
    model: nn.Module, splits: dict[str, Any], relation: Detector, path: Path, source: int
) -> None:
    """Draw the relation on images of two object sets: two whose answer is yes, in different places, and one no."""
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


def grouped_columns(counts: Sequence[int]) -> tuple[Any, list[list[Any]]]:
    """A figure with two rows of square axes in groups of ``counts`` columns, with a gap between the groups."""
    total = sum(counts)
    ratios = [ratio for count in counts for ratio in (*[1.0] * count, 0.3)][:-1]
    figure = empty_figure((1.5 * total, 3.9))
    layout = figure.add_gridspec(
        2, len(ratios), width_ratios=ratios, left=0.04, right=0.93, top=0.79, bottom=0.02, wspace=0.1, hspace=0.06
    )
    columns = [column for column, ratio in enumerate(ratios) if ratio == 1.0]
    return figure, [[figure.add_subplot(layout[row, column]) for column in columns] for row in range(2)]


def caption_groups(axes: Sequence[Any], groups: Sequence[tuple[str, Tensor]]) -> None:
    """Write each group's caption above the first of its images."""
    column = 0
    for caption, images in groups:
        axes[column].set_title(caption, loc="left", fontsize=10.5, fontweight="bold")
        column += len(images)


def annotate(axis: Any, values: Tensor, limit: float, objects: Tensor, equal: Tensor, source: int) -> None:
    """Write numbers on the cells that hold an object, a frame around those equal to the source, the source in grey.

    Args:
        values: (C,) relations; limit: the value at the end of the colour scale; objects, equal: (C,) bool.
    """
    rectangle = require("matplotlib.patches", extra="train").Rectangle
    centred: dict[str, Any] = {"ha": "center", "va": "center"}
    for cell in range(GRID * GRID):
        row, column = divmod(cell, GRID)
        if cell == source:
            axis.add_patch(rectangle((column - 0.5, row - 0.5), 1, 1, facecolor="#555555"))
            axis.text(column, row, "i", color="white", fontsize=13, fontstyle="italic", fontweight="bold", **centred)
        elif objects[cell]:
            value = float(values[cell])
            colour = "white" if abs(value) > 0.6 * limit else "black"
            axis.text(column, row, f"{value:+.1f}", fontsize=9, color=colour, **centred)
        if equal[cell]:
            axis.add_patch(rectangle((column - 0.46, row - 0.46), 0.92, 0.92, fill=False, linewidth=2.2))
