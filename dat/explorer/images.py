"""Sessions of image classifiers: images from a browser or of the project's own generators, and their recordings.

Shapes: C channels, height and width of an image in pixels, K classes.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dual_attention.baselines.vision import ObjectClassifier, VisionPrediNet
from dual_attention.vision_models import VisionModel

from ..checkpoints import Checkpoint
from ..data.images import IMAGE_SETS
from ..data.images.digits import DIGIT_SOURCES, digit_images
from ..data.images.folders import MEAN, STD
from ..data.images.pictures import decoded
from ..data.relational_games.dataset import generate_images
from ..data.relational_games.tasks import EXTRA_TASKS, TASKS, class_names
from ..experiments.relational_games.config import IMAGE_SHAPE
from .packing import pack, packed_array, unpacked_array
from .recording import Recording, record
from .requests import Json, Malformed
from .session import ModelSession

IMAGE_BYTES = 32 << 20
"""Bytes of an image's file."""

GAMES = (*TASKS, *EXTRA_TASKS)
"""Tasks of Relational Games, of which each gives a sample."""

DIGITS = 4
"""Samples of handwritten digits."""

VARIANTS = 8
"""Samples of the task that a model was trained on."""

HELD_OUT = 64
"""New pictures that come with a model of a game."""


ImageClassifier = VisionModel | ObjectClassifier
"""Models that sessions of images are of."""


@dataclass(frozen=True)
class Shown:
    """An image as a model reads it, and what it is taken for.

    Attributes:
        pixels: ``(C, height, width)`` uint8.
        grid: rows and columns of patches.
        first: place of the first patch among the tokens: behind a class token and registers, otherwise 0.
        classes: names of the likeliest classes and their probabilities, the likeliest first.
        about: where it comes from, and what was done to it.
    """

    pixels: Tensor
    grid: tuple[int, int]
    first: int
    classes: Sequence[tuple[str, float]]
    about: str

    @property
    def chosen(self) -> int:
        """Place of the patch to choose at first: the first with half the contrast of the strongest, so an object."""
        rows, columns = self.grid
        patches = self.pixels.float().unflatten(1, (rows, -1)).unflatten(3, (columns, -1)).transpose(2, 3)
        contrast = patches.flatten(3).std(-1, correction=0).sum(0).flatten()
        return self.first + int((2 * contrast >= contrast.max()).nonzero()[0])

    @property
    def json(self) -> Json:
        """The same for a page; pixels row by row, with their channels together."""
        pixels = self.pixels.permute(1, 2, 0).contiguous()
        return {
            "pixels": packed_array(pixels),
            "grid": list(self.grid),
            "first": self.first,
            "chosen": self.chosen,
            "classes": [list(one) for one in self.classes],
            "about": self.about,
        }


