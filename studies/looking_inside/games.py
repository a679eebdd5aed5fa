"""Relations of models trained on ``occurs``: how well each tells equal objects apart, and what is lost without it.

The questions and the rules of reading are those of ``studies/looking_inside/ANNOUNCED.md``::

    python -m studies.looking_inside.games runs/occurs-* --out FOLDER

Shapes: B images, C = 9 cells of the grid, R relations of a layer, S relations of all layers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from dat.checkpoints import open_checkpoint
from dat.experiments.relational_games.config import RelationalGamesConfig
from dat.experiments.relational_games.grid_relations import GRID, object_pairs
from dat.experiments.relational_games.problem import load_splits
from dual_attention._files import write_atomically, write_json
from dual_attention.generation import evaluating
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.interventions import Ablate, Intervention, Target, intervene
from dual_attention.model_analysis.measures import (
    attention_scores,
    compare,
    cosine_scores,
    random_relations,
    untrained_twin,
)
from dual_attention.model_analysis.measures.controls import Compared
from dual_attention.model_analysis.measures.intervals import half_width
from dual_attention.model_analysis.sites import Site, choose_sites

from .entering import what_enters
from .games_report import draw, report

BATCH = 500
"""Images of a forward pass; what is resampled comes from the next image of these."""
READ = 500
"""Images that relations are read from."""
TESTED = 2000
"""Images of each set on which interventions are measured."""
SHUFFLES = 200
DIRECTIONS = 10
"""Random directions of a layer's relations, and random projections of what enters a layer."""
LEARNED = 0.8
"""Accuracy from which a model counts as having learned the task."""
SETS = ("test", "hexominoes", "stripes")


@dataclass(frozen=True)
class Read:
    """Detection of equal objects by the best of some scores.

    Attributes:
        scores: what they are.
        best: place of the best one among them.
        aucs: of each, among pairs in the same two cells.
        held_out: AUC of the best of one half of the images, on the other half.
        p: of the best, against shuffled objects, the maximum over the scores corrected.
    """

    scores: str
    best: int
    aucs: tuple[float, ...]
    held_out: float
    p: float


@dataclass(frozen=True)
class Lost:
    """Accuracy under an intervention.

    Attributes:
        what: mediator and layer, with the relation where it is one.
        how: ablation.
        objects: set of test images.
        accuracy: of the model under the intervention, 0 to 1.
        lost, half: accuracy lost by it, and half of the 95 % interval over images.
    """

    what: str
    how: str
    objects: str
    accuracy: float
    lost: float
    half: float


@dataclass(frozen=True)
class Found:
    """One model looked into.

    Attributes:
        run: name of its folder.
        seed: of the run.
        accuracies: on each set of test images, 0 to 1.
        relations: names of the relations, ``"layer.number"``.
        read: of the relations first, then of the controls.
        lost: by every intervention, on every set.
    """

    run: str
    seed: int
    accuracies: Mapping[str, float]
    relations: tuple[str, ...]
    read: tuple[Read, ...]
    lost: tuple[Lost, ...]

    @property
    def best(self) -> str:
        """The relation that tells equal objects apart best."""
        return self.relations[self.read[0].best]


def look_into(run: Path, *, shuffles: int = SHUFFLES, directions: int = DIRECTIONS) -> Found:
    """Read the relations of a trained model, and take them away one by one.

    Args:
        run: folder of a run of Relational Games.

    Raises:
        ValueError: if it is a run of something else, or a model without relations.
        OSError: if it cannot be read.
    """
    opened = open_checkpoint(str(run))
    config, model = opened.config, opened.model
    if not isinstance(config, RelationalGamesConfig):
        raise ValueError(f"{run}: expected a run of relational-games, got a {opened.kind}")
    sites = [site.site for site in choose_sites(model) if site.site.n_relations]
    if not sites:
        raise ValueError(f"{run}: expected a model with relations, {config.model.name} has none")
    splits = load_splits(config)
    names = tuple(f"{site.layer.rpartition('.')[2]}.{number}" for site in sites for number in range(site.n_relations))
    with evaluating(model), torch.no_grad():
        read = detected(model, sites, splits["val"].images[:READ], shuffles=shuffles, directions=directions)
        sets = {name: (inputs(splits[name].images[:TESTED]), splits[name].labels[:TESTED]) for name in SETS}
        right = {name: answered_right(model, *images) for name, images in sets.items()}
        lost = [
            what_is_lost(right[name], answered_right(model, *images, intervention), what, how, name)
            for what, how, intervention in interventions(sites, directions)
            for name, images in sets.items()
        ]
    accuracies = {name: float(values.mean()) for name, values in right.items()}
    return Found(run.name, config.seed, accuracies, names, tuple(read), tuple(lost))


def inputs(images: Tensor) -> Tensor:
    """Images as the model takes them: uint8 ``(B, 3, 36, 36)`` to 0..1."""
    return images.float() / 255.0


