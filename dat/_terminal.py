"""Lines that commands say beside their results, broken between words where somebody reads them."""

import re
import shutil
import sys
import textwrap
from typing import Any

from dual_attention._base.words import printable

COMMAND = re.compile(r"(?<=with): (?=(?:dat|torchrun) )")
"""Place before a command in a message, which on a terminal has a line of its own, to be copied."""


def tell(text: str) -> None:
    """Say something about what a command does, on standard error."""
    print(at_words(printable(f"dat: {text}"), sys.stderr), file=sys.stderr)


def at_words(text: str, stream: Any, indent: int = 0) -> str:
    """A text as a terminal shows it, whose lines end between words; as it is for anything else.

    Args:
        indent: of the further lines of each.
    """
    if not stream.isatty():
        return text
    width, found = shutil.get_terminal_size().columns, []
    how: Any = {"break_long_words": False, "break_on_hyphens": False, "subsequent_indent": " " * indent}
    for line in text.split("\n"):
        words, *command = COMMAND.split(line, maxsplit=1) if len(line) > width else (line,)
        wrapped = textwrap.wrap(words, width - bool(command), replace_whitespace=False, **how)
        found.append("\n".join(wrapped) + "".join(f":\n{one}" for one in command))
    return "\n".join(found)
