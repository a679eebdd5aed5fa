"""Base of the experiments on synthetic sequence tasks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from torch import nn

from ..data.sequences import Sequences
from ..sweeps.durations import EVALUATION_SHARE
from ..sweeps.experiment import SweptExperiment
from ..training.configs import RunConfig, StepLoopConfig
from ..training.device import check_memory, prepare_device
from ..training.experiment import Prepared, count_parameters
from ..training.loop import Trainer
from ..training.problem import Problem, TensorExamples
from ..training.seeding import derive_seed
from .sequence_model import SequenceModelKeys
from .sequence_problem import HEAD_SCORES, best_heads, count_scored, count_sources, sequence_loss
from .stream import Stream

TOKENS_OF_WORK = 32
"""Tokens of a sequence that is one unit of work; a longer one takes time in proportion, about."""


class SequenceRunConfig(RunConfig, Protocol):
    """Keys of a run on a sequence task."""

    @property
    def model(self) -> SequenceModelKeys: ...
    @property
    def loop(self) -> StepLoopConfig: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def length(self) -> int: ...  # of the longest sequence
    @property
    def trained_length(self) -> int: ...  # of those trained on
    @property
    def sizes(self) -> Mapping[str, int]: ...  # of the evaluation sets, "val" first


Config = TypeVar("Config", bound=SequenceRunConfig)


class SequenceExperiment(SweptExperiment[Config, Prepared]):
    """An experiment that trains a causal model on a stream of sequences. A subclass draws them."""

    metrics = ("accuracy", "whole", "loss", *HEAD_SCORES)
    shares = ("accuracy", "whole")
    set_title = "evaluated on"
    set_names: ClassVar[Mapping[str, str]] = {"val": "validation"}
    counted = "sequences"

    @abstractmethod
    def draw(self, config: Config, name: str, n: int, seed: int) -> Sequences:
        """Draw n sequences to train on (``"train"``) or of an evaluation set; they depend on the arguments only."""

    def prepare(self, config: Config, *, cache: Path, run: Path | None = None) -> Prepared:
        device = prepare_device(config.machine)
        check_memory("model", "its weights", 4 * count_parameters(self.empty_model(config)), device)
        check_memory("data", "its sequences", 3 * 8 * config.length * sum(config.sizes.values()))
        train = Stream(lambda n, seed: self.draw(config, "train", n, seed), derive_seed(config.seed, "train"), device)
        sets = {
            name: TensorExamples(*self.draw(config, name, n, derive_seed(config.seed, name)), device=device)
            for name, n in config.sizes.items()
        }
        model = config.model.build(config.vocab_size, seed=config.seed).to(device)
        problem = Problem(
            model=model,
            train=train,
            loss=sequence_loss,
            evaluation=sets,
            derive=best_heads,
            weigh=count_scored,
            metric_weights={"matching": count_sources},
        )
        return Prepared(problem, device)

    def empty_model(self, config: Config) -> nn.Module:
        return config.model.empty(config.vocab_size)

    def by_metric(self, problem: Problem, means: Mapping[str, float]) -> dict[str, Any]:
        return self._by_metric(tuple(problem.evaluation), means)

    def _by_metric(self, sets: Sequence[str], means: Mapping[str, float]) -> dict[str, dict[str, float]]:
        """The metrics that all of these sets have."""
        found = {**means, **best_heads(means)}
        known = [metric for metric in self.metrics if all(f"{name}_{metric}" in found for name in sets)]
        return {metric: {name: found[f"{name}_{metric}"] for name in sets} for metric in known}

    def evaluation(self, prepared: Prepared, name: str, means: dict[str, float]) -> dict[str, Any]:
        found = self._by_metric([name], {f"{name}_{metric}": value for metric, value in means.items()})
        own = {metric: values[name] for metric, values in found.items()}
        return {**own, self.counted: len(prepared.problem.evaluation[name])}

    def summary(
        self, config: Config, prepared: Prepared, trainer: Trainer, final: Mapping[str, float]
    ) -> dict[str, Any]:
        trained = sum(p.numel() for p in prepared.problem.model.parameters() if p.requires_grad)
        return {**super().summary(config, prepared, trainer, final), "trained_parameters": trained}

    def work(self, config: Config) -> float:
        loop, sizes = config.loop, config.sizes
        looks = loop.steps // loop.eval_every if loop.eval_every else 0
        # A sequence that is evaluated is passed twice, the second time to see where heads look.
        evaluated = 2 * EVALUATION_SHARE * (looks * sizes["val"] + sum(sizes.values()))
        trained = loop.steps * loop.batch_size * self.example_work(config)
        return trained + evaluated * config.length / TOKENS_OF_WORK

    def example_work(self, config: Config) -> float:
        return config.trained_length / TOKENS_OF_WORK

    def timing_problem(self, config: Config) -> Problem:
        tokens = torch.zeros(config.loop.batch_size, config.trained_length, dtype=torch.int64)
        model = config.model.build(config.vocab_size, seed=0)
        return Problem(model, TensorExamples(tokens, tokens, tokens), sequence_loss)

    def example_call(self, config: Config) -> dict[str, Any]:
        """The length of the sequences trained on, of which a model's context may be a multiple."""
        return {"length": config.trained_length}
