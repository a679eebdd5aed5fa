"""Figures of what a model computes, and labels of its tokens.

Figures are matplotlib's; pyplot does not know them, so nothing is shown or kept unless the caller does so. In a
notebook they show themselves. Orange is positive and blue negative. Shapes and labels that do not fit are a
``ValueError``.
"""

from .matrices import draw_matrices
from .patches import draw_patch_relations
from .tokens import drawable, token_labels

__all__ = ["draw_matrices", "draw_patch_relations", "drawable", "token_labels"]
