"""Progressive matrices as an experiment: its runs, and what is told of them."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dat.experiments.stream import Stream
from dat.sweeps.experiment import Cost, SweptExperiment
from dat.sweeps.table import PERCENT, Axis, ResultTable
from dat.training.device import check_memory, prepare_device
from dat.training.experiment import Prepared, count_parameters
from dat.training.problem import Batch, Problem, TensorExamples, classification_loss
from studies.matrices.config import MatricesConfig, MatricesDataConfig, MatricesGrid
from studies.matrices.data import CONTEXT
from studies.matrices.model import PRESETS
from studies.matrices.sheet import MatricesSheet

SETS = {
    "test": "as in training",
    "values": "values never trained on",
    "pairs": "rules never trained on with these attributes",
    "noise": "more attributes of noise",
}
"""Test sets."""
SMALLER = MatricesDataConfig(attributes=4, values=8, ruled=2, more_noise=2, answers=4, held_out_values=2)
"""Matrices that models of the presets begin to learn in 1,000 steps."""


def matrices_loss(model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean cross-entropy of answers; the accuracy and, in evaluation mode, that of the untrained rule as ``rule``."""
    panels, labels, guesses = batch
    loss, numbers = classification_loss(model, (panels, labels))
    return loss, numbers if model.training else {**numbers, "rule": (guesses == labels).float().mean()}


class ProgressiveMatrices(SweptExperiment[MatricesConfig, Prepared]):
    """Matrices after Carpenter et al. 1990, RAVEN (arXiv 1903.02741) and PGM (1807.04225)."""

    name = "matrices"
    title = "progressive matrices"
    about: ClassVar = {
        "train": "Train one model to complete progressive matrices, in a new run folder. Without options: a DAT on "
        "vectors of codes, ten minutes.",
        "reproduce": "Accuracy of Transformers, DATs and nine other models in completing matrices, on values, on rules "
        "by attribute and with noise that they were not trained on. --scale tiny takes a minute; --dry_run says how "
        "long a grid takes here.",
        "data": "Draw a matrix of each set, with its answers; the right one is named.",
    }
    Config = MatricesConfig
    Sheet = MatricesSheet
    Grid = MatricesGrid
    presets = PRESETS
    scales: ClassVar = {
        "tiny": MatricesGrid(
            out="runs/matrices-tiny",
            seeds=1,
            forms=("numbers",),
            steps=(150,),
            models=("transformer", "dat", "corelnet"),
            data=replace(SMALLER, n_test=500),
        ),
        "study": MatricesGrid(out="runs/matrices-study", seeds=10, data=SMALLER),
    }
    table = ResultTable(
        metrics=("accuracy", "loss", "rule"),
        shares=("accuracy", "rule"),
        set_title="matrices",
        set_names={"val": "validation", **SETS},
        counted="matrices",
        axes=(
            Axis("form", "data.form", "panels", "forms"),
            Axis("model", "model.name", "model", "models", order=tuple(PRESETS)),
            Axis("training_steps", "loop.steps", "steps of training", "steps", number=True, prefix="steps"),
        ),
        **PERCENT,
        caption="Accuracy in percent after the last step",
        measures={name: f"accuracy: {words} (%)" for name, words in SETS.items()},
        tabled={f"{name}_rule": f"untrained rule: {words} (%)" for name, words in SETS.items()},
        provenance={"blind": None},
    )

    def headline(self, result: Mapping[str, Any]) -> str:
        blind = ", context hidden" if result.get("blind") else ""
        return f"matrices, {result['form']}{blind}: {result['model']}"

    def identity(self, config: MatricesConfig) -> dict[str, Any]:
        return {**super().identity(config), "blind": int(config.data.blind)}

    def empty_model(self, config: MatricesConfig) -> nn.Module:
        return config.model.empty(config.data.panel_shape)

    def cost(self, config: MatricesConfig) -> Cost:
        kind = torch.uint8 if config.data.form == "drawings" else torch.float32
        inputs = torch.zeros(1, CONTEXT + config.data.answers, *config.data.panel_shape, dtype=kind)
        return replace(super().cost(config), inputs=(inputs,))

    def prepare(self, config: MatricesConfig, *, cache: Path, run: Path | None = None) -> Prepared:
        data, device = config.data, prepare_device(config.machine)
        check_memory("model", "its weights", 4 * count_parameters(self.empty_model(config)), device)
        numbers = 4 * (CONTEXT + data.answers) * max(data.attributes * 8, *data.panel_shape)
        check_memory("data", "its matrices", numbers * (data.n_val + data.n_test * len(data.sets)))
        train = Stream(partial(config.draw, "train"), config.seed_of("train"), device)
        sets = {"val": config.draw("train", data.n_val, config.seed_of("val"))}
        for name in data.sets:
            words = "test" if name == "train" else name
            sets[words] = config.draw(name, data.n_test, config.seed_of(words))
        model = config.model.build(data.panel_shape, seed=config.seed).to(device)
        evaluation = {name: TensorExamples(*batch, device=device) for name, batch in sets.items()}
        return Prepared(Problem(model, train, matrices_loss, evaluation), device, chance=1 / data.answers)
