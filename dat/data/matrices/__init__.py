"""Progressive matrices: panels whose attributes follow rules along the rows, and answers to the missing one.

Answers differ from the right one in some attributes, in every combination (Hu et al. 2021, arXiv 2002.06838, build
them as a tree), so that no value is the commonest among them. Within a matrix a wrong value is drawn as the right one
is. Without the panels of the context, nothing tells which is which: the best guess is right once in as many times as
there are answers.
"""

from .panels import CONTEXT, Matrices, MatrixRules, SetName, likeliest_by_counting, sample_matrices, solutions
from .render import DRAWN, PIXELS, Form, rendered
from .rules import LEAST_VALUES, MOST_VALUES, RULES, RuleName, completions, filled_grids

__all__ = [
    "CONTEXT",
    "DRAWN",
    "LEAST_VALUES",
    "MOST_VALUES",
    "PIXELS",
    "RULES",
    "Form",
    "Matrices",
    "MatrixRules",
    "RuleName",
    "SetName",
    "completions",
    "filled_grids",
    "likeliest_by_counting",
    "rendered",
    "sample_matrices",
    "solutions",
]
