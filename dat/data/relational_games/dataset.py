"""Labelled images of one task."""

from typing import NamedTuple

import torch
from torch import Tensor

from dual_attention._base.digests import stream_seed

from .arguments import check_task_objects, share_of, to_integer
from .objects import object_set
from .render import render
from .tasks import ObjectSource


class GameImages(NamedTuple):
    """Labelled images.

    Attributes:
        images: (n, 3, 36, 36) uint8.
        labels: (n,) int64; ``class_names`` gives their meaning.
        asked: (n,) int64, index of the asked pattern (``asked_patterns``) for the tasks that ask several questions,
            zeros otherwise.
    """

    images: Tensor
    labels: Tensor
    asked: Tensor


def generate_images(
    task: str, n: int, *, objects: str = "pentominoes", seed: int, independent_share: float | None = None
) -> GameImages:
    """Draw n images of a task, in random order and with equally frequent classes.

    Images are independent draws, so they may repeat: ``same`` has only 33,300 different positive pentomino images.
    Use ``make_splits`` for an experiment. Class counts, and within a class the counts of asked patterns, differ by at
    most one. The images depend only on the arguments; global random state is neither read nor changed.

    Source: Shanahan et al. (2020), arXiv 1905.10307, as used by Altabaa & Lafferty (2024), arXiv 2405.16727. What each
    rule rests on: :mod:`dat.data.relational_games.tasks`.

    Args:
        task: one of ``TASKS`` or ``EXTRA_TASKS``.
        n: number of images.
        objects: one of ``OBJECT_SETS`` that the task supports.
        seed: any integer.
        independent_share: for ``same``, ``occurs`` and ``xoccurs``, the probability that a non-matching object is an
            independent draw rather than a near miss; other tasks do not use it. None takes 0 for ``same`` and 1/2 for
            the others.

    Raises:
        ValueError: unknown task or objects, objects that the task does not support, negative n, or a share
            outside 0 .. 1.
        TypeError: n or seed is not an integer.
    """
    definition = check_task_objects(task, objects)
    n = to_integer("n", n, minimum=0)
    seed = to_integer("seed", seed)
    share = share_of(definition, independent_share)
    generator = torch.Generator().manual_seed(stream_seed("generate", seed, task, objects))
    order = torch.randperm(n, generator=generator)
    labels = order % len(definition.classes)
    asked = order // len(definition.classes) % max(1, len(definition.asked))
    drawn_from = object_set(objects)
    scenes = definition.rule(labels, asked, ObjectSource(drawn_from, generator, share))
    return GameImages(render(scenes, drawn_from), labels, asked)