def answered_right(
    model: nn.Module, images: Tensor, labels: Tensor, intervention: Intervention | None = None
) -> Tensor:
    """Whether the model classifies each image right, under an intervention: ``(B,)``, 0 or 1."""
    found = []
    for start in range(0, len(images), BATCH):
        part = images[start : start + BATCH]
        if intervention is None:
            logits = model(part)
        else:
            with intervene(model, intervention):
                logits = model(part)
        found.append(logits.argmax(-1) == labels[start : start + BATCH])
    return torch.cat(found).double()


def what_is_lost(before: Tensor, after: Tensor, what: str, how: str, objects: str) -> Lost:
    """Accuracy lost, with its interval over images."""
    apart = before - after
    return Lost(what, how, objects, float(after.mean()), float(apart.mean()), half_width(apart.tolist()))


def interventions(sites: Sequence[Site], directions: int) -> list[tuple[str, str, Intervention]]:
    """Ablations by mediator and way: every relation in three ways, random directions of relations, the selection."""
    found: list[tuple[str, str, Intervention]] = []
    for site in sites:
        number = site.layer.rpartition(".")[2]
        for relation in range(site.n_relations):
            target = Target("relation", layers=site.layer, relations=relation)
            found += [
                (f"relation {number}.{relation}", how, Ablate(target, how)) for how in ("resample", "mean", "zero")
            ]
        every = Target("relation", layers=site.layer)
        found.append((f"all relations of layer {number}", "resample", Ablate(every, "resample")))
        for seed in range(directions):
            direction = torch.randn(site.n_relations, generator=torch.Generator().manual_seed(seed)).tolist()
            control = Ablate(every, "resample", direction=direction)
            found.append((f"random direction {seed} of layer {number}", "resample", control))
        selection = Target("selection", layers=site.layer, heads="relational")
        found.append((f"selection of layer {number}", "resample", Ablate(selection, "resample")))
    return found


def detected(model: nn.Module, sites: Sequence[Site], images: Tensor, *, shuffles: int, directions: int) -> list[Read]:
    """Detection of equal objects by the relations, and by the controls."""
    both, equal = object_pairs(images)
    cells = GRID * GRID
    same_cells = torch.arange(cells * cells).view(cells, cells)
    relations, weights, entering = captured(model, sites, inputs(images))
    twin = untrained_twin(model)
    twins = [site.site for site in choose_sites(twin) if site.site.n_relations]

    def projected(x: Tensor, site: Site, seed: int) -> Tensor:
        heads = site.module
        options = {"symmetric": heads.symmetric_rels, "rel_score": heads.rel_score, "seed": seed}
        return random_relations(x, heads.n_relations, heads.rel_proj_dim, **options)

    scores = {
        "relations": relations,
        "attention weights": weights,
        "random projections": torch.cat(
            [projected(x, site, seed) for x, site in zip(entering, sites, strict=True) for seed in range(directions)],
            -1,
        ),
        "cosines": torch.cat([cosine_scores(x) for x in entering], -1),
        "relations before training": captured(twin, twins, inputs(images))[0],
    }
    found = compare(scores, equal, both, same_cells, permutations=shuffles)
    return [_read(one) for one in found]


def _read(one: Compared) -> Read:
    detection = one.detection
    best = detection.best
    return Read(one.name, best, tuple(detection.auc.tolist()), one.auc, float(detection.p[best]))


def captured(model: nn.Module, sites: Sequence[Site], images: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Relations and attention weights of all layers, and what enters each, between the cells of images.

    Returns:
        ``(B, C, C, S)``, ``(B, C, C, heads of all layers)``, and ``(B, C, d)`` for each layer. The class token, which
        comes first, is left out.
    """
    with what_enters(sites) as entered, capture(model, ["relations", "weights"], heads="relational") as maps:
        model(images)
    records = [maps[site.layer].relational for site in sites]
    relations = torch.cat([record.get("relations")[:, 1:, 1:] for record in records if record is not None], -1)
    weights = [attention_scores(record.get("weights"))[:, 1:, 1:] for record in records if record is not None]
    return relations, torch.cat(weights, -1), [entered[site.layer][:, 1:] for site in sites]


def main(arguments: Sequence[str] | None = None) -> int:
    """Look into the runs that are named; write ``games.json``, ``games.md`` and ``games.png``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", help="Folders of finished runs of relational-games.")
    parser.add_argument("--out", type=Path, required=True, help="Folder for the report.")
    options = parser.parse_args(arguments)
    found = []
    try:
        for run in options.runs:
            print(f"{run} ...", flush=True)
            found.append(look_into(run))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "games.json", {"models": [asdict(one) for one in found]})
    text = report(found, learned=LEARNED)
    write_atomically(options.out / "games.md", text)
    draw(found, options.out / "games.png", learned=LEARNED)
    print(text, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
