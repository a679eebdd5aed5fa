"""Cards of relations of image classifiers: what one says of many pictures, each measure beside its controls.

Shapes: B pictures, N tokens of a picture, P patches, R relations, K classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dual_attention.functional import cross_entropy
from dual_attention.generation import evaluating
from dual_attention.model_analysis.interventions import Intervention, intervene
from dual_attention.model_analysis.maps import HeadMaps

from .cards import LIKE_IT, about_relation, captured, detected, scores_of, site_of, strongest
from .images import ImageSession
from .packing import packed_array
from .requests import Json, integer_of
from .switches import Switch, controls_of, interventions_of

MOST_PAIRS = 1 << 20
"""Pairs of tokens in all of them, so that large pictures are fewer."""


def image_card(session: ImageSession, request: Mapping[str, Any]) -> Json:
    """The card of a relation, measured in new pictures of the kind that the model was trained on.

    Args:
        request: ``layer`` by its name, and the number of the ``relation``.

    Returns:
        ``card``, the number of this format; ``model`` and ``weights``, its title and digest; ``layer``, ``relation``,
        ``formula``, ``asymmetry``, ``share`` and ``labels`` as of :func:`~.cards.card`; the number of ``pictures``, and
        in words what they are ``pictures_of``. ``effect`` of putting the relation's mean over the pictures: change of
        the loss and divergence in nats, and the share of right answers, with those of random directions,
        ``effects_random``, and the share ``right`` without any change. ``answers``: for each class its name, its
        pictures, and the least, the median and the largest value of their strongest pair, 5 % left out at either end.
        ``pairs``: at each end the pictures in which the relation is strongest between two patches ``i`` and ``j``, and
        others with objects at the same two places; ``shown``, these pictures and their ``answer``.

    Raises:
        ValueError: for a layer or relation that the model does not have, or a model that was trained on pictures of
            which there are no samples.
    """
    site = site_of(session, request.get("layer"))
    number = integer_of(request, "relation", 0, site.n_relations - 1, 0)
    rows, columns = session.model.grid_size
    count = max(2, min(256, MOST_PAIRS // (rows * columns + 1) ** 2))
    pictures, answers = session.pictures(count)
    inputs = session.normalised(pictures)
    with session.reserved() as model, evaluating(model):
        maps, entered = captured(model, site, inputs)
        filled = _filled(pictures, (rows, columns), maps.get("relations").shape[1])
        labels = _labels(pictures, filled, (rows, columns))
        scores = scores_of(model, site, maps, entered, inputs)
        found = detected(scores, number, labels, 0)  # to shuffle two objects of a picture changes nothing
        about = about_relation(session, site, maps, number)
        switch = Switch("relation", site.layer, site.kind, number)
        right, effect, random = _effects(model, inputs, answers, interventions_of([switch], "mean"))
    values = maps.get("relations")[..., number].cpu()
    objects = filled[:, :, None] & filled[:, None] & ~torch.eye(filled.shape[1], dtype=torch.bool)
    pairs = _pairs(maps, number, values, objects)
    numbers = sorted({one["picture"] for entry in pairs for one in (entry["example"], *entry["counterexamples"])})
    names = [session.names[label] if session.names else f"{label}" for label in map(int, answers)]
    return {
        **about,
        "pictures": len(pictures),
        "pictures_of": session.pictures_of,
        "pairs": pairs,
        "shown": {f"{one}": {"pixels": _pixels(pictures[one]), "answer": names[one]} for one in numbers},
        "grid": [rows, columns],
        "first": filled.shape[1] - rows * columns,
        "labels": found,
        "right": right,
        "effect": effect,
        "effects_random": random,
        "answers": _by_answer(values, objects, names),
    }


def _pixels(picture: Tensor) -> Json:
    return packed_array(picture.permute(1, 2, 0).contiguous())


def _patches(pictures: Tensor, grid: tuple[int, int]) -> Tensor:
    """Pixels of patches, ``(B, P, numbers)``."""
    found = pictures.unflatten(3, (grid[1], -1)).unflatten(2, (grid[0], -1))
    return found.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def _filled(pictures: Tensor, grid: tuple[int, int], tokens: int) -> Tensor:
    """Tokens that are patches with something in them, ``(B, N)``."""
    patches = _patches(pictures, grid)
    found = torch.zeros(len(pictures), tokens, dtype=torch.bool)
    found[:, tokens - patches.shape[1] :] = (patches != patches[..., :1]).any(-1)
    return found


def _labels(pictures: Tensor, filled: Tensor, grid: tuple[int, int]) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """Labels of pairs of tokens, the pairs that count, and their strata, each ``(B, N, N)``."""
    tokens, patches = filled.shape[1], _patches(pictures, grid)
    first = tokens - patches.shape[1]
    equal = torch.zeros(len(pictures), tokens, tokens, dtype=torch.bool)
    for number, some in enumerate(patches):
        equal[number, first:, first:] = (some[:, None] == some[None]).all(-1)
    counts = filled[:, :, None] & filled[:, None] & ~torch.eye(tokens, dtype=torch.bool)
    places = torch.arange(tokens * tokens).view(1, tokens, tokens).expand(len(pictures), -1, -1)
    return {"equal patches": (equal, counts, places)}


def _effects(
    model: nn.Module, inputs: Tensor, answers: Tensor, changes: Sequence[Intervention]
) -> tuple[float, list[float], list[list[float]]]:
    """Share of right answers; change of the loss, divergence and share of right answers with a change, and controls."""
    answers = answers.to(inputs.device)

    def predicted(some: Sequence[Intervention]) -> Tensor:
        with intervene(model, some):
            return model(inputs).float().log_softmax(-1)

    def right(log_probs: Tensor) -> float:
        return float((log_probs.argmax(-1) == answers).float().mean())

    before = predicted([])

    def effect(some: Sequence[Intervention]) -> list[float]:
        after = predicted(some)
        divergence = (before.exp() * (before - after)).sum(-1).mean()
        return [float(cross_entropy(after, answers) - cross_entropy(before, answers)), float(divergence), right(after)]

    return right(before), effect(changes), [effect(some) for some in controls_of(changes)]


def _pairs(maps: HeadMaps, number: int, values: Tensor, objects: Tensor) -> list[Json]:
    """The strongest pairs at both ends, of a picture one, and others at the same two places."""
    generator = torch.Generator().manual_seed(0)

    def example(picture: int, i: int, j: int) -> Json:
        return {"value": float(values[picture, i, j]), "picture": picture, "i": i, "j": j}

    found = []
    for end, rank, (picture, i, j) in strongest(values, objects, lambda picture, i, j: picture):
        others = [one for one in objects[:, i, j].nonzero()[:, 0].tolist() if one != picture]
        like = [others[place] for place in torch.randperm(len(others), generator=generator)[:LIKE_IT].tolist()]
        entry = {"layer": maps.layer, "relation": number, "end": end, "rank": rank}
        beside = [example(one, i, j) for one in like]
        found.append({**entry, "example": example(picture, i, j), "counterexamples": beside})
    return found


def _by_answer(values: Tensor, objects: Tensor, names: Sequence[str]) -> list[Json]:
    """Classes, their pictures, and quantiles of the strongest pair of objects in each."""
    strongest = values.masked_fill(~objects, -torch.inf).flatten(1).amax(1)
    found = []
    for name in sorted(set(names)):
        own = strongest[[one == name for one in names]]
        own = own[own.isfinite()]
        if len(own):
            low, median, high = own.quantile(torch.tensor([0.05, 0.5, 0.95])).tolist()
            found.append({"name": name, "pictures": len(own), "low": low, "median": median, "high": high})
    return found
