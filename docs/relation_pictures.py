"""Draw Figures 5 and 9 of the paper anew, from models that this project trained.

    dat train language --data.tokenizer bpe --data.bpe_vocab_size 2048 --loop.steps 600 --optim.lr 3e-3 \\
        --output.folder runs --output.name language
    dat train relational-games --preset dat-0+2-sym --task occurs --data.n_train 2000 --output.folder runs
    python docs/relation_pictures.py --language runs/language --games runs/occurs-dat-0+2-sym-n2000-seed0

No relation is chosen by eye. Of the language model it is the one whose pairs add most to the residual stream in the
sentence, and the receiver the token that gets most of it; of Relational Games the one that best tells equal objects on
other images.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from gallery_pictures import save

from dat.checkpoints import open_checkpoint
from dat.data.relational_games import generate_images
from dat.experiments.relational_games.grid_relations import best_detector, object_pairs
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.measures import RelationReadings, read_relations
from dual_attention.model_analysis.views import draw_arcs, draw_patch_relations, token_labels

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
    options = {"receiver": receiver, "visible": found.visible[0]}
    return {
        RAW: draw_arcs(found.raw[0, ..., relation], labels, title=f"{name}, raw", **options),
        CONTRIBUTION: draw_arcs(found.contribution[0, ..., relation], labels, title=f"{name}, contribution", **options),
    }


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
    chosen = best_detector(model, generate_images("occurs", 200, seed=seed + 1).images, [1])
    images, labels, _ = generate_images("occurs", 40, seed=seed)
    image = images[int((labels == 1).nonzero()[0, 0])]
    with capture(model, "relations", heads="relational") as maps, torch.no_grad():
        model.eval()(image[None] / 255.0)
    heads = maps.heads("relational")[chosen.layer]
    relations = heads.get("relations")[0, 1:, 1:]  # without the class token
    equal = object_pairs(image[None])[1][0, 1].nonzero()[0, 0]
    row, column = divmod(int(equal), 3)
    place = f"row {row + 1}, column {column + 1}"
    title = f"{heads.layer}: i recurs in {place}; relation {chosen.index} tells equal objects best"
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
