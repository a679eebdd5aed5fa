"""The ``dat`` command: finds the sub-command that the first words name, and turns errors into one clear line.

Each sub-command is a file of this folder, imported only when it is run. Those of experiments follow from the registry
of experiments.
"""

import errno
import importlib
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dual_attention._base.words import suggestion

from .._errors import in_one_line
from .._processes import usable_streams
from .._terminal import at_words, tell
from ..experiments import EXPERIMENTS, MOVED, installed, is_file
from ..training.interrupt import EXIT_STATUS, Interrupted


@dataclass(frozen=True)
class Command:
    """A sub-command.

    Attributes:
        name: its first word, also that of its module in this package and of the function there, which takes the
            program's name, the remaining arguments and the experiment, if it is of one, and returns an exit status.
        arguments: what may follow, for the list of commands.
        summary: one line for the list of commands.
        experiment: the name of one, or its file, for a command of an experiment.
    """

    name: str
    arguments: str
    summary: str
    experiment: str | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """Words that the user types after ``dat``."""
        return (self.name,) if self.experiment is None else (self.name, shlex.quote(self.experiment))

    @property
    def usage(self) -> str:
        """The same, and what may follow."""
        return " ".join((*self.words, self.arguments)).strip()

    def run(self, arguments: Sequence[str]) -> int:
        """Import the function and call it."""
        function = getattr(importlib.import_module(f"{__package__}.{self.name}"), self.name)
        prog = " ".join(("dat", *self.words))
        return function(prog, arguments) if self.experiment is None else function(prog, arguments, self.experiment)


FIXED = (
    Command(
        "compare",
        "DATA [--target COLUMN] ...",
        "models on a table, pictures or texts of yours, with intervals and a figure",
    ),
    Command("evaluate", "CHECKPOINT [--text FILE]", "accuracies, or perplexity, of a trained model"),
    Command("generate", "CHECKPOINT PROMPT", "let a language model continue a text"),
    Command("predict", "NAME [INPUT]", "the answer to one input, and the relations that made it"),
    Command("explore", "[CHECKPOINT]", "see relations, attention and symbols in a browser"),
    Command("info", "CHECKPOINT", "configuration, parameters and memory of a model"),
    Command(
        "estimate", "MODEL [--KEY VALUE ...]", "parameters, arithmetic, memory and time of a model, without running it"
    ),
    Command("export", "CHECKPOINT --out FOLDER", "a model, and what makes its inputs, for transformers or the hub"),
)
"""Commands that are not of one experiment."""

OF_EXPERIMENTS = {
    "train": ("[--KEY VALUE ...]", "one model, in a run folder"),
    "reproduce": ("[--KEY VALUE ...]", "many runs in parallel, resumable: the paper's tables and figures, or yours"),
    "plot": ("SOURCE ... --out FOLDER", "figures and tables from results"),
    "data": ("--out FILE ...", "what an experiment can show or make of its data"),
}
"""Commands of experiments: what may follow the name, and the summary for the list of commands."""


