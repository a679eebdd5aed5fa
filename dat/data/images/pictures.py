"""Files of pictures as pixels: of any size and format, cut and resized to those of a model."""

import io
from typing import Any

import torch
from torch import Tensor

from dual_attention._base.extras import require
from dual_attention._base.files import first_line

MOST_PIXELS = 64_000_000
"""Pixels of an image before it is made smaller; so many take 200 MB of memory for a moment."""

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")


def decoded(data: bytes, width: int, height: int, *, grey: bool) -> tuple[Tensor, tuple[int, int]]:
    """Pixels of an image's file, ``(1 or 3, height, width)`` uint8, and the width and height that it had.

    It is turned as its camera says, put on white where it is transparent, cut to the shape, and resized.

    Raises:
        ValueError: if it is no image of :data:`FORMATS`, damaged, has more than 16 bits for each channel, or more than
            :data:`MOST_PIXELS` pixels.
        ImportError: if the extra ``train`` is not installed.
    """
    image, ops = require("PIL.Image", extra="train"), require("PIL.ImageOps", extra="train")
    if not data:
        raise ValueError("image: expected a file with an image in it, got an empty one")
    try:
        with image.open(io.BytesIO(data), formats=FORMATS) as file:  # which reads its head only
            read = file.size if file.width * file.height > MOST_PIXELS else ops.exif_transpose(file)
    except image.DecompressionBombError as error:
        raise ValueError(f"image: expected at most {MOST_PIXELS:,} pixels, got many more") from error
    except image.UnidentifiedImageError as error:
        raise ValueError(f"image: expected an image ({', '.join(FORMATS)}), got a file that is none") from error
    except Exception as error:  # of damaged files, by any of many readers
        raise ValueError(f"image: the file is damaged ({first_line(error)})") from error
    if isinstance(read, tuple):
        raise ValueError(f"image: expected at most {MOST_PIXELS:,} pixels, got {read[0]:,} × {read[1]:,}")
    picture = _in_colours(read)
    before = picture.size
    ground = image.new("RGBA", before, "white")
    ground.alpha_composite(picture)
    fitted = ops.fit(ground.convert("L" if grey else "RGB"), (width, height), method=image.Resampling.BICUBIC)
    pixels = torch.frombuffer(bytearray(fitted.tobytes()), dtype=torch.uint8)
    return pixels.view(height, width, -1).permute(2, 0, 1).contiguous(), before


def _in_colours(picture: Any) -> Any:
    """The picture with 8 bits a channel and an alpha channel; ``convert`` alone would cut 16 bits at 255."""
    if picture.mode == "F" or (picture.mode == "I" and picture.getextrema()[1] >= 2**16):
        raise ValueError(f"image: expected 8 or 16 bits for each channel, got an image of mode {picture.mode}")
    if picture.mode.startswith("I"):
        picture = picture.convert("I").point(lambda value: value / 257).convert("L")
    return picture.convert("RGBA")
