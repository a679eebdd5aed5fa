"""Views of what a model computes: figures for papers, and pages for screens, which ask nothing of the network.

Figures are matplotlib's; pyplot does not know them, so nothing is shown or kept unless the caller does so. In a
notebook figures and pages show themselves. In all of them orange is positive and blue negative (``colours``). Shapes
and labels that do not fit are a ``ValueError``.
"""

from .arcs import draw_arcs
from .importance import draw_importance, importance_grid
from .matrices import draw_attention, draw_matrices
from .matrix_page import matrix_page
from .page import Page
from .patch_page import patch_page
from .patches import draw_patch_relations
from .symbols import draw_symbol_assignment, draw_symbol_usage, symbol_usage
from .tables import dictionary_page, importance_page
from .tokens import drawable, token_labels

__all__ = [
    "Page",
    "dictionary_page",
    "draw_arcs",
    "draw_attention",
    "draw_importance",
    "draw_matrices",
    "draw_patch_relations",
    "draw_symbol_assignment",
    "draw_symbol_usage",
    "drawable",
    "importance_grid",
    "importance_page",
    "matrix_page",
    "patch_page",
    "symbol_usage",
    "token_labels",
]
