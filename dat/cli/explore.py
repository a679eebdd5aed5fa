"""``dat explore``: see what a trained model attends to, which relations it computes and which symbols it assigns."""

from ..explorer.command import run_explorer

explore = run_explorer
"""``dat explore``."""
