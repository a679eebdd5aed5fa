"""The sub-commands of ``dat`` that take runs of every kind."""

from __future__ import annotations

from collections.abc import Sequence

from ..training.config_io import option_parser, parse_options
from ..training.configs import MachineConfig
from ..training.run_folder import RunFolder


def evaluate(prog: str, arguments: Sequence[str]) -> int:
    """``dat evaluate``."""
    from ..experiments.language import commands as language
    from ..experiments.relational_games import commands as relational_games

    parser = option_parser(
        prog=prog,
        description="Measure a trained model from its weights: of Relational Games on all object sets, of language on "
        "its validation text.",
    )
    parser.add_argument("run", metavar="RUN", help="Run folder of a finished run.")
    parser.add_argument("--json", action="store_true", help="Print the numbers as JSON instead of words or a table.")
    parser.add_class_arguments(MachineConfig, "machine")
    options = parse_options(parser, arguments)
    language_run = RunFolder.open(options.run).kind() == "language"
    measure = language.evaluate if language_run else relational_games.evaluate
    return measure(options.run, options.machine, as_json=options.json)
