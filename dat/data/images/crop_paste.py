"""Paste a piece of each image over another place of it, as the published runs of Tables 1 and 3 do.

Shapes: B images, C channels, H rows, W columns.
"""

import torch
from torch import Tensor


def crop_paste(images: Tensor) -> Tensor:
    """Paste a box of each image ``(B, C, H, W)`` into it, both perhaps flipped, at a random place and strength.

    The box has sides of sqrt(1 - λ) of the image's, λ ~ U(0, 1), its centre anywhere and what lies outside cut off; the
    piece and the image are flipped left to right with probability 1/2 each; the image keeps a share ~ U(0, 1) below it.
    """
    n, _, height, width = images.shape
    reach = (1 - torch.rand(n)).sqrt()
    top, rows = _side(height, reach)
    left, columns = _side(width, reach)
    to_top = (torch.rand(n) * (height - rows + 1)).long()
    to_left = (torch.rand(n) * (width - columns + 1)).long()
    flip_piece, flip_image, share = torch.rand(n) < 0.5, torch.rand(n) < 0.5, torch.rand(n)
    row = torch.arange(height) - to_top[:, None]  # in the piece (B, H)
    column = torch.arange(width) - to_left[:, None]
    inside = ((row >= 0) & (row < rows[:, None]))[:, :, None] & ((column >= 0) & (column < columns[:, None]))[:, None]
    column = torch.where(flip_piece[:, None], columns[:, None] - 1 - column, column)
    source_row = (row + top[:, None]).clamp(0, height - 1)
    source_column = (column + left[:, None]).clamp(0, width - 1)
    device = images.device
    which = torch.arange(n)[:, None, None]
    places = (part.to(device) for part in (which, source_row[:, :, None], source_column[:, None, :]))
    pieces = images.permute(0, 2, 3, 1)[tuple(places)].permute(0, 3, 1, 2)
    below = torch.where(flip_image.to(device)[:, None, None, None], images.flip(-1), images)
    share = share.to(device, images.dtype)[:, None, None, None]
    return torch.where(inside.to(device)[:, None], share * below + (1 - share) * pieces, below)


def _side(length: int, reach: Tensor) -> tuple[Tensor, Tensor]:
    """First place and length of a box along a side."""
    half = (length * reach).long() // 2
    centre = (torch.rand(len(reach)) * length).long()
    first, end = (centre - half).clamp(min=0), (centre + half).clamp(max=length)
    return first, end - first
