"""``dat completion``: a script with which a shell completes commands, options and presets."""

import contextlib
import io
from collections.abc import Iterable, Mapping, Sequence

from ..experiments import experiment_named
from ..training.config_io import LIST_OPTIONS, option_parser, parse_options
from .main import Command, every_command

BEGIN = {
    "bash": "",
    "zsh": "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }\n"
    "autoload -Uz bashcompinit && bashcompinit\n",
}
"""Lines that a shell needs before it takes completions: zsh its own, unless it has them, and bash's."""

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
    parser = option_parser(
        prog=prog,
        description="Print a script with which the shell completes commands, options and presets of dat. "
        f'Put it into effect by: eval "$({prog} bash)"',
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=" or ".join(SHELLS))
    print(script(parse_options(parser, arguments).shell), end="")
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
        experiment = experiment_named(command.experiment)
        named = {"--preset": experiment.presets, "--scale": getattr(experiment, "scales", {})}
        found = {f'"{begin} {option} "': names for option, names in named.items() if option in options}
    if command.words == ("completion",):
        options = [*SHELLS, *options]
    return _lines({**found, f'"{begin} "*': options}, " " * 16)


def _lines(choices: Mapping[str, Iterable[str]], indent: str) -> list[str]:
    return [f'{indent}{pattern}) found="{" ".join(names)}" ;;' for pattern, names in choices.items()]


def options_of_command(command: Command) -> list[str]:
    """The options of a command; none if an extra that it needs is not installed."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit, ImportError):
        command.run([LIST_OPTIONS])
    return text.getvalue().split()
