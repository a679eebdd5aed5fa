"""``dat evaluate``: the numbers of a trained model, measured again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dual_attention._files import json_text

from ..experiments import experiment_of_run
from ..experiments.files import run_given, takes_file
from ..training.config_io import build_parser, parse_config
from ..training.configs import MachineConfig
from ..training.run_folder import RunFolder
from ..training.runs import evaluate_run
from ..training.tables import show


@dataclass(frozen=True)
class EvaluateConfig:
    """Machine on which the model is measured."""

    machine: MachineConfig = field(default_factory=MachineConfig)
    """Device and threads."""


def evaluate(prog: str, arguments: Sequence[str]) -> int:
    """``dat evaluate``."""
    about = "Measure a trained model from its weights, on the evaluation sets of its experiment."
    parser = build_parser(EvaluateConfig, prog=prog, description=about)
    parser.usage = "%(prog)s RUN [--KEY VALUE ...]"
    parser.add_argument("run", metavar="RUN", help="Run folder of a finished run.")
    takes_file(parser)
    parser.add_argument("--json", action="store_true", help="Print the numbers as JSON instead of words or a table.")
    config, options = parse_config(parser, EvaluateConfig, arguments)
    run_given(options)
    folder = RunFolder.open(options.run)
    experiment = experiment_of_run(folder)
    numbers = evaluate_run(experiment, options.run, config.machine)
    if options.json:
        print(json_text(numbers, indent=2))
    else:
        show(experiment.describe(folder.read_result(), numbers))
    return 0
