"""Measuring a trained model on every object set, and showing the numbers as a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ..._extras import require
from ...training.checkpoint import load_weights
from ...training.config_io import read_config
from ...training.configs import MachineConfig
from ...training.loop import evaluate
from ...training.problem import classification_loss
from ...training.run_folder import RunFolder
from .config import RelationalGamesConfig
from .problem import build_problem

SET_NAMES = {
    "val": "pentominoes, validation",
    "test": "pentominoes, test",
    "hexominoes": "hexominoes, never trained on",
    "stripes": "stripes, never trained on",
}
"""What tables call the evaluation sets."""


def evaluate_run(path: str | Path, machine: MachineConfig | None = None) -> dict[str, dict[str, float]]:
    """Loss, accuracy and number of images of a finished run for each evaluation set, computed from its weights.

    The images are made again from the run's seed, so they are those that training kept apart.

    Raises:
        FileNotFoundError: if there is no run or it is not finished.
    """
    folder = RunFolder.open(path)
    folder.read_result()
    config = read_config(RelationalGamesConfig, folder.config)
    if machine is not None:
        config = replace(config, machine=machine)
    problem, _ = build_problem(config)
    load_weights(problem.model, folder.weights)
    results = {}
    for name, examples in problem.evaluation.items():
        means = evaluate(problem.model, examples, classification_loss, batch_size=config.loop.eval_batch_size)
        results[name] = {**means, "images": len(examples)}
    return results


def accuracy_table(results: dict[str, dict[str, float]], title: str) -> Any:
    """A rich table of :func:`evaluate_run`'s numbers; the number of images is shown if it is given for every set."""
    table = require("rich.table", extra="train").Table(title=title, title_justify="left")
    table.add_column("objects")
    counted = all("images" in numbers for numbers in results.values())
    for column in ("accuracy", "loss", *(("images",) if counted else ())):
        table.add_column(column, justify="right")
    for name, numbers in results.items():
        images = (f"{numbers['images']:,.0f}",) if counted else ()
        accuracy, loss = f"{100 * numbers['accuracy']:.1f} %", f"{numbers['loss']:.3f}"
        table.add_row(SET_NAMES.get(name, name), accuracy, loss, *images)
    return table
