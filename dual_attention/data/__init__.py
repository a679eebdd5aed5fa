"""Data for the experiments: one room per task. Nothing is downloaded or generated at import."""

from . import masked_language, relational_games

__all__ = ["masked_language", "relational_games"]
