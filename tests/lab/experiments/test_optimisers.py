"""Muon and muP in the experiments' configurations: a step of each, and clear words where they do not go."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from dat.experiments import EXPERIMENTS
from dat.experiments.base_width import scaled_from_base
from dat.experiments.relational_games.presets import PRESETS as GAMES
from dat.sweeps.durations import timing_problem
from dat.sweeps.experiment import swept
from dat.training.loop import Trainer
from examples.my_experiment import Sums, SumsConfig
from tests.support.refusals import refused

WIDTHS = {"language": 32, "mathematics": 16, "images": 32, "relational-games": 32}
"""A base width for each experiment's default model, of a half to a quarter of its own."""


def config_of(name: str, **optim: Any) -> Any:
    config = EXPERIMENTS[name].load().Config()
    changed = replace(config.optim, **optim)
    return replace(config, optim=changed, loop=replace(config.loop, batch_size=2))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("name", WIDTHS)
def test_a_step_with_rates_from_the_base_width(name, optimizer):
    experiment = swept(EXPERIMENTS[name].load())
    config = config_of(name, optimizer=optimizer, mup_base_width=WIDTHS[name])
    problem = timing_problem(experiment, config)
    trainer = Trainer(problem, config)
    scales = {group["lr_scale"] for group in trainer.optimizer.param_groups}
    assert 1.0 in scales and min(scales) < 1
    before = [parameter.detach().clone() for parameter in problem.model.parameters() if parameter.requires_grad]
    trainer.train_step(torch.arange(2))
    after = [parameter for parameter in problem.model.parameters() if parameter.requires_grad]
    assert any(not torch.equal(*pair) for pair in zip(before, after, strict=True))


@pytest.mark.parametrize("name", WIDTHS)
def test_the_base_model_is_the_same_model(name):
    model = EXPERIMENTS[name].load().Config().model
    base = model.at_width(WIDTHS[name])
    assert (base.d_model, base.n_heads_ra, base.n_relations) == (WIDTHS[name], model.n_heads_ra, model.n_relations)
    assert base.at_width(model.d_model) == model


SUMS, MUP = SumsConfig(), config_of("relational-games", mup_base_width=32)

test_muon_and_mup_are_refused_where_they_mean_nothing = refused(
    (Sums(), replace(SUMS, optim=replace(SUMS.optim, optimizer="muon")),
     r"optim\.optimizer: expected adam or adamw with a Linear"),
    (Sums(), replace(SUMS, optim=replace(SUMS.optim, mup_base_width=8)),
     r"optim\.mup_base_width: expected null in this experiment"),
    *((swept(EXPERIMENTS["relational-games"].load()), replace(MUP, model=model), message) for model, message in (
        (GAMES["corelnet"], r"optim\.mup_base_width: 32 does not go with this model: model: muP is derived for"),
        (replace(GAMES["dat-0+2-sym"], dff=250), r"this model: model\.dff: expected an integer that times 32/128 is"),
        (replace(GAMES["dat-1+1-sym"], d_model=96, n_heads_sa=5, dff=192, rel_proj_dim=3), r"the 6 heads, got 32"),
      )),
    by=lambda experiment, config: Trainer(timing_problem(experiment, config), config),
)  # fmt: skip


def test_nothing_is_scaled_without_a_base_width():
    config = config_of("language")
    assert scaled_from_base(config, torch.nn.Linear(2, 2), lambda keys: torch.nn.Linear(1, 1)) is None
