"""Another size of images or patches for a vision model: what depends on places in the grid of patches is resized.

Shapes: d width of the model, p height and q width of a patch in pixels, C channels.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..positional_encoding import RelativePositionalEncoding
from ..symbol_retrieval import (
    PositionalSymbolRetriever,
    PositionRelativeSymbolRetriever,
    PositionRelativeSymbolRetriever2D,
)

Grid = tuple[int, int]


def resized_rows(rows: Tensor, old: Grid, new: Grid) -> Tensor:
    """Vectors of a grid at the places of another, bicubic: ``(1, rows * columns, d)`` of both."""
    grid = rows.unflatten(1, old).permute(0, 3, 1, 2)
    return F.interpolate(grid, size=new, mode="bicubic", align_corners=False).flatten(2).transpose(1, 2)


def like(old: Tensor, values: Tensor) -> nn.Parameter:
    """A parameter of other values, and perhaps another shape, that otherwise is as the old one."""
    return nn.Parameter(values.to(old), requires_grad=old.requires_grad)


def check_resizable(model: nn.Module, old: Grid, new: Grid, prefix: int, *, resized: bool = True) -> None:
    """Raise ``ValueError`` if a part knows tokens by a place in one row that they would not keep.

    Args:
        resized: whether learned symbols of places are resized; otherwise they are such a part, too.
    """
    tokens, given = prefix + math.prod(new), "img_size" if resized else "x"
    for name, module in model.named_modules():
        in_a_row = isinstance(module, RelativePositionalEncoding | PositionRelativeSymbolRetriever)
        in_a_row |= isinstance(module, PositionalSymbolRetriever) and not resized
        if isinstance(module, PositionalSymbolRetriever) and module.sinusoidal:
            in_a_row, longest = True, module.max_length
            if tokens > longest:
                raise ValueError(f"{given}: {tokens} tokens are more than max_length={longest} of {name}")
        if in_a_row and new[1] != old[1]:
            raise ValueError(
                f"{given}: {name} tells tokens by their place in one row, which {new[1]} columns of patches in the "
                f"place of {old[1]} would move; expected the same number, or position_relative_2d"
            )


def resize_symbols(model: nn.Module, old: Grid, new: Grid, prefix: int) -> None:
    """Resize the symbols that name places or offsets in the grid, behind so many tokens; checked before."""
    for name, module in [*model.named_modules()]:  # other models may share them, and keep theirs
        if isinstance(module, PositionRelativeSymbolRetriever2D | PositionalSymbolRetriever):
            model.set_submodule(name, copy.deepcopy(module))
    for module in model.modules():
        if isinstance(module, PositionRelativeSymbolRetriever2D):
            _resize_offsets(module, old, new)
        elif isinstance(module, PositionalSymbolRetriever) and not module.sinusoidal:
            table = module.symbol_library.weight
            ahead, places = table[:prefix], table[prefix : prefix + math.prod(old)]
            rows = torch.cat((ahead, resized_rows(places[None], old, new)[0]))
            rows = torch.cat((rows, table[len(rows) :]))
            module.symbol_library.weight = like(table, rows)
            module.symbol_library.num_embeddings = module.max_length = len(rows)


def _resize_offsets(retriever: PositionRelativeSymbolRetriever2D, old: Grid, new: Grid) -> None:
    """Name each offset by the symbol of the same distance in the image, linear between those that there were.

    Offsets beyond the largest that the old grid has, or that its symbols tell apart, get the symbol of that.
    """
    table = retriever.symbol_library
    offsets, ahead = table[: retriever.n_offsets], table[retriever.n_offsets :]
    reaches = retriever.max_rel_pos
    weights = [_between(*sizes) for sizes in zip(reaches, old, new, strict=True)]
    rows, columns = (matrix.to(table) for matrix in weights)
    grid = offsets.unflatten(0, (2 * reaches[0] + 1, 2 * reaches[1] + 1))
    moved = torch.einsum("ia,jb,abd->ijd", rows, columns, grid).flatten(0, 1)
    retriever.max_rel_pos = (rows.shape[0] // 2, columns.shape[0] // 2)
    retriever.n_offsets = len(moved)
    retriever.symbol_library = like(table, torch.cat((moved, ahead)))


def _between(reach: int, old: int, new: int) -> Tensor:
    """Weights of the old offsets, -R..R, in each of the new ones: ``(2 R' + 1, 2 R + 1)``, along one axis."""
    if old == new:
        return torch.eye(2 * reach + 1)
    farthest = new - 1
    if reach >= max(old, new) - 1:
        farthest = reach  # some never occur, and the table keeps its shape
    elif reach < old - 1:
        farthest = min(math.ceil(reach * new / old), new - 1)
    last = min(reach, old - 1)
    places = (torch.arange(-farthest, farthest + 1, dtype=torch.float64) * old / new).clamp(-last, last)
    return (1 - (places[:, None] - torch.arange(-reach, reach + 1)).abs()).clamp(min=0)


def resize_patches(embedding: nn.Sequential, old: Grid, resized: nn.Sequential, new: Grid) -> None:
    """Give an embedding of patches of the size ``new`` the weights of another, for images that are resized likewise.

    Math: w'_o = pinv(R)^T (w_o * gamma),  b'_o = b_o + <w_o, beta>

    with R the resizing of a patch, by area, and gamma, beta of the normalisation of its pixels, which become one and
    zero (Beyer et al. 2023, arXiv 2212.08013, section 3.4). For patches that are whole multiples of the old ones, in
    images with each pixel repeated, tokens are the same, since their pixels' mean and variance are.
    """
    parts: Any = embedding
    norm, linear, last = parts[1], parts[2], parts[3]
    fresh: Any = resized
    kernel = (linear.weight * norm.weight).unflatten(1, (*old, -1))
    rows, columns = (_spread(*sizes).to(kernel) for sizes in zip(old, new, strict=True))
    kernel = torch.einsum("ip,jq,dpqc->dijc", rows, columns, kernel).flatten(1)
    values = {"weight": kernel, "bias": linear.bias + linear.weight @ norm.bias}
    for name, value in values.items():
        setattr(fresh[2], name, like(getattr(linear, name), value))
        ones = torch.full(fresh[1].weight.shape, float(name == "weight"))
        setattr(fresh[1], name, like(getattr(norm, name), ones))
    fresh[3] = last


def _spread(old: int, new: int) -> Tensor:
    """``pinv(R)^T``, ``(new, old)``, of the resizing R of so many pixels in a row, by area."""
    resizing = F.interpolate(torch.eye(old, dtype=torch.float64)[None], size=new, mode="area")[0]
    return torch.linalg.pinv(resizing)
