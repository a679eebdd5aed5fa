"""The ``dat`` command: finds the sub-command that the first words name, and turns errors into one clear line.

Each sub-command lies where its subject lies and is imported only when it is run.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A sub-command.

    Attributes:
        words: what the user types after ``dat``.
        arguments: what may follow, for the list of commands.
        target: ``module:function``; the function takes the program's name and the remaining arguments and returns an
            exit status.
        summary: one line for the list of commands.
    """

    words: tuple[str, ...]
    arguments: str
    target: str
    summary: str

    def load(self) -> Callable[[str, Sequence[str]], int]:
        """Import and return the function."""
        module, _, name = self.target.partition(":")
        return getattr(importlib.import_module(module), name)


_TRAINING = "dual_attention.cli.evaluate"
_LANGUAGE = "dual_attention.experiments.language.commands"
_COMMANDS = "dual_attention.cli"
_GAMES = "dual_attention.experiments.relational_games.commands"

COMMANDS = (
    Command(("demo",), "", f"{_GAMES}:demo", "watch a DAT learn a relation from fewer examples than a Transformer"),
    Command(("train", "relational-games"), "[--KEY VALUE ...]", f"{_GAMES}:train", "train one model in a run folder"),
    Command(("train", "language"), "[--KEY VALUE ...]", f"{_LANGUAGE}:train", "train a language model on your text"),
    Command(("evaluate",), "RUN", f"{_TRAINING}:evaluate", "accuracies, or perplexity, of a trained model"),
    Command(
        ("generate",),
        "CHECKPOINT PROMPT",
        f"{_COMMANDS}.generate:generate",
        "let a language model continue a text",
    ),
    Command(("info",), "CHECKPOINT", f"{_COMMANDS}.info:info", "configuration, parameters and memory of a model"),
    Command(
        ("reproduce", "relational-games"),
        "[--KEY VALUE ...]",
        f"{_GAMES}:reproduce",
        "the paper's learning curves: many runs in parallel, resumable",
    ),
    Command(
        ("plot", "relational-games"),
        "SOURCE ... --out FOLDER",
        f"{_GAMES}:plot",
        "learning curves from the results of several grids",
    ),
    Command(
        ("estimate",),
        "MODEL [--KEY VALUE ...]",
        f"{_COMMANDS}.estimate:estimate",
        "parameters, arithmetic, memory and time of a model, without running it",
    ),
    Command(("data", "relational-games"), "--out PNG", f"{_GAMES}:data", "a contact sheet of example images"),
)

EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``dat`` with ``arguments`` (default: those of the process); returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = os.environ.get("DAT_DEBUG", "") not in ("", "0")
    if "--debug" in words:
        words.remove("--debug")
        debug = True
    try:
        return dispatch(words)
    except KeyboardInterrupt:
        print("dat: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if debug:
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        ours = type(error).__module__.startswith("dual_attention.")
        if not ours and not isinstance(error, (ValueError, TypeError, OSError, ImportError)):
            message += f" ({type(error).__name__}; DAT_DEBUG=1 shows where)"
        print(f"dat: error: {message}", file=sys.stderr)
        return 2


def dispatch(words: list[str]) -> int:
    """Run the command that ``words`` begin with."""
    if not words or words[0] in ("-h", "--help"):
        print(overview(COMMANDS))
        return 0
    if words[0] == "--version":
        from .. import __version__

        print(f"dual-attention {__version__}")
        return 0
    for command in COMMANDS:
        n = len(command.words)
        if tuple(words[:n]) == command.words:
            return command.load()(" ".join(("dat", *command.words)), words[n:])
    return unknown(words)


def unknown(words: list[str]) -> int:
    """The answer to words that name no command: the commands that begin alike, or an error."""
    beginning = [command for command in COMMANDS if command.words[0] == words[0]]
    if beginning and (len(words) == 1 or words[1] in ("-h", "--help")):
        print(overview(beginning))
        return 0
    choices = sorted({c.words[1] for c in beginning}) if beginning else sorted({c.words[0] for c in COMMANDS})
    wrong = words[1] if beginning else words[0]
    raise ValueError(f"unknown command {wrong!r}: expected {' or '.join(choices)}; see dat --help")


def overview(commands: Sequence[Command]) -> str:
    """The list of commands."""
    rows = [(" ".join((*command.words, command.arguments)).strip(), command.summary) for command in commands]
    width = max(len(left) for left, _ in rows)
    lines = [
        "usage: dat COMMAND [OPTION ...]",
        "",
        "Dual Attention Transformers: relational attention beside self-attention.",
        "",
        *(f"  {left:{width}}  {right}" for left, right in rows),
        "",
        "  dat COMMAND --help   every option of a command",
        "  dat --version        version of the library",
        "  --debug              show where an error comes from (also DAT_DEBUG=1)",
    ]
    return "\n".join(lines)
