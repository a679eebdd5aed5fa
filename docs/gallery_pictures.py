"""The pictures of the attention gallery, each a function of the variables that a page leaves and of the path.

Colours: blue is a score or a weight, from low (white) to high; relations are orange above
zero and blue below it; orange also marks a key by the area of its weight, or what attention is to find.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dual_attention._base.colours import BLUE, GREY, INK, MUTED, ORANGE, colour_bar, colour_map
from dual_attention._base.plots import house_style, matplotlib_figure, save_figure

Variables = dict[str, Any]
Drawing = Callable[[Variables, Path], None]

DPI = 110
LARGEST = 30_000
"""Bytes above which a picture gets a palette."""


def save(figure: Any, path: Path) -> None:
    """Write the figure, in a small file, and close it."""
    from PIL import Image

    save_figure(figure, path, dpi=DPI)
    if path.stat().st_size <= LARGEST:
        return
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp.png")
    with Image.open(path) as image:
        image.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(temporary, optimize=True, dpi=(DPI, DPI))
    os.replace(temporary, path)


def bare(axis: Any, title: str) -> None:
    """A panel without ticks or grid."""
    axis.set_title(title, fontsize=9.5, pad=4)
    axis.grid(False)
    axis.set_xticks([])
    axis.set_yticks([])


def matrix(axis: Any, values: Tensor, title: str, *, x: str = "", y: str = "", signed: bool = False) -> None:
    """Weights or signed numbers as a matrix of squares; colours reach to the largest, in weights to 0.4 at least."""
    values = values.detach()
    top = float(values.abs().max())
    top = top if signed else max(top, 0.4)
    image = axis.pcolormesh(
        values.numpy(),
        cmap=colour_map(signed=signed),
        vmin=-top if signed else 0.0,
        vmax=top,
        edgecolors="white",
        linewidth=1.0,
    )
    if signed:
        colour_bar(axis, image)
    bare(axis, title)
    axis.set_aspect("equal")
    axis.invert_yaxis()
    for spine in axis.spines.values():
        spine.set_visible(False)
    axis.set_xlabel(x, fontsize=8.5, color=MUTED, labelpad=2)
    axis.set_ylabel(y, fontsize=8.5, color=MUTED, labelpad=2)


def bars(axis: Any, values: Tensor, title: str, *, colour: str = BLUE, top: float = 1.0, bottom: float = 0.0) -> None:
    """Eight numbers, one for each key."""
    axis.bar(range(len(values)), values.detach().tolist(), color=colour, width=0.72)
    axis.axhline(0, color=INK, linewidth=0.8)
    bare(axis, title)
    axis.set_ylim(bottom, top)
    axis.set_xticks(range(len(values)))
    axis.tick_params(axis="x", length=0, labelsize=7.5, labelcolor=MUTED, pad=2)
    for side in ("left", "bottom"):
        axis.spines[side].set_visible(False)


# The toy input

NUMBER: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "color": INK, "zorder": 4}
"""Style of the number of a key beside its dot."""


def scores(page: Variables, path: Path) -> None:
    """Each score as a map of the plane, with the keys and their weights."""
    keys, query = page["keys"], page["query"]
    reach = torch.linspace(-2.3, 2.3, 70)
    x, y = torch.meshgrid(reach, reach, indexing="xy")
    plane = torch.stack([x.flatten(), y.flatten()], dim=-1)
    panels: list[tuple[str, Tensor | None, Tensor]] = []
    for name, score in page["scores"].items():
        weights = page["weights"][name].flatten(0, 1)
        if name == "location":
            panels.append((name, None, weights.flatten()))
            continue
        field = score(None if name == "key only" else query, plane)
        if score.multidim:
            for f in range(2):
                panels.append((f"{name} {f + 1}", field[0, :, f], weights[:, f]))
        else:
            panels.append((name, field[0], weights.flatten()))
    with house_style():
        figure, axes = matplotlib_figure(3, 5, figsize=(8.8, 6.0))
        for axis, (name, field, weights) in zip(axes.flat, panels, strict=True):
            if field is None:
                bars(axis, weights, name, top=0.4)
                axis.set_box_aspect(1)
                axis.set_xlabel("position", fontsize=8.5, color=MUTED, labelpad=2)
                continue
            low, high = field.aminmax()
            scale = {"cmap": colour_map(signed=False), "vmin": low, "vmax": low + 2 * (high - low)}  # numbers are dark
            axis.contourf(x, y, field.view_as(x), levels=9, **scale)
            areas = 6 + 420 * weights  # in square points
            axis.scatter(*keys.T, s=areas, color=ORANGE, edgecolors="white", linewidths=0.8, zorder=3)
            for number, (key_x, key_y) in enumerate(keys.tolist()):
                away = 4 + float(areas[number] / torch.pi) ** 0.5  # above or below its dot, away from the middle
                away = away if key_y > 0 else -away
                axis.annotate(str(number), (key_x, key_y), (0, away), textcoords="offset points", **NUMBER)
            axis.scatter(*query.T, marker="x", s=45, color=INK, linewidths=1.8, zorder=5)
            bare(axis, name)
            axis.set_box_aspect(1)
            for spine in axis.spines.values():
                spine.set_visible(False)
        figure.tight_layout(h_pad=1.6, w_pad=0.6)
        save(figure, path)


def alignments(page: Variables, path: Path) -> None:
    """The scores and what each alignment makes of them."""
    with house_style():
        figure, axes = matplotlib_figure(2, 6, figsize=(9.2, 3.4))
        axes.flat[-1].axis("off")
        bars(axes.flat[0], page["e"][0], "the scores", colour=GREY, top=1.75, bottom=-1.75)
        for axis, (name, weights) in zip(axes.flat[1:-1], page["aligned"].items(), strict=True):
            signed = bool((weights < 0).any())
            bars(axis, weights[0], name, top=1.04, bottom=-1.04 if signed else 0.0)
        figure.tight_layout(h_pad=1.0, w_pad=1.2)
        save(figure, path)


def selections(page: Variables, path: Path) -> None:
    """Weights of all queries on all keys, under each selection."""
    panels = [(name, output.weights) for name, output in page["selected"].items()]
    panels += [(f"forward, feature {f + 1}", page["one_way"][..., f]) for f in range(2)]
    with house_style():
        figure, axes = matplotlib_figure(1, 6, figsize=(9.2, 1.95))
        for axis, (name, weights) in zip(axes, panels, strict=True):
            matrix(axis, weights, name, x="key", y="query" if axis is axes[0] else "")
        figure.tight_layout(w_pad=0.6)
        save(figure, path)


def queries(page: Variables, path: Path) -> None:
    """Weights of queries that are made of the keys, learned, or fed back."""
    rows = {"source2token": "feature", "memory network": "hop", "product hops": "hop", "capsules": "class"}
    with house_style():
        figure, axes = matplotlib_figure(2, 4, figsize=(9.2, 2.5))
        for axis, (name, weights) in zip(axes.flat, page["asked"].items(), strict=True):
            matrix(axis, weights, name, x="key", y=rows.get(name, "query"))
        figure.tight_layout(h_pad=0.6, w_pad=1.6)
        save(figure, path)


def moving(page: Variables, path: Path) -> None:
    """Weights of equal queries, one after the other."""
    with house_style():
        figure, axes = matplotlib_figure(1, 3, figsize=(6.2, 2.2))
        for axis, (name, weights) in zip(axes, page["moving"].items(), strict=True):
            matrix(axis, weights, name, x="key", y="query" if axis is axes[0] else "")
        figure.tight_layout(w_pad=1.6)
        save(figure, path)


def co_attention(page: Variables, path: Path) -> None:
    """Weights on both inputs, in one row for each step."""
    rows: list[tuple[str, Sequence[Tensor | None]]] = []
    for name, output in page["co"].items():
        if output.first_weights is not None:
            rows.append((f"{name}, first step", (output.first_weights[0], None)))
        rows.append((name, (output.weights1[0], output.weights2[0])))
    left, right, by_left, by_right = (output.weights[0, 0] for output in page["rotated"])
    rotatory: list[tuple[str, Sequence[Tensor | None]]] = [
        ("target asks left and right", (left, None, right)),
        ("left asks target", (None, by_left, None)),
        ("right asks target", (None, by_right, None)),
    ]
    with house_style():
        figure, axes = matplotlib_figure(1, 2, figsize=(9.2, 1.9))
        strips(axes[0], rows, ("$X_1$", "$X_2$"), (5, 3))
        strips(axes[1], rotatory, ("left", "target", "right"), (3, 2, 3), height=len(rows))
        figure.tight_layout(w_pad=2.0)
        save(figure, path)


def strips(
    axis: Any,
    rows: Sequence[tuple[str, Sequence[Tensor | None]]],
    heads: Sequence[str],
    widths: Sequence[int],
    *,
    margin: float = 4.6,
    height: int | None = None,
) -> None:
    """Rows of weights over several inputs side by side, with a gap between them, and each weight in its square."""
    start = 0.0
    for number, (head, width) in enumerate(zip(heads, widths, strict=True)):
        axis.text(start + width / 2, -0.2, head, ha="center", va="bottom", fontsize=9)
        for row, (_, parts) in enumerate(rows):
            part = parts[number]
            if part is None:
                continue
            edges = [start + column for column in range(len(part) + 1)]
            values = part.detach()[None].numpy()
            look = {"cmap": colour_map(signed=False), "edgecolors": "white", "linewidth": 1.2}
            axis.pcolormesh(edges, [row, row + 0.92], values, vmin=0, vmax=1, **look)
            for column, weight in enumerate(part.tolist()):
                said = "1" if weight > 0.995 else f"{weight:.2f}"[1:]
                colour = "white" if weight > 0.4 else INK
                axis.text(start + column + 0.5, row + 0.46, said, ha="center", va="center", fontsize=7.5, color=colour)
        start += width + 0.5
    for row, (name, _) in enumerate(rows):
        axis.text(-0.25, row + 0.46, name, ha="right", va="center", fontsize=9)
    axis.axis("off")
    axis.set_xlim(-margin, start)
    axis.set_ylim(len(rows) if height is None else height, -0.9)


def levels(page: Variables, path: Path) -> None:
    """Weights on each level."""
    names = ("words", "document", "social", "above", "below", "mixed")
    words, sentences, social, above, below, mixed = (page[name].weights.squeeze(-2) for name in names)
    with house_style():
        figure, axes = matplotlib_figure(2, 2, figsize=(9.2, 2.3))
        of_sentences = [(f"sentence {n + 1}", (words[n], sentences[n : n + 1])) for n in range(2)]
        strips(axes[0, 0], of_sentences, ("words", "sentence"), (4, 2), margin=2.4)
        of_aspects = [
            (name, (aspect.weights[0], social[n : n + 1])) for n, (name, aspect) in enumerate(page["aspects"].items())
        ]
        strips(axes[0, 1], of_aspects, ("elements", "aspect"), (5, 2), margin=2.4)
        of_levels = [("above", (above,)), ("below", (below,))]
        strips(axes[1, 0], of_levels, ("",), (8,), margin=2.4)
        of_items = [(name, (mixed[:, n],)) for n, name in enumerate(("place", "polar"))]
        strips(axes[1, 1], of_items, ("",), (8,), margin=2.4)
        titles = ("hierarchical", "social-contextual", "attention via attention", "multi-representation")
        for axis, title in zip(axes.flat, titles, strict=True):
            axis.set_title(title, fontsize=9.5, loc="left", x=0.0, pad=2, weight="bold")
        figure.tight_layout(h_pad=1.0, w_pad=2.0)
        save(figure, path)


def relations(page: Variables, path: Path) -> None:
    """Weights that select, and relations by several scores."""
    sa = page["sa"]
    panels: list[tuple[str, Tensor, bool]] = [
        ("weights $\\alpha$", sa(page["x"], need_weights=True).weights[0, 0], False)
    ]
    for name, r in page["r"].items():
        if r.shape[-1] == 1:
            panels.append((name, r[..., 0], True))
        else:
            panels += [(f"{name} {f + 1}", r[..., f], True) for f in range(r.shape[-1])]
    with house_style():
        figure, axes = matplotlib_figure(2, 4, figsize=(9.2, 4.3))
        axes[-1, -1].axis("off")
        for axis, (name, values, signed) in zip(axes.flat, panels, strict=False):
            matrix(axis, values, name, x="sender", y="receiver", signed=signed)
        figure.tight_layout(h_pad=0.8, w_pad=0.6)
        save(figure, path)


def rivals(page: Variables, path: Path) -> None:
    """Causal weights under each rival, of pairs those of the last object."""
    with house_style():
        figure, axes = matplotlib_figure(2, 4, figsize=(9.2, 4.3))
        for axis, (name, weights) in zip(axes.flat, page["of_rivals"].items(), strict=True):
            pairs, signed = weights.dim() == 3, bool((weights < 0).any())
            shown = weights[-1] if pairs else weights
            x, y = ("sender", "other sender") if pairs else ("sender", "receiver")
            matrix(axis, shown, f"{name}, object 7" if pairs else name, x=x, y=y, signed=signed)
        figure.tight_layout(h_pad=0.8, w_pad=0.6)
        save(figure, path)


PICTURES: dict[str, Drawing] = {
    "scores": scores,
    "alignments": alignments,
    "selections": selections,
    "queries": queries,
    "moving": moving,
    "co-attention": co_attention,
    "levels": levels,
    "relations": relations,
    "rivals": rivals,
}
