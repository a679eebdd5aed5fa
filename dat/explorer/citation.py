"""Citations of a view: BibTeX entries, and the command that opens it."""

import shlex
from pathlib import Path
from typing import Any, NamedTuple

from dual_attention import __version__

BIBTEX = f"""\
@misc{{altabaa2024disentangling,
    title = {{Disentangling and Integrating Relational and Sensory Information in Transformer Architectures}},
    author = {{Awni Altabaa and John Lafferty}},
    year = {{2024}},
    eprint = {{2405.16727}},
    archivePrefix = {{arXiv}},
    primaryClass = {{cs.LG}},
}}

@software{{relational_attention,
    title = {{relational-attention}},
    author = {{{{The relational-attention authors}}}},
    version = {{{__version__}}},
}}
"""
"""Entries of the paper and of this library, as in README.md and CITATION.cff, which no installed package has."""


class Commands(NamedTuple):
    """The command of a page, to which ``--view`` is added; empty where no command opens the model.

    Attributes:
        here: on this machine.
        elsewhere: in a file that others open, which names no folder of this machine.
    """

    here: str = ""
    elsewhere: str = ""


def commands_of(options: Any) -> Commands:
    """The commands of the options of ``dat explore`` on which it depends what a view shows."""
    given = []
    for name in ("example", "layers", "dictionary", "tokenizer", "experiment", "bits", "corpus", "beside"):
        if (value := getattr(options, name)) is not None:
            given += [f"--{name}", str(value)]
    here = ["dat", "explore", *([] if options.checkpoint is None else [options.checkpoint]), *given]
    return Commands(shlex.join(here), shlex.join(map(_without_folder, here)))


def _without_folder(part: str) -> str:
    """A path as its last part, also in FILE.py:CLASS; other arguments as they are."""
    file, separator, kind = part.partition(".py:")
    path = Path(file + separator.removesuffix(":"))
    return f"{path.resolve().name}{':' + kind if separator else ''}" if path.exists() else part
