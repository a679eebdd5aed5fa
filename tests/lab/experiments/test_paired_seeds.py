"""Arms of one seed are paired: they see the same examples in the same order, changed alike, and the same test sets."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dat.data.images.augmentation import AUGMENTATIONS
from dat.experiments import EXPERIMENTS
from dat.experiments.images.config import ImageSources
from dat.experiments.language.config import LanguageDataConfig
from dat.experiments.mathematics.config import QuestionsConfig
from dat.experiments.relational_games.grid import GridData
from dat.sweeps.grid import cells
from dat.training.experiment import Prepared
from dat.training.loop import Trainer
from tests.support.questions import write_official

IMAGES = {"sizes": (40,), "data": ImageSources(n_val=10, n_test=10, augmentation="shift")}
SMALL: dict[str, dict[str, Any]] = {
    "relational-games": {"tasks": ("same",), "sizes": (40,), "data": GridData(n_val=8, n_test=8, n_heldout=8)},
    "images": IMAGES,
}
"""Smallest grids; an experiment without one is tried with its default grid."""

PREPARED = [name for name in EXPERIMENTS if name != "babylm"]
"""Those with runs of their own: BabyLM's are of language modelling."""


def small_grid(name: str, folder: Path) -> Any:
    """An experiment and its smallest grid."""
    experiment: Any = EXPERIMENTS[name].load()
    options = dict(SMALL.get(name, {}))
    if name == "language":
        (folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 400)
        options = {"data": LanguageDataConfig(path=str(folder / "text.txt"), val_tokens=256), "steps": (4,)}
    if name == "mathematics":
        write_official(folder / "data", n=20, extrapolate=True)
        data = QuestionsConfig(n_train=30, n_val=6, n_test=6, n_answered=2, official_folder=str(folder / "data"))
        options = {"modules": ("algebra__linear_1d",), "epochs": (2,), "data": data}
    return experiment, experiment.Grid(**options, seeds=1, first_seed=3)


def tensors(values: Any) -> list[torch.Tensor]:
    return [torch.as_tensor(value) for value in values]


def same(first: Any, second: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(tensors(first), tensors(second), strict=True))


def seen(prepared: Prepared, config: Any) -> list[list[torch.Tensor]]:
    """The first batches of training, while the model takes its steps, which draw dropout."""
    trainer = Trainer(prepared.problem, config)
    batches, examples = [], prepared.problem.train
    spans = range(min(2, trainer.plan.spans))
    for indices in [indices for span in spans for indices in trainer.plan.batches(span)[:2]]:
        batches.append(tensors(examples.batch(indices)))
        trainer.train_step(indices)
    return batches


def arms(name: str, tmp_path: Path, **changes: Any) -> list[tuple[Any, Prepared]]:
    """Runs of the first two arms of a grid, with one seed."""
    experiment, grid = small_grid(name, tmp_path)
    curve = experiment.table.curve_axis.name
    chosen = {cell[curve]: cell for cell in reversed(cells(experiment, replace(grid, **changes)))}
    configs = [replace(grid, **changes).config(cell) for cell in list(chosen.values())[-2:]]
    configs = [replace(c, loop=replace(c.loop, batch_size=min(c.loop.batch_size, 16))) for c in configs]
    return [(config, experiment.prepare(config, cache=tmp_path)) for config in configs]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", PREPARED)
def test_arms_of_one_seed_see_the_same(name, tmp_path):
    (config, first), (other, second) = arms(name, tmp_path)
    assert config.model != other.model and config.seed == other.seed
    for one, two in zip(seen(first, config), seen(second, other), strict=True):
        assert same(one, two)
    assert first.problem.evaluation.keys() == second.problem.evaluation.keys()
    for held, examples in first.problem.evaluation.items():
        rows = torch.arange(len(examples))
        assert same(examples.batch(rows), second.problem.evaluation[held].batch(rows))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", PREPARED)
def test_seeds_differ(name, tmp_path):
    """What is paired is drawn from the seed: another seed has another order, or other examples."""
    (config, first), _ = arms(name, tmp_path)
    (again, second), _ = arms(name, tmp_path, first_seed=4)
    batches = zip(seen(first, config), seen(second, again), strict=True)
    assert not all(one[0].shape == two[0].shape and same(one, two) for one, two in batches)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("augmentation", [name for name in AUGMENTATIONS if name != "autoaugment"])
def test_augmentation_is_shared(augmentation, tmp_path):
    """AutoAugment is of colours; its draws are tested where they are made."""
    data = replace(IMAGES["data"], augmentation=augmentation)
    (config, first), (other, second) = arms("images", tmp_path, data=data)
    for one, two in zip(seen(first, config), seen(second, other), strict=True):
        assert same(one, two)
