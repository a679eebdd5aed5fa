"""The pictures of the second page, attention at work: see :mod:`gallery_pictures`."""

from pathlib import Path
from typing import Any

import torch
from gallery_pictures import Drawing, Variables, bare, matrix, save
from torch import Tensor

from dual_attention._base.colours import INK, ORANGE, PALE
from dual_attention._base.plots import house_style, matplotlib_figure


def rectangle(axis: Any, x: float, y: float, width: float, height: float, **options: Any) -> None:
    from matplotlib.patches import Rectangle

    axis.add_patch(Rectangle((x, y), width, height, **options))


def numbered(axis: Any, weights: Tensor, title: str) -> None:
    """Weights as squares with their values."""
    matrix(axis, weights, title)
    axis.collections[0].set_clim(0, 1)
    places = torch.cartesian_prod(*map(torch.arange, weights.shape)).tolist()
    for (row, column), weight in zip(places, weights.flatten().tolist(), strict=True):
        colour = "white" if weight > 0.4 else INK
        said = "1" if weight > 0.995 else f"{weight:.2f}"[1:]
        axis.text(column + 0.5, row + 0.5, said, ha="center", va="center", fontsize=7.5, color=colour)


def mosaic(axis: Any, images: Tensor, columns: int, marked: Tensor, title: str) -> None:
    """Images of 64 pixels in rows of ``columns``, those that are marked in a frame."""
    for n, (image, mark) in enumerate(zip(images, marked.tolist(), strict=True)):
        row, column = divmod(n, columns)
        extent = (column + 0.06, column + 0.94, row + 0.94, row + 0.06)
        axis.imshow(image.view(8, 8).numpy(), cmap="Greys", vmin=0, vmax=1, extent=extent)
        colour, width = (ORANGE, 2.0) if mark else (PALE, 0.8)
        rectangle(axis, column + 0.06, row + 0.06, 0.88, 0.88, fill=False, edgecolor=colour, linewidth=width)
    bare(axis, title)
    axis.set_xlim(0, columns)
    axis.set_ylim(len(images) // columns, 0)
    axis.set_aspect("equal")
    for spine in axis.spines.values():
        spine.set_visible(False)


def percent(accuracy: Tensor) -> str:
    return f"{100 * float(accuracy):.0f} %"


def tiles(page: Variables, path: Path) -> None:
    """Two examples of nine tiles, and the weights under each alignment."""
    with house_style():
        figure, axes = matplotlib_figure(2, 6, figsize=(9.2, 3.5))
        for n, row in enumerate(axes):
            mosaic(row[0], page["tile_images"][n], 3, page["shown"][n], "" if n else "the image")
            for axis, (name, (_, weights)) in zip(row[1:], page["tile_answers"].items(), strict=True):
                title = "" if n else f"{name}\n{percent(page['tile_accuracy'][name])} right"
                numbered(axis, weights[n].view(3, 3), title)
        figure.tight_layout(h_pad=0.8, w_pad=0.8)
        save(figure, path)


def questions(page: Variables, path: Path) -> None:
    """Two images with questions: weights on corners, and on words."""
    with house_style():
        figure, axes = matplotlib_figure(2, 6, figsize=(9.2, 3.1), width_ratios=(1, 1, 1, 1, 0.6, 2.6))
        corners = page["corner"]
        examples = [0, int((corners != corners[0]).nonzero()[0])]
        for n, row in zip(examples, axes, strict=True):
            first = n == examples[0]
            row[4].axis("off")
            asked = torch.arange(4) == corners[n]
            mosaic(row[0], page["cells"][n], 2, asked, "the image" if first else "")
            for axis, (name, (_, output)) in zip(row[1:4], page["answers"].items(), strict=True):
                title = f"{name}\n{percent(page['answer_accuracy'][name])} right" if first else ""
                numbered(axis, output.weights1[n].view(2, 2), title)
            words = torch.stack([output.weights2[n] for _, output in page["answers"].values()])
            numbered(row[5], words, "")
            row[5].set_aspect("auto")
            row[5].set_yticks([0.5, 1.5, 2.5], list(page["answers"]), fontsize=8.5)
            row[5].set_xticks([w + 0.5 for w in range(8)], page["QUESTIONS"][int(corners[n])].split(), fontsize=8.5)
            row[5].tick_params(length=0, labeltop=True, labelbottom=False)
            row[5].tick_params(axis="x", labelrotation=40, pad=0)
            for label in row[5].get_xticklabels():
                label.set(ha="left", rotation_mode="anchor")
        figure.subplots_adjust(left=0.0, right=1.0, bottom=0.0, top=0.88, wspace=0.14, hspace=0.42)
        save(figure, path)


def relations(page: Variables, path: Path) -> None:
    """Three rows of six digits, and the relation that best tells same from different, from its lowest value up."""
    related, same = page["related"], page["same"]
    gap = related[same].mean(0) - related[page["others"] & ~same].mean(0)
    values = related[..., int(gap.argmax())]
    examples = [n for n in range(len(same)) if same[n].any()][:3]
    with house_style():
        figure, axes = matplotlib_figure(1, 3, figsize=(9.2, 3.3))
        for n, axis in zip(examples, axes, strict=True):
            matrix(axis, values[n] - values.min(), "")
            for i, image in enumerate(page["six"][n]):
                pixels = image.view(8, 8).numpy()
                for extent in ((-1.1, -0.2, i + 0.95, i + 0.05), (i + 0.05, i + 0.95, -0.2, -1.1)):
                    axis.imshow(pixels, cmap="Greys", vmin=0, vmax=1, extent=extent)
            for i, j in same[n].nonzero().tolist():
                rectangle(axis, j + 0.08, i + 0.08, 0.84, 0.84, fill=False, edgecolor=ORANGE, linewidth=2.0)
            axis.set_xlim(-1.15, 6.05)
            axis.set_ylim(6.05, -1.15)
        said = (f"{name} {percent(accuracy)}" for name, accuracy in page["again_accuracy"].items())
        figure.suptitle("Which digits occur again?  " + ",  ".join(said), fontsize=10.5, color=INK)
        figure.tight_layout(w_pad=1.5)
        save(figure, path)


PICTURES: dict[str, Drawing] = {
    "at-work-tiles": tiles,
    "at-work-questions": questions,
    "at-work-relations": relations,
}
