"""The experiments by name: built-in ones, those of installed packages, and those in the user's own files.

Listing them imports none; :func:`experiment_named` does.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dual_attention._base.words import suggestion

from .._own_code import FILE

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from ..training.experiment import AnyExperiment
    from ..training.run_folder import RunFolder

ENTRY_POINTS = "dat.experiments"
"""Group of entry points by which an installed package brings experiments: ``NAME = "module:class"``."""


@dataclass(frozen=True)
class Entry:
    """An experiment in the registry.

    Attributes:
        name: on the command line and in configurations.
        target: ``module:class`` of the :class:`~dat.training.experiment.Experiment`.
        summaries: for each command of ``dat`` that the experiment has (train, reproduce, data), a line for the list of
            commands; what reproduces, plots.
    """

    name: str
    target: str
    summaries: Mapping[str, str]

    def load(self) -> AnyExperiment:
        """Import the experiment."""
        module, _, name = self.target.partition(":")
        return getattr(importlib.import_module(module), name)()


EXPERIMENTS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "relational-games",
            f"{__name__}.relational_games.experiment:RelationalGames",
            {
                "train": "train one model in a run folder",
                "reproduce": "the paper's learning curves: many runs in parallel, resumable",
                "data": "a contact sheet of example images",
            },
        ),
        Entry(
            "language",
            f"{__name__}.language.experiment:LanguageModelling",
            {
                "train": "train a language model on your text",
                "reproduce": "perplexity of small language models by length of training",
                "data": "one clean file of text from folders of unpacked packages",
            },
        ),
        Entry(
            "babylm",
            f"{__name__}.language.babylm:BabyLM",
            {"reproduce": "BabyLM's two models beside a Transformer, in sizes for a laptop"},
        ),
        Entry(
            "images",
            f"{__name__}.images.experiment:ImageClassification",
            {
                "train": "train a Vision Transformer or ViDAT on digits, CIFAR, or pictures of yours",
                "reproduce": "accuracy on images beside the paper's tables",
            },
        ),
        Entry(
            "mathematics",
            f"{__name__}.mathematics.experiment:Mathematics",
            {
                "train": "train an encoder-decoder model to answer questions",
                "reproduce": "accuracy of answers to generated questions, or the paper's grid",
            },
        ),
        Entry(
            "recall",
            f"{__name__}.sequences.experiment:Recall",
            {
                "train": "train one causal model to copy, to recall or to track a state",
                "reproduce": "recall, copying and state tracking, and the step at which they are learned",
            },
        ),
        Entry(
            "length",
            f"{__name__}.sequences.experiment:Length",
            {
                "train": "train one causal model to sort or to solve equations",
                "reproduce": "accuracy on lengths that were not trained on",
            },
        ),
    )
}
"""The built-in experiments, in the order of lists."""

MOVED = {"theorem-1": "studies/theorem_1/experiment.py", "digit-games": "studies/digit_games/experiment.py"}
"""Files of the repository that hold experiments which were built in once, by the names that old runs have for them."""


def is_file(name: str) -> bool:
    """Whether a name is one of an experiment in a file."""
    return FILE.fullmatch(name) is not None


def installed() -> dict[str, Entry]:
    """The experiments of installed packages; a built-in name stays ours."""
    from importlib.metadata import entry_points  # slow to import, and seldom needed

    return {
        point.name: Entry(point.name, point.value, dict.fromkeys(("train", "reproduce"), _origin(point)))
        for point in entry_points(group=ENTRY_POINTS)
        if point.name not in EXPERIMENTS
    }


def _origin(point: EntryPoint) -> str:
    return f"of the package {point.dist.name}" if point.dist else f"of {point.value.partition(':')[0]}"


def experiment_named(name: str) -> AnyExperiment:
    """The experiment of that name: a built-in or installed one, or ``FILE.py`` or ``FILE.py:CLASS``, which is run.

    So the name must be one that the user gave, not one that a configuration did: see :func:`experiment_of`.
    """
    from . import files  # torch is imported with it; the list of commands needs none

    if is_file(name):
        return files.load(name)
    if name in EXPERIMENTS:
        return EXPERIMENTS[name].load()
    others = installed()
    if name in others:
        return others[name].load()
    if name in MOVED:
        raise ValueError(f"experiment: {name} is the file {MOVED[name]} of the repository now; name that")
    known = (*EXPERIMENTS, *others)
    hint = suggestion(str(name), known)
    raise ValueError(f"experiment: expected one of {', '.join(known)} or FILE.py, got {name!r}{hint}")


def name_in(values: Mapping[str, Any], source: object) -> str:
    """The experiment's name in a configuration: its key ``experiment``, or what other keys of older ones say.

    Args:
        source: of the configuration, for errors.
    """
    name = values.get("experiment")
    if name is not None:
        return str(name)
    if "task" in values:
        return "relational-games"
    if isinstance(values.get("model"), Mapping):
        return "language"
    raise ValueError(f"{source}: not the configuration of a run")


def experiment_of(values: Mapping[str, Any], source: object) -> AnyExperiment:
    """The experiment that a configuration is of. A file that it names is not run: the user has to name it, too."""
    from . import files

    name = name_in(values, source)
    if name not in EXPERIMENTS:
        if (experiment := files.named(name)) is not None:
            return experiment
        if is_file(name):
            raise ValueError(files.refusal(name, source))
        if name in MOVED:
            raise ValueError(
                f"{source}: of the experiment {name}, a file of the repository: --experiment {MOVED[name]}"
            )
    try:
        return experiment_named(name)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def experiment_of_run(folder: RunFolder) -> AnyExperiment:
    """The experiment of a run folder; errors as :func:`experiment_of`."""
    return experiment_of(folder.read_values(), folder.config)
