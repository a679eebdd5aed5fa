"""Relations that a trained DAT computes over the grid, and how well each tells equal objects from different ones.

Shapes: B images, C = 9 cells of the grid (row by row), R relations of a layer.
"""

import torch
from torch import Tensor, nn

from dual_attention.generation import evaluating
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.measures import area_under_curve
from dual_attention.relational_attention import RelationalAttention

GRID = 3
CELL = 12


@torch.inference_mode()
def cell_relations(model: nn.Module, images: Tensor) -> list[Tensor]:
    """Relations r_ij between the cells of images (B, 3, 36, 36) uint8, for each layer: (B, C, C, R), float32.

    They are captured in a forward pass in evaluation mode. The class token is left out.

    Raises:
        ValueError: if the model has no relational attention.
    """
    if not any(isinstance(module, RelationalAttention) for module in model.modules()):
        raise ValueError("model: expected one with relational attention, got one without")
    device = next(model.parameters()).device
    with evaluating(model), capture(model, "relations", heads="relational") as maps:
        model(images.to(device, torch.float32).div_(255.0))
    return [heads.get("relations")[:, 1:, 1:].float().cpu() for heads in maps.heads()]


def object_pairs(images: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of different cells that hold an object each, and those among them with equal ones: (B, C, C) bool each."""
    cells = images.unfold(2, CELL, CELL).unfold(3, CELL, CELL)
    contents = cells.permute(0, 2, 3, 1, 4, 5).reshape(len(images), GRID * GRID, -1)
    filled = (contents != 0).any(-1)
    both = filled[:, :, None] & filled[:, None, :] & ~torch.eye(GRID * GRID, dtype=torch.bool)
    equal = (contents[:, :, None] == contents[:, None, :]).all(-1)
    return both, both & equal


def equality_aucs(model: nn.Module, images: Tensor, source: int) -> Tensor:
    """AUC of each relation from the cell ``source`` as a sign that an object equals the one there: (layers, R)."""
    both, equal = (pairs[:, source] for pairs in object_pairs(images))
    layers = [relations[:, source][both] for relations in cell_relations(model, images)]
    return torch.tensor([[area_under_curve(scores, equal[both]) for scores in of.unbind(-1)] for of in layers])
