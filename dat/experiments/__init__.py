"""The experiments by name. Listing them imports none; :meth:`Entry.load` does."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dual_attention._words import suggestion

if TYPE_CHECKING:
    from ..training.experiment import AnyExperiment
    from ..training.run_folder import RunFolder


@dataclass(frozen=True)
class Entry:
    """An experiment in the registry.

    Attributes:
        target: ``module:class`` of the :class:`~dat.training.experiment.Experiment`.
        evaluated: what ``dat evaluate`` measures, for its help.
        summaries: for each command of ``dat`` that the experiment has (train, reproduce, plot, data), a line for the
            list of commands.
    """

    target: str
    evaluated: str
    summaries: Mapping[str, str]

    def load(self) -> AnyExperiment:
        """Import the experiment."""
        module, _, name = self.target.partition(":")
        return getattr(importlib.import_module(module), name)()


EXPERIMENTS: dict[str, Entry] = {
    "relational-games": Entry(
        f"{__name__}.relational_games.experiment:RelationalGames",
        "of Relational Games on all object sets",
        {
            "train": "train one model in a run folder",
            "reproduce": "the paper's learning curves: many runs in parallel, resumable",
            "plot": "learning curves from the results of several grids",
            "data": "a contact sheet of example images",
        },
    ),
    "language": Entry(
        f"{__name__}.language.experiment:LanguageModelling",
        "of language on its validation text",
        {
            "train": "train a language model on your text",
            "reproduce": "perplexity of small language models by length of training",
            "plot": "curves of perplexity from the results of several grids",
            "data": "one clean file of text from folders of unpacked packages",
        },
    ),
    "images": Entry(
        f"{__name__}.images.experiment:ImageClassification",
        "of images on those kept apart",
        {
            "train": "train a Vision Transformer or ViDAT on CIFAR or on handwritten digits",
            "reproduce": "accuracy on images beside the paper's tables",
            "plot": "accuracy from the results of several grids",
        },
    ),
    "mathematics": Entry(
        f"{__name__}.mathematics.experiment:Mathematics",
        "of answers on questions within and beyond training",
        {
            "train": "train an encoder-decoder model to answer questions",
            "reproduce": "accuracy of answers to generated questions, or the paper's grid",
            "plot": "accuracy from the results of several grids",
        },
    ),
    "digit-games": Entry(
        f"{__name__}.digit_games.experiment:DigitGames",
        "of Relational Games with handwritten digits on new hands and new classes",
        {
            "train": "train one model on a relation between handwritten digits",
            "reproduce": "accuracy between digits of classes trained on, and of others",
            "plot": "learning curves from the results of several grids",
            "data": "a contact sheet of example images",
        },
    ),
    "recall": Entry(
        f"{__name__}.recall.experiment:Recall",
        "of recall, copying and state tracking on new sequences",
        {
            "train": "train one causal model to copy, to recall or to track a state",
            "reproduce": "recall, copying and state tracking, and the step at which they are learned",
            "plot": "table and figure from the results of several grids",
        },
    ),
    "length": Entry(
        f"{__name__}.length.experiment:Length",
        "of sorting and equations by length",
        {
            "train": "train one causal model to sort or to solve equations",
            "reproduce": "accuracy on lengths that were not trained on",
            "plot": "table and figure from the results of several grids",
        },
    ),
    "theorem-1": Entry(
        f"{__name__}.theorem_1.experiment:Theorem1",
        "of selected relations on new draws",
        {
            "train": "train one attention to select an object and relate to it",
            "reproduce": "Theorem 1: error against width and temperature",
            "plot": "its figure from the results of several grids",
        },
    ),
}
"""Every experiment, in the order of lists."""


def experiment_named(name: str) -> AnyExperiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        hint = suggestion(str(name), EXPERIMENTS)
        raise ValueError(f"experiment: expected one of {', '.join(EXPERIMENTS)}, got {name!r}{hint}")
    return EXPERIMENTS[name].load()


def experiment_of(values: Mapping[str, Any], source: object) -> AnyExperiment:
    """The experiment that a configuration is of, by its key ``experiment``, or for older ones by their other keys.

    Args:
        source: of the configuration, for errors.
    """
    name = values.get("experiment")
    if name is None:  # older runs have no such key
        if "task" in values:
            name = "relational-games"
        elif isinstance(values.get("model"), Mapping):
            name = "language"
        else:
            raise ValueError(f"{source}: not the configuration of a run")
    try:
        return experiment_named(name)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def experiment_of_run(folder: RunFolder) -> AnyExperiment:
    """The experiment of a run folder; errors as :func:`experiment_of`."""
    return experiment_of(folder.read_values(), folder.config)