def every_command(*, others: bool = True) -> tuple[Command, ...]:
    """All sub-commands, in the order of the list.

    Args:
        others: whether those of installed packages are among them, which takes a moment to find out.
    """
    known = {**EXPERIMENTS, **(installed() if others else {})}

    def of_experiments(*words: str) -> list[Command]:
        return [
            Command(word, OF_EXPERIMENTS[word][0], entry.summaries.get(word, OF_EXPERIMENTS[word][1]), experiment=name)
            for word in words
            for name, entry in known.items()
            if ("reproduce" if word == "plot" else word) in entry.summaries
        ]

    demo = Command("demo", "", "watch a DAT learn a relation from fewer examples than a Transformer")
    return (demo, *of_experiments("train"), *FIXED, *of_experiments("reproduce", "plot", "data"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``dat`` with ``arguments`` (default: those of the process); returns the exit status."""
    usable_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = os.environ.get("DAT_DEBUG", "") not in ("", "0")
    if "--debug" in words:
        words.remove("--debug")
        debug = True
    try:
        status = dispatch(joined(words))
        sys.stdout.flush()  # what it cannot take is told here, not when the interpreter ends
        return status
    except (KeyboardInterrupt, Interrupted) as stop:
        tell(f"interrupted; {stop}" if str(stop) else "interrupted")
        return stop.status if isinstance(stop, Interrupted) else EXIT_STATUS
    except BrokenPipeError:
        discard_output()
        return 1
    except Exception as error:
        if debug:
            raise
        if isinstance(error, OSError) and output_is_full(error):
            error = OSError(error.errno, error.strerror, "standard output")
            discard_output()
        tell(f"error: {in_one_line(error)}")
        return 2


def output_is_full(error: OSError) -> bool:
    """Whether standard output has no room: an error without a file says so, and a further line break fails, too."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT) or error.filename is not None:
        return False
    try:
        print(flush=True)
    except OSError:
        return True
    return False


def discard_output() -> None:
    """Let what was not written to standard output go, and what still comes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


NEGATIVE = re.compile(r"-(\.?(inf|infinity|nan)|[\d.]+e[+-]?\d+)", re.IGNORECASE)
"""Numbers that argparse does not know as such."""


def joined(words: Sequence[str]) -> list[str]:
    """``--key -inf`` and ``--key -1e-3`` as one word, since argparse takes such a value for an option."""
    found: list[str] = []
    for word in words:
        option = found[-1] if found else ""
        if NEGATIVE.fullmatch(word) and option.startswith("--") and "=" not in option:
            found[-1] = f"{option}={word}"
        else:
            found.append(word)
    return found


def dispatch(words: list[str]) -> int:
    """Run the command that ``words`` begin with."""
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if not words or words[0] in ("-h", "--help"):
        print(contents(every_command()))
        return 0
    if words[0] in ("--version", "-v", "-V"):
        from dual_attention import __version__

        print(f"relational-attention {__version__}")
        return 0
    if len(words) > 1 and words[0] in OF_EXPERIMENTS and not_built_in(words[1]):
        return Command(words[0], "", "", experiment=words[1]).run(words[2:])
    for command in every_command(others=False):
        n = len(command.words)
        if tuple(words[:n]) == command.words:
            return command.run(words[n:])
    return unknown(words)


def not_built_in(name: str) -> bool:
    """Whether an experiment's name is one of a file or of an installed package."""
    return is_file(name) or (name not in EXPERIMENTS and (name in MOVED or name in installed()))


def unknown(words: list[str]) -> int:
    """List the commands that begin alike, if the words ask for help; raise the error for words that name no command."""
    commands = every_command()
    beginning = [command for command in commands if command.words[0] == words[0]]
    if beginning and words[1:2] in (["-h"], ["--help"]):
        print(_listed({"": [(command.usage, command.summary) for command in beginning]}))
        return 0
    if beginning and (len(words) == 1 or words[1].startswith("-")):
        names = f"{_alternatives(c.words[1] for c in beginning)} or FILE.py"
        raise ValueError(f"dat {words[0]}: expected {names} next; see dat --help")
    choices = sorted({c.words[1] for c in beginning}) if beginning else sorted({c.words[0] for c in commands})
    wrong = words[1] if beginning else words[0]
    hint = suggestion(wrong, choices) or "; see dat --help"
    if words[0] in ("train", "reproduce") and Path(wrong).exists():
        hint = f"; for a table, pictures or texts of your own: dat compare {shlex.quote(wrong)}"
    file = " or FILE.py" if beginning else ""
    kind = "experiment" if beginning else "command"
    raise ValueError(f"unknown {kind} {wrong!r}: expected {_alternatives(choices)}{file}{hint}")


def _alternatives(names: Iterable[str]) -> str:
    return " or ".join(sorted(set(names)))


OPTIONS = """\
  dat COMMAND --help   every option of a command
  FILE.py              an experiment of your own, in place of EXPERIMENT
  dat --version        version of the library
  --debug              show where an error comes from (also DAT_DEBUG=1)"""


def contents(commands: Sequence[Command]) -> str:
    """The list of all commands, and of all experiments: each once, those that train no model of their own last."""
    rows: dict[str, str] = {}
    experiments: dict[str, dict[str, str]] = {}
    for command in commands:
        if command.experiment is None:
            rows[command.usage] = command.summary
        else:
            word, name = command.words
            arguments, summary = OF_EXPERIMENTS[word]
            rows[f"{word} EXPERIMENT {arguments}"] = summary
            experiments.setdefault(name, {})[word] = command.summary
    lists: dict[str, list[tuple[str, str]]] = {"": [*rows.items()], "EXPERIMENT is one of": [], "more": []}
    for name, summaries in experiments.items():
        lists["EXPERIMENT is one of" if "train" in summaries else "more"].append((name, next(iter(summaries.values()))))
    return _listed(lists)


def _listed(lists: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    """Rows under their titles."""
    width = max(len(left) for rows in lists.values() for left, _ in rows)
    lines = [
        "usage: dat COMMAND [OPTION ...]",
        "",
        "Dual Attention Transformers: relational attention beside self-attention.",
        "",
    ]
    for title, rows in lists.items():
        shown = [at_words(f"  {left:{width}}  {right}", sys.stdout, indent=width + 4) for left, right in rows]
        lines += [*([f"{title}:"] if title and rows else []), *shown, *([""] if rows else [])]
    return at_words("\n".join([*lines, OPTIONS]), sys.stdout, indent=23)
