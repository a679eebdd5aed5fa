"""A parser for commands that need no extra to be installed."""

from __future__ import annotations

import argparse
from typing import NoReturn


class PlainParser(argparse.ArgumentParser):
    """argparse's parser, whose errors are exceptions, in the words of other commands."""

    def error(self, message: str) -> NoReturn:
        """Raise ``ValueError``."""
        from ..training.config_io import in_plain_words, options_of

        raise ValueError(in_plain_words(message, options_of(self)))
