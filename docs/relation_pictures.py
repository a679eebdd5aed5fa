"""Draw Figures 5 and 9 of the paper anew, from models that this project trained.

    dat train language --data.tokenizer bpe --data.bpe_vocab_size 2048 --loop.steps 600 --optim.lr 3e-3 \\
        --output.folder runs --output.name language
    dat train relational-games --preset dat-0+2-sym --task occurs --data.n_train 2000 --output.folder runs
    python docs/relation_pictures.py --language runs/language --games runs/occurs-dat-0+2-sym-n2000-seed0

No relation is chosen by eye. Of the language model it is the one whose pairs add most to the residual stream in the
sentence, and the receiver the token that gets most of it; of Relational Games the one that best tells equal objects on
other images.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from gallery_pictures import save
from matplotlib.patches import Arc
from torch import Tensor

from dat.checkpoints import open_checkpoint
from dat.data.relational_games import generate_images
from dat.experiments.relational_games.grid_relations import equality_aucs, object_pairs
from dual_attention._base.colours import colour_map
from dual_attention._base.plots import empty_figure, house_style
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.measures import RelationReadings, read_relations
from dual_attention.model_analysis.views import draw_patch_relations, drawable, token_labels

NAMES = RAW, CONTRIBUTION, PATCHES = "figure-5-raw", "figure-5-contribution", "figure-9"
SENTENCE = "Return a new list with the names of all methods of the class, and the modules that define them."


def figure_5(run: str | Path, sentence: str = SENTENCE) -> dict[str, Any]:
    """Arcs of one relation to one token: as it is, and as it arrives in the residual stream."""
    checkpoint = open_checkpoint(run)
    tokenizer = checkpoint.tokenizer()
    tokens = tokenizer.encode(sentence)
    labels = token_labels(tokenizer, tokens)
    with capture(checkpoint.model, heads="relational") as maps, torch.no_grad():
        checkpoint.model.eval()(torch.tensor([tokens]))
    readings = {heads.layer: read_relations(checkpoint.model, heads) for heads in maps.heads("relational")}
    layer, relation, receiver = _largest(readings)
    found, name = readings[layer], f"relation {relation} of {layer}"
    senders = [sender for sender in found.visible[0, receiver].nonzero()[:, 0].tolist() if sender != receiver]
    return {
        picture: draw_arcs(values[0, receiver, :, relation], labels, receiver, senders, title=f"{name}, {reading}")
        for picture, values, reading in ((RAW, found.raw, "raw"), (CONTRIBUTION, found.contribution, "contribution"))
    }


def draw_arcs(
    values: Tensor, labels: Sequence[str], receiver: int, senders: Sequence[int], *, title: str, most: int = 40
) -> Any:
    """A figure of the ``values`` of a receiver as arcs to its senders over ``labels``, the largest on top."""
    order = sorted(senders, key=lambda sender: -abs(float(values[sender])))[:most]
    largest = max((abs(float(values[sender])) for sender in order), default=0.0) or 1.0
    with house_style():
        figure = empty_figure((4.0, 2.0))
        axis = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        centres, width = _place_text(figure, axis, drawable(labels), receiver)
        reach = max((abs(centres[receiver] - centres[sender]) for sender in order), default=10.0)
        height = min(0.5 * reach, 230.0)
        figure.set_size_inches(width / 72, (height + 74) / 72)
        axis.set(xlim=(0, width), ylim=(-32, height + 40))
        axis.set_axis_off()
        for sender in reversed(order):
            share, span = float(values[sender]) / largest, abs(centres[receiver] - centres[sender])
            middle = (centres[receiver] + centres[sender]) / 2, 0.0
            look = {"linewidth": 0.4 + 4.0 * abs(share), "alpha": 0.15 + 0.75 * abs(share), "color": _line(share)}
            axis.add_patch(Arc(middle, span, 2 * height * span / reach, theta1=0, theta2=180, **look))
        for x, sign, text in ((10.0, 1, "━ positive"), (70.0, -1, "━ negative")):
            axis.text(x, -22.0, text, fontsize=8, va="top", color=_line(sign))
        sign = "±" if any(values[sender] < 0 for sender in order) else ""
        axis.text(8.0, height + 36, f"{title}   widest {sign}{largest:.2g}", fontsize=11, va="top")
    return figure


def _line(sign: float) -> Any:
    """The colour of an arc."""
    return colour_map(signed=True)(5 / 6 if sign > 0 else 1 / 6)


def _place_text(figure: Any, axis: Any, labels: Sequence[str], receiver: int) -> tuple[list[float], float]:
    """Write labels in a line; returns their centres, and the length of the line, in points."""
    renderer, centres, place = figure.canvas.get_renderer(), [], 10.0
    for number, label in enumerate(labels):
        weight = "bold" if number == receiver else "normal"
        text = axis.text(0, -4, label, fontsize=10, va="top", ha="center", fontweight=weight, parse_math=False)
        width = text.get_window_extent(renderer).width * 72 / figure.dpi
        centres.append(place + width / 2)
        text.set_x(centres[-1])
        place += width + 5
    return centres, max(place + 5, 160)


def _largest(readings: dict[str, RelationReadings]) -> tuple[str, int, int]:
    """Layer, relation and receiver of the largest contribution of other tokens to one, all senders together."""
    best = (-1.0, "", 0, 0)
    for layer, found in readings.items():
        others = found.contribution[0] * ~torch.eye(found.contribution.shape[1], dtype=torch.bool)[..., None]
        received = others.sum(1)
        place = divmod(int(received.argmax()), received.shape[1])
        best = max(best, (float(received.max()), layer, place[1], place[0]))
    return best[1:]


def figure_9(run: str | Path, seed: int = 1) -> dict[str, Any]:
    """An image of Relational Games in which the top object recurs, and the relations to that object."""
    model = open_checkpoint(run).model
    aucs = equality_aucs(model, generate_images("occurs", 200, seed=seed + 1).images, 1)
    layer, chosen = divmod(int((aucs - 0.5).abs().argmax()), aucs.shape[1])
    images, labels, _ = generate_images("occurs", 40, seed=seed)
    image = images[int((labels == 1).nonzero()[0, 0])]
    with capture(model, "relations", heads="relational") as maps, torch.no_grad():
        model.eval()(image[None] / 255.0)
    heads = maps.heads("relational")[layer]
    relations = heads.get("relations")[0, 1:, 1:]  # without the class token
    equal = object_pairs(image[None])[1][0, 1].nonzero()[0, 0]
    row, column = divmod(int(equal), 3)
    place = f"row {row + 1}, column {column + 1}"
    title = f"{heads.layer}: i recurs in {place}; relation {chosen} tells equal objects best"
    return {PATCHES: draw_patch_relations(image, relations, 1, (3, 3), title=title)}


def main(arguments: list[str] | None = None) -> None:
    """Draw what there is a run for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--language", type=Path, help="run folder of a language model")
    parser.add_argument("--games", type=Path, help="run folder of a model of Relational Games")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images" / "relations", help="folder")
    given = parser.parse_args(arguments)
    figures = {} if given.language is None else figure_5(given.language)
    figures |= {} if given.games is None else figure_9(given.games)
    given.out.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        save(figure, given.out / f"{name}.png")


if __name__ == "__main__":
    main()
