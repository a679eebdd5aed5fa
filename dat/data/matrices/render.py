"""Panels as a model reads them: vectors of codes or of numbers, or small drawings."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from dual_attention._base.digests import stream_seed

Form = Literal["codes", "numbers", "drawings"]
DRAWN = ("column", "row", "size", "shade", "ground", "frame")
"""Attributes of a drawing: place, size and grey of a square, grey of the ground, and grey of the frame around it."""
PIXELS = 2
"""Pixels of a drawing's side for each value, so that no two drawings are equal."""


def rendered(panels: Tensor, form: Form, *, values: int, width: int, seed: int) -> Tensor:
    """Panels by their values, integers ``(..., K)``, as vectors ``(..., features)`` or drawings, uint8.

    Codes are random vectors of length 1, which say nothing of an order of values: K times ``width`` features. Numbers
    go from -1 to 1: K features. Drawings are ``(..., width, width)``.

    Args:
        seed: of the codes.
    """
    if form == "numbers":
        return panels.float() * (2 / (values - 1)) - 1
    if form == "drawings":
        return _drawn(panels, values, width)
    generator = torch.Generator().manual_seed(stream_seed("matrices", "codes", seed))
    codes = torch.nn.functional.normalize(torch.randn(values, width, generator=generator), dim=1)
    return codes[panels].flatten(-2)


def _drawn(panels: Tensor, values: int, side: int) -> Tensor:
    share = panels / (values - 1)
    missing = len(DRAWN) - panels.shape[-1]
    share = torch.nn.functional.pad(share, (0, missing), value=0.5)[..., None, None]
    column, row, size, shade, ground, frame = share.unbind(-3)
    pixel = torch.arange(side) + 0.5
    reach = side * (0.08 + 0.14 * size)
    across, down = ((reach + 0.5 - (pixel - side * (0.28 + 0.44 * at)).abs()).clamp(0, 1) for at in (column, row))
    square = across * down.transpose(-1, -2)
    base, grey = 0.4 * ground, 0.55 + 0.45 * shade
    image = base + square * (grey - base)
    inside = (pixel > 1) & (pixel < side - 1)
    image = torch.where(inside & inside[:, None], image, frame.expand_as(image))
    return (255 * image).round().to(torch.uint8)
