"""Data for the experiments: one room per task. Nothing is downloaded or generated at import."""

from dual_attention.data import relational_games

__all__ = ["relational_games"]
