"""Data of the experiments, one file or folder per source. Nothing is downloaded or generated at import."""

from . import images, masked_language, relational_games

__all__ = ["images", "masked_language", "relational_games"]