@dataclass(frozen=True)
class ImageSession(ModelSession):
    """An image classifier that is looked into, by one image at a time.

    Attributes:
        model: in evaluation mode, with three channels or one.
        title, facts: of its pages.
        mean, std: of each channel, by which pixels in 0..1 are normalised.
        digits: set of handwritten digits that samples are from; otherwise they are from Relational Games.
        task: that of Relational Games which the model has learned, if it has; its sample is shown first.
        names: of the classes; without, they are numbers.
    """

    model: ImageClassifier
    title: str
    facts: Mapping[str, str] = field(default_factory=dict)
    mean: Sequence[float] = (0.0,)
    std: Sequence[float] = (1.0,)
    digits: str | None = None
    task: str | None = None
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.model.image_channels not in (1, 3):
            raise ValueError(f"model: expected one of images with 1 or 3 channels, got {self.model.image_channels}")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of an image in pixels."""
        rows, columns = self.model.grid_size
        return rows * self.model.patch_height, columns * self.model.patch_width

    @property
    def samples(self) -> list[str]:
        """Names of samples."""
        if self.digits is not None:
            return [f"digit {number}" for number in range(DIGITS)]
        more = [f"game {self.task} {number}" for number in range(1, VARIANTS + 1)] if self.task else []
        return [name for task in GAMES for name in (f"game {task}", *(more if task == self.task else ()))]

    @property
    def default(self) -> str:
        """Sample to show first, if nothing else is asked for."""
        return self.samples[0] if self.digits is not None else f"game {self.task or GAMES[0]}"

    @property
    def pictures_of(self) -> str:
        """In words, what :meth:`pictures` are; empty if there are none."""
        if self.digits is not None:
            return f"handwritten digits of {self.digits}"
        return f"new pictures of the game {self.task}" if self.task and self.size == IMAGE_SHAPE[1:] else ""

    def pictures(self, count: int) -> tuple[Tensor, Tensor]:
        """Pictures like those of the training, ``(count, C, height, width)`` uint8, and their classes, ``(count,)``.

        Raises:
            ValueError: if there are none.
        """
        if not self.pictures_of:
            raise ValueError("pictures: there are none of the kind that this model was trained on")
        if self.digits is not None:
            images, labels = digit_images(self.digits)
            images, labels = images[:count], labels[:count]
        else:
            assert self.task
            images, labels = _new_pictures(self.task, count)
        return torch.stack([self._fitting(one) for one in images]), labels

    @property
    def held_out(self) -> list[str]:
        """Names of new pictures of the game that the model has learned; none if it has learned no game."""
        drawn = self.digits is None and self.pictures_of
        return [f"picture {number}" for number in range(1, HELD_OUT + 1)] if drawn else []

    def check(self, source: str) -> None:
        """Raise ``ValueError`` or ``OSError`` if :meth:`packed` cannot show this."""
        self.pixels(source)

    def packed(self, source: str, layers: Collection[str] = ()) -> Json:
        """The recording of an image as JSON, of all layers.

        Args:
            source: name of a sample, or a file.

        Raises:
            ValueError, OSError: as :meth:`record_file`, or if there is no such file.
        """
        sample = source if source in self.samples else None
        return {**self._packed(*self.pixels(source)), "source": sample}

    def packed_file(self, data: bytes) -> Json:
        """The recording of an image's file; ``ValueError`` if it is no image or too large."""
        return {**self._packed(*self._read(data)), "source": None}

    def pixels(self, source: str) -> tuple[Tensor, str]:
        """Pixels ``(C, height, width)`` uint8 of a sample or a file, and where they come from; as :meth:`packed`."""
        if source in self.samples or source in self.held_out:
            found, answer = self._sample(source)
            return self._fitting(found), f"sample: {source}, {answer}"
        path = Path(os.path.expanduser(source))
        if not path.is_file():
            raise FileNotFoundError(f"image: expected a file or one of {', '.join(self.samples)}, got {source!r}")
        if path.stat().st_size > IMAGE_BYTES:
            raise ValueError(f"image: expected at most {IMAGE_BYTES:,} bytes, got {path.stat().st_size:,}")
        return self._read(path.read_bytes())

    def _sample(self, name: str) -> tuple[Tensor, str]:
        """The image of a sample, and the right answer in words."""
        kind, _, which = name.partition(" ")
        if kind == "digit":
            images, labels = digit_images(self.digits)
            return images[int(which)], f"a {int(labels[int(which)])}"
        if kind == "picture":
            images, labels = self.pictures(HELD_OUT)
            return images[int(which) - 1], f"of class {int(labels[int(which) - 1])}"
        task, _, number = which.partition(" ")
        place = int(number) - 1 if number else 0
        games = generate_images(task, VARIANTS if number else 1, seed=int(bool(number)))
        return games.images[place], f"whose answer is “{class_names(task)[int(games.labels[place])]}”"

    def _read(self, data: bytes) -> tuple[Tensor, str]:
        """An image's file, cut to the shape of the model's images and made as large as they are."""
        height, width = self.size
        found, before = decoded(data, width, height, grey=self.model.image_channels == 1)
        cut = "" if before == (width, height) else f" of {before[0]:,} × {before[1]:,} pixels, cut and resized"
        return found, f"your image{cut}"

    def _fitting(self, pixels: Tensor) -> Tensor:
        """Pixels with the model's channels and size."""
        found = pixels.float()
        if len(found) != self.model.image_channels:
            found = found.mean(0, keepdim=True).expand(self.model.image_channels, -1, -1)
        if tuple(found.shape[1:]) != self.size:
            found = F.interpolate(found[None], self.size, mode="nearest-exact")[0]
        return found.round().to(torch.uint8)

    def normalised(self, pixels: Tensor) -> Tensor:
        """Pixels ``(..., C, height, width)`` uint8 as the model reads them, ``(B, C, height, width)``, B 1 for one."""
        mean, std = (torch.tensor(tuple(part))[:, None, None] for part in (self.mean, self.std))
        found = ((pixels.float() / 255.0 - mean) / std).to(next(self.model.parameters()))
        return found if found.dim() == 4 else found[None]

    def pixels_of_page(self, packed: Any) -> Tensor:
        """Pixels ``(C, height, width)`` uint8 from those that a page has of its image."""
        shape = [*self.size, self.model.image_channels]
        try:
            pixels = unpacked_array(packed)
        except (KeyError, RuntimeError, StopIteration, TypeError, ValueError) as error:
            raise Malformed("The request needs the pixels of an image.") from error
        if pixels.dtype != torch.uint8 or list(pixels.shape) != shape:
            raise Malformed(f"The request needs pixels of the shape {shape}.")
        return pixels.permute(2, 0, 1)

    def _packed(self, pixels: Tensor, about: str) -> Json:
        recording, shown = self.record(pixels, about)
        return {**pack(recording, self.bits).json, "image": shown.json}

    def record(self, pixels: Tensor, about: str = "") -> tuple[Recording, Shown]:
        """Record the model on an image ``(C, height, width)`` uint8."""
        x = self.normalised(pixels)
        rows, columns = self.model.grid_size
        patches = [f"row {r} col {c}" for r in range(1, rows + 1) for c in range(1, columns + 1)]
        extra = []
        if isinstance(self.model, VisionModel):
            extra = ["class token", *(f"register {n}" for n in range(1, self.model.n_registers + 1))]
        sequences = {"patches": [*extra, *patches]}
        if isinstance(self.model, VisionPrediNet):
            sequences["pair"] = ["first object", "second object"]
        scores: list[Tensor] = []
        with self.reserved():
            facts = {"title": self.title, "facts": self.facts, "reads": "image", "layers": self.layers}
            found = record(self.model, lambda: scores.append(self.model(x)), sequences, **facts)
        shares = scores[0][0].float().softmax(-1).topk(min(5, scores[0].shape[-1]))
        names = [str(self.names[number]) if self.names else f"{number}" for number in shares.indices.tolist()]
        classes = list(zip(names, shares.values.tolist(), strict=True))
        return found, Shown(pixels, (rows, columns), len(extra), classes, about)


@lru_cache(4)
def _new_pictures(task: str, count: int) -> tuple[Tensor, Tensor]:
    """Pictures of a game from a seed of their own, and their classes."""
    return generate_images(task, count, seed=1 << 32)[:2]  # away from the seeds of samples


def normalisation_of(checkpoint: Checkpoint) -> tuple[Sequence[float], Sequence[float], str | None]:
    """Mean and deviation that the pixels of a model's training had, and the set of digits, if it was one."""
    dataset = getattr(getattr(checkpoint.config, "data", None), "dataset", None)
    if checkpoint.kind == "images run" and dataset == "folder":
        return MEAN, STD, None
    if checkpoint.kind != "images run" or dataset not in IMAGE_SETS:
        return (0.0,), (1.0,), None
    about = IMAGE_SETS[dataset]
    return about.mean, about.std, dataset if dataset in DIGIT_SOURCES else None
