"""Measuring a trained language model on its validation text."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

from ...training.checkpoint import load_weights
from ...training.config_io import read_config
from ...training.configs import MachineConfig
from ...training.loop import evaluate
from ...training.run_folder import RunFolder
from .config import LanguageConfig
from .problem import bits_per_byte, perplexity
from .train import matmul_precision, reopen


def evaluate_run(path: str | Path, machine: MachineConfig | None = None) -> dict[str, dict[str, float | None]]:
    """Loss, perplexity, bits per byte and number of tokens of a finished run's validation text, from its weights.

    Raises:
        FileNotFoundError: if there is no run or it is not finished.
        ValueError: if it is a run of something else, or its text has changed.
    """
    folder = RunFolder.open(path)
    folder.read_result()
    config = read_config(LanguageConfig, folder.config)
    if machine is not None:
        given = {field.name: getattr(machine, field.name) for field in fields(machine)}
        config = replace(config, machine=replace(config.machine, **given))
    config, prepared = reopen(folder, config)
    problem = prepared.problem
    load_weights(problem.model, folder.weights)
    with matmul_precision(config, prepared.device):
        means = evaluate(problem.model, prepared.data.val, problem.loss, batch_size=config.loop.eval_batch_size)
    loss = means["loss"]
    numbers = {"loss": loss, "perplexity": perplexity(loss), "bits_per_byte": bits_per_byte(loss, prepared.data)}
    return {"val": {**numbers, "tokens": len(prepared.data.val) * prepared.data.val.length}}
