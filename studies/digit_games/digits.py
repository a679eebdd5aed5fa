"""Relations between handwritten digits: the same tasks, in which objects are the same if they are of one class.

An object is a class; what is drawn of it is an image of that class, and never one image twice in a scene. So whoever
compares pixels learns little: "the same" means the same digit by another hand. Models are trained on some classes and
tested on new hands of these, and on classes that they have never seen.

Shapes: n scenes, c classes, m images.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dat.data.images.digits import DigitSource, digit_images
from dat.data.relational_games.arguments import split_sizes, to_integer
from dat.data.relational_games.dataset import GameImages
from dat.data.relational_games.objects import SPRITE_SIZE, ObjectSet
from dat.data.relational_games.render import CELL_SIZE, render_tiles
from dat.data.relational_games.tasks import CELLS, ObjectSource, get_task
from dual_attention._base.digests import stream_seed

DigitTask = Literal["same", "occurs", "xoccurs", "between", "match_pattern"]
DIGIT_TASKS: tuple[DigitTask, ...] = ("same", "occurs", "xoccurs", "between", "match_pattern")
"""Tasks that ask for nothing but equality."""

UNSEEN = (7, 8, 9)
CLASSES = 10
HANDS = {"train": 0.6, "val": 0.1, "test": 0.3}
"""Part of the images of each seen class that belongs to a split."""


@cache
def load_digits(source: DigitSource) -> tuple[Tensor, Tensor]:
    """All digits as cells ``(m, 12, 12)`` uint8, white on black, and their classes ``(m,)`` int64.

    Those of 8 x 8 pixels have a margin, those of MNIST are averaged.

    Raises:
        ValueError, ImportError: as :func:`~dat.data.images.digit_images`.
    """
    images, classes = digit_images(source)
    cells = images[:, 0]
    if source == "digits":
        margin = (CELL_SIZE - cells.shape[-1]) // 2
        return F.pad(cells, (margin,) * 4), classes
    return F.avg_pool2d(cells[:, 2:-2, 2:-2].float(), 2).round().to(torch.uint8), classes


@dataclass(frozen=True)
class Hands:
    """Images of some classes, from which scenes are drawn.

    Attributes:
        cells: ``(m, 12, 12)`` uint8, ordered by class.
        first, count: ``(c,)`` int64, where the images of each class begin, and how many there are.
    """

    cells: Tensor
    first: Tensor
    count: Tensor

    def draw(self, scenes: Tensor, generator: torch.Generator) -> Tensor:
        """For every cell of ``scenes`` (n, 9), 0 if it is empty, otherwise one more than an image of its class.

        Images of a class are equally likely, and no scene has one twice.
        """
        n, fewest = len(scenes), int(self.count.min())
        objects = (scenes - 1).clamp_min(0)
        start = torch.rand(n, len(self.count), dtype=torch.float64, generator=generator)
        step = torch.rand(n, fewest, generator=generator).argsort(1)[:, :CELLS]
        begin = (start * self.count).long().gather(1, objects)
        image = self.first[objects] + (begin + step) % self.count[objects]
        return torch.where(scenes > 0, image + 1, 0)


def digit_splits(
    task: str,
    n_train: int,
    *,
    n_val: int = 1000,
    n_test: int = 5000,
    n_unseen: int = 5000,
    seed: int,
    source: DigitSource = "digits",
    unseen: Sequence[int] = UNSEEN,
) -> dict[str, GameImages]:
    """Draw the splits of one experiment with handwritten digits.

    No image of a digit is in two of train, val and test. Scenes are independent draws with equally frequent classes.
    Differing digits are independent draws. In ``occurs`` and ``xoccurs`` the objects below that differ from the one
    on top may equal each other, as they must where only three classes are left.

    Args:
        task: one of ``DIGIT_TASKS``.
        n_train, n_val, n_test: images of seen classes.
        n_unseen: images of unseen classes.
        seed: any integer; fixes the images and which split a digit belongs to.
        source: of the digits, see :data:`~dat.data.images.DIGIT_SOURCES`.
        unseen: classes, 0 to 9, held out of training; three to seven.

    Returns:
        ``{"train": ..., "val": ..., "test": ..., "unseen": ...}``.

    Raises:
        ValueError: unknown task or source, a negative count, or classes that are not such.
        TypeError: a count or the seed is not an integer.
        ImportError: see :func:`load_digits`.
    """
    if task not in DIGIT_TASKS:
        raise ValueError(f"task: expected one of {', '.join(DIGIT_TASKS)}, got {task!r}")
    sizes = {**split_sizes(n_train, n_val, n_test), "unseen": to_integer("n_unseen", n_unseen, minimum=0)}
    seed = to_integer("seed", seed)
    held = check_classes(unseen)
    hands = {name: _hands(source, held, name, seed) for name in sizes}
    return {
        name: _draw(task, size, hands[name], stream_seed("digits", name, seed, task)) for name, size in sizes.items()
    }


def check_classes(unseen: Sequence[int]) -> tuple[int, ...]:
    """The held-out classes. Raises ValueError unless these are three to seven different ones of 0 to 9."""
    held = tuple(unseen)
    fits = 3 <= len(held) <= CLASSES - 3 and len({*held}) == len(held) and {*held} <= {*range(CLASSES)}
    if not fits:
        raise ValueError(f"unseen: expected three to seven different classes from 0 to 9, got {list(held)}")
    return held


def _hands(source: DigitSource, unseen: Sequence[int], split: str, seed: int) -> Hands:
    """The images that a split is drawn from."""
    cells, classes = load_digits(source)
    generator = torch.Generator().manual_seed(stream_seed("hands", source, seed))
    order = [torch.nonzero(classes == c)[:, 0] for c in range(CLASSES)]
    order = [of_class[torch.randperm(len(of_class), generator=generator)] for of_class in order]
    if split == "unseen":
        chosen = [order[c] for c in sorted(unseen)]
    else:
        chosen = [_share(order[c], split) for c in range(CLASSES) if c not in unseen]
    count = torch.tensor([len(part) for part in chosen])
    return Hands(cells[torch.cat(chosen)], count.cumsum(0) - count, count)


def _share(images: Tensor, split: str) -> Tensor:
    """The images of one class, in random order, that belong to a split."""
    names = list(HANDS)
    before = sum(HANDS[name] for name in names[: names.index(split)])
    return images[round(before * len(images)) : round((before + HANDS[split]) * len(images))]


def _draw(task: str, n: int, hands: Hands, seed: int) -> GameImages:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randperm(n, generator=generator) % 2
    asked = torch.zeros_like(labels)
    source = ObjectSource(featureless_objects(len(hands.count)), generator, 1.0, others_differ=False)
    scenes = get_task(task).rule(labels, asked, source)
    tiles = F.pad(hands.cells, (0, 0, 0, 0, 1, 0))[:, None].expand(-1, 3, -1, -1)
    return GameImages(render_tiles(hands.draw(scenes, generator), tiles), labels, asked)


def featureless_objects(count: int) -> ObjectSet:
    """Equally likely objects that are told apart by their number alone: classes of pictures."""
    one = torch.ones(count, dtype=torch.int64)
    return ObjectSet(
        name="classes",
        sprites=torch.zeros(count, 3, SPRITE_SIZE, SPRITE_SIZE, dtype=torch.uint8),
        brightness=torch.zeros(count, dtype=torch.int64),
        colours=1,
        slots=torch.arange(count),
        first_slot=torch.arange(count),
        slot_count=one,
        near_misses=False,
    )
