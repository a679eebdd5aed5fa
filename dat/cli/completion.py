"""``dat completion``: a script with which a shell completes commands, options and presets."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence

from ..experiments import EXPERIMENTS
from .main import Command, every_command
from .plain_parser import PlainParser

BEGIN = {
    "bash": "",
    "zsh": "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }\n"
    "autoload -Uz bashcompinit && bashcompinit\n",
}
"""What a shell needs before it can be told of completions: zsh its own, unless it has them, and bash's."""

SHELLS = tuple(BEGIN)

SCRIPT = """\
# Completion of dat; put it into effect by:  eval "$(dat completion {shell})"
{begin}_dat() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" found=""
    case "$COMP_CWORD ${{COMP_WORDS[1]}}" in
        "1 "*) found="{first}" ;;
{second}
        *)
            case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}} $before " in
{third}
            esac ;;
    esac
    COMPREPLY=($(compgen -W "$found" -- "$current"))
}}
complete -o default -F _dat dat
"""


def completion(prog: str, arguments: Sequence[str]) -> int:
    """``dat completion``."""
    parser = PlainParser(
        prog=prog,
        description="Print a script with which the shell completes commands, options and presets of dat. "
        f'Put it into effect by: eval "$({prog} bash)"',
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=" or ".join(SHELLS))
    print(script(parser.parse_args(list(arguments)).shell), end="")
    return 0


def script(shell: str) -> str:
    """The script for a shell. It holds all names, so that completing starts no Python."""
    commands = every_command()
    second: dict[str, list[str]] = {}
    for command in commands:
        for word in command.words[1:]:
            second.setdefault(command.words[0], []).append(word)
    third = [line for command in commands for line in _lines_of(command)]
    return SCRIPT.format(
        shell=shell,
        begin=BEGIN[shell],
        first=" ".join(sorted({command.words[0] for command in commands})),
        second="\n".join(_lines({f'"2 {word}"': names for word, names in second.items()}, " " * 8)),
        third="\n".join(third),
    )


def _lines_of(command: Command) -> list[str]:
    """Lines of the script for what may follow a command, the values of its options first."""
    begin = " ".join(command.words)
    found: dict[str, Iterable[str]] = {}
    options = options_of_command(command)
    if command.experiment is not None:
        experiment = EXPERIMENTS[command.experiment].load()
        named = {"--preset": experiment.presets, "--scale": getattr(experiment, "grids", {})}
        found = {f'"{begin} {option} "': names for option, names in named.items() if option in options}
    if command.words == ("completion",):
        options = [*SHELLS, *options]
    return _lines({**found, f'"{begin} "*': options}, " " * 16)


def _lines(choices: Mapping[str, Iterable[str]], indent: str) -> list[str]:
    return [f'{indent}{pattern}) found="{" ".join(names)}" ;;' for pattern, names in choices.items()]


def options_of_command(command: Command) -> list[str]:
    """The options that the help of a command lists; none if an extra that it needs is not installed."""
    if command.words == ("completion",):
        return ["--help"]
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit, ImportError):
        command.run(["--help"])
    lines = [line for line in text.getvalue().splitlines() if re.match(r"\s+-", line)]
    return list(dict.fromkeys(option for line in lines for option in re.findall(r"(?<![\w.-])--[\w.]+", line)))
