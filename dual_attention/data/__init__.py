"""Data of the experiments, one file or folder per source. Nothing is downloaded or generated at import."""

from . import masked_language, relational_games

__all__ = ["masked_language", "relational_games"]
