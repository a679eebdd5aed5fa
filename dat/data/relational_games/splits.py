"""A whole experiment: train, validation and test images that do not overlap, and held-out object sets.

Every image belongs to one split, decided by a hash of the image and the seed. So the splits cannot overlap, each
follows the distribution of the task, and none depends on the size of another.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dual_attention._base.digests import stream_seed
from dual_attention._base.hashing import counter_words, first_occurrences, keys_of, uniform_of

from .arguments import share_of, split_sizes, to_integer
from .dataset import GameImages, generate_images
from .objects import OBJECT_SETS, object_set
from .render import render
from .tasks import CELLS, ObjectSource, Task, get_task

SPLITS = ("train", "val", "test")

TRAINED = "pentominoes"
"""Object set that is trained on; the others are held out."""

SHARES = (0.35, 0.25, 0.4)
"""Part of all images that belongs to train, val and test."""


def make_splits(
    task: str,
    n_train: int,
    *,
    n_val: int = 5000,
    n_test: int = 10000,
    n_heldout: int = 10000,
    seed: int,
    independent_share: float | None = None,
) -> dict[str, GameImages]:
    """Draw the splits of one experiment.

    No image occurs in two of train, val and test. A smaller train split is a prefix of a larger one with otherwise
    equal arguments, and no split depends on the size of another, so the points of a learning curve are comparable.
    In every split, and in every prefix of train, val and test, class counts differ by at most one (for
    ``colour_and_or_shape`` too), and so do the counts of asked patterns within a class.

    No image occurs twice within train, val or test either (with the same asked pattern, where there are several). This
    binds where images are few: ``same`` has 33,300 positive pentomino images, of which :data:`SHARES` gives train about
    11,650, so train can hold some 23,300 images. Dropping repeats also makes the rarer
    objects of a nearly exhausted share more frequent than the task has them. Held-out sets are independent draws and
    may repeat images.

    Args:
        task: one of ``TASKS`` or ``EXTRA_TASKS``.
        n_train, n_val, n_test: images in each split.
        n_heldout: images in each held-out set; those of object sets that the task does not support are left out.
        seed: any integer; fixes the images and which split they belong to.
        independent_share: see ``generate_images``.

    Returns:
        ``{"train": ..., "val": ..., "test": ...}`` and one entry for each held-out set, under its name.

    Raises:
        ValueError: an argument is out of range or unknown, or more distinct images are asked for than there are.
        TypeError: a count or the seed is not an integer.
    """
    definition = get_task(task)
    sizes = split_sizes(n_train, n_val, n_test)
    n_heldout = to_integer("n_heldout", n_heldout, minimum=0)
    seed = to_integer("seed", seed)
    stream = _Stream(task, definition, share_of(definition, independent_share), seed)
    made = {name: _draw_split(stream, name, size) for name, size in sizes.items()}
    for name in OBJECT_SETS:
        if name != TRAINED and name in definition.objects:
            held_seed = stream_seed("heldout", seed)
            made[name] = generate_images(
                task, n_heldout, objects=name, seed=held_seed, independent_share=independent_share
            )
    return made


def split_mask(keys: Tensor, split: str, seed: int) -> Tensor:
    """Mask of the images, given by their keys, that belong to a split: (n,) -> (n,) bool."""
    index = SPLITS.index(split)
    position = uniform_of(keys, stream_seed("partition", seed))
    return (position >= sum(SHARES[:index])) & (position < sum(SHARES[: index + 1]))


@dataclass(frozen=True)
class _Stream:
    """The endless sequence of candidate images for each split, label and asked pattern."""

    task: str
    definition: Task
    independent_share: float
    seed: int

    def take(self, split: str, label: int, asked: int, count: int) -> Tensor:
        """The first ``count`` scenes of the split's sequence, (count, 9)."""
        name = (split, self.seed, self.task, TRAINED, label, asked)
        generator = torch.Generator().manual_seed(stream_seed("split", *name))
        source = ObjectSource(object_set(TRAINED), generator, self.independent_share)
        scenes, keys = torch.empty(0, CELLS, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
        size, fruitless = 2048, 0
        while len(scenes) < count:
            # Sizes of successive draws must not depend on count, or a smaller split would not be a prefix.
            size = min(2 * size, 2**16)
            labels = torch.full((size,), label)
            drawn = self.definition.rule(labels, torch.full((size,), asked), source)
            drawn_keys = keys_of(drawn)
            mine = split_mask(drawn_keys, split, self.seed)
            before = len(scenes)
            scenes, keys = torch.cat((scenes, drawn[mine])), torch.cat((keys, drawn_keys[mine]))
            new = first_occurrences(keys)
            scenes, keys = scenes[new], keys[new]
            fruitless = 0 if len(scenes) > before else fruitless + size
            if fruitless >= 2**18:  # the class counts as exhausted
                self._refuse(split, label, asked, count, len(scenes))
        return scenes[:count]

    def _refuse(self, split: str, label: int, asked: int, count: int, available: int) -> None:
        which = f"class {self.definition.classes[label]!r}"
        if self.definition.asked:
            which += f", asked pattern {self.definition.asked[asked]}"
        raise ValueError(
            f"n_{split}: expected at most about {available} distinct images of task {self.task!r}, {which}, with "
            f"{TRAINED}, which is what belongs to the {split} split, got {count}"
        )


def _draw_split(stream: _Stream, split: str, n: int) -> GameImages:
    classes, questions = len(stream.definition.classes), max(1, len(stream.definition.asked))
    seed = stream_seed("order", split, stream.seed)
    labels = _balanced(n, classes, seed)
    asked = torch.zeros(n, dtype=torch.int64)
    scenes = torch.zeros(n, CELLS, dtype=torch.int64)
    for label in range(classes):
        of_label = (labels == label).nonzero()[:, 0]
        asked[of_label] = _balanced(len(of_label), questions, stream_seed("asked", label, seed))
        for question in range(questions):
            rows = of_label[asked[of_label] == question]
            scenes[rows] = stream.take(split, label, question, len(rows))
    return GameImages(render(scenes, object_set(TRAINED)), labels, asked)


def _balanced(n: int, values: int, seed: int) -> Tensor:
    """n entries of a sequence in which every round of ``values`` entries is a random order of 0 .. values - 1."""
    rounds = -(-n // values)
    return counter_words(rounds * values, seed).view(rounds, values).argsort(1).flatten()[:n]
