"""Muon beside AdamW: which parameters are whose, PyTorch's steps to the bit, resuming, and states that do not fit."""

import copy
import functools
import shutil
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dat.training.checkpoint import Checkpoints, read_state
from dat.training.configs import OptimConfig
from dat.training.loop import Trainer
from dat.training.measuring import never
from dat.training.optim import Factors, build_optimizer, hidden_matrices
from dat.training.problem import Problem
from dual_attention import DualAttnTransformerLM, EncoderBlock
from tests.support.refusals import refused
from tests.support.runs import fit_until_stopped

from .test_loop import LOOP, Rows, squared_error, stop_after, weights
from .test_saved_state import changed, newest, stopped_checkpoints

MUON = OptimConfig(optimizer="muon", lr=0.01, muon_lr=0.03, weight_decay=0.1, warmup_steps=3, schedule="cosine")


class Summing(nn.Module):
    """Sums the numbers of a row, ``(B, L) -> (B, 1)``, with a block between its first layer and its last."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(1, 8), nn.Linear(8, 1)
        self.block = EncoderBlock(8, 2, dff=16, dropout_rate=0.1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.block(self.first(x[..., None])).mean(1))


def make_trainer(folder=None, stop=never, optim: OptimConfig = MUON, factors=None) -> Trainer:
    torch.manual_seed(1)
    problem = Problem(Summing(), Rows(50, 0), squared_error, {"val": Rows(20, 1)}, factors=factors)
    config: Any = SimpleNamespace(optim=optim, loop=LOOP, seed=3)
    return Trainer(problem, config, checkpoints=None if folder is None else Checkpoints(folder), stop=stop)


def test_muon_trains_the_matrices_of_hidden_layers_and_nothing_else():
    model = DualAttnTransformerLM(
        50,
        16,
        1,
        n_heads_sa=2,
        n_heads_ra=2,
        dff=32,
        dropout_rate=0.0,
        activation="gelu",
        norm_first=True,
        max_block_size=8,
        symbol_retrieval="symbolic_attention",
        symbol_retrieval_kwargs={"d_model": 16, "n_heads": 2, "n_symbols": 4},
        tie_weights=False,
    )
    matrices = hidden_matrices(model)
    others = [name for name, parameter in model.named_parameters() if parameter not in matrices]
    assert {name for name in others if model.get_parameter(name).dim() > 1} == {
        "layers.token_embedder.weight",
        "layers.blocks.0.dual_attn.relational_attention.wr",
        "layers.positional_embedder.weight",
        "layers.final_out.weight",
        "layers.symbol_retrievers.0.template_features",
        "layers.symbol_retrievers.0.symbol_library",
    }
    optimizer = build_optimizer(model, MUON)
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert {*trained} == {*model.parameters()} and len(trained) == len({*trained})
    assert {parameter for group in optimizer.param_groups[:1] for parameter in group["params"]} == matrices


def test_frozen_matrices_stay_as_they_are():
    model = Summing()
    model.block.self_attn.requires_grad_(False)
    assert {*hidden_matrices(model)} == {model.block.ff_block.linear1.weight, model.block.ff_block.linear2.weight}


def test_steps_are_those_of_pytorch():
    model, x = Summing().eval(), torch.randn(5, 6)
    other = copy.deepcopy(model)
    ours, matrices = build_optimizer(model, MUON), hidden_matrices(other)
    rest = [parameter for parameter in other.parameters() if parameter not in matrices]
    match = {"lr": 0.03, "weight_decay": 0.1, "momentum": 0.95, "adjust_lr_fn": "match_rms_adamw"}
    ordered = [parameter for parameter in other.parameters() if parameter in matrices]
    theirs = [
        torch.optim.Muon(ordered, **match),
        torch.optim.AdamW(rest, lr=0.01, betas=MUON.betas, eps=MUON.eps, weight_decay=0.1, fused=True),
    ]
    for group in ours.param_groups:
        group["lr"] *= group["lr_scale"]
    for step in range(3):
        for net, optimizers in ((model, [ours]), (other, theirs)):
            for optimizer in optimizers:
                optimizer.zero_grad(set_to_none=True)
            net(x + step).square().sum().backward()
            for optimizer in optimizers:
                optimizer.step()
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b) and a.requires_grad


def test_both_rates_follow_the_schedule():
    trainer, rates = make_trainer(), []
    for _ in range(4):
        trainer.train_step(torch.arange(4))
        rates.append([group["lr"] for group in trainer.optimizer.param_groups])
    assert rates[0] == pytest.approx([0.01, 0.01 / 3]) and rates[2] == pytest.approx([0.03, 0.01])
    assert rates[3] == pytest.approx([0.03, 0.01])  # the cosine begins at its peak
    assert make_trainer(optim=OptimConfig(optimizer="muon")).optimizer.param_groups[0]["lr_scale"] == 1


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_a_stopped_training_continues_to_the_same_numbers(tmp_path, optimizer):
    """Rates of muP are not in the state: they come from the configuration again."""
    factors = {name: Factors(1.0, 0.5, 0.25, 2.0) for name, _ in Summing().named_parameters() if "block" in name}
    optim = OptimConfig(optimizer=optimizer, lr=0.01, weight_decay=0.1, mup_base_width=4)
    whole = make_trainer(optim=optim, factors=factors)
    expected = whole.fit()
    fit_until_stopped(make_trainer(tmp_path, stop_after(6), optim, factors))
    resumed = make_trainer(tmp_path, optim=optim, factors=factors)
    assert resumed.resume() and 0 < resumed.step < whole.step
    assert resumed.fit() == expected
    assert all(torch.equal(*pair) for pair in zip(weights(resumed), weights(whole), strict=True))
    with pytest.raises(ValueError, match=r"optimizer\.param_groups"):
        make_trainer(tmp_path, optim=optim, factors={}).resume()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    return stopped_checkpoints(tmp_path_factory.mktemp("stopped"), make_trainer)


ENTRY = ("optimizer", "state", 0)
CRAFTED = [
    (ENTRY, {}, r"state\[0\]: expected the entries momentum_buffer"),
    (ENTRY, {"step": torch.ones(()), "exp_avg": torch.zeros(8, 8), "exp_avg_sq": torch.zeros(8, 8)}, r"state\[0\]"),
    ((*ENTRY, "momentum_buffer"), torch.zeros(8), r"momentum_buffer: expected torch.float32 \(8, 8\)"),
    ((*ENTRY, "momentum_buffer"), torch.full((8, 8), float("nan")), "momentum_buffer: expected finite"),
    (("optimizer", "param_groups", 0, "momentum"), 0.5, r"param_groups\[0\]\.momentum: expected 0.95, got 0.5"),
    (("optimizer", "param_groups", 0, "lr_scale"), 1.0, r"param_groups\[0\]\.lr_scale"),
    (("optimizer", "param_groups"), lambda groups: groups[1:], ".* state of muon, which .* names, got 'adamw'"),
    (("optimizer", "state"), lambda state: {**state, 7: state[0]}, r"state\[7\]: expected the entries exp_avg"),
]


@pytest.mark.parametrize(("keys", "to", "message"), CRAFTED)
def test_states_that_do_not_fit_are_refused(stopped, tmp_path, keys, to, message):
    path = newest(shutil.copytree(stopped, tmp_path / "c"))
    torch.save(changed(read_state(path), *keys, to=to), path)
    with pytest.raises(ValueError, match=message):
        make_trainer(tmp_path / "c").resume()


built = functools.partial(build_optimizer, nn.Linear(2, 2))


ADAMW = OptimConfig(optimizer="adamw", weight_decay=0.1)

test_wrong_settings_are_named = refused(
    (lambda _: make_trainer(_, optim=ADAMW), r"the state of adamw, which optim\.optimizer names, got 'muon'"),
    (lambda _: built(MUON), r"optim\.optimizer: expected adam or adamw with a Linear, which has no bl"),
    (lambda _: built(OptimConfig(mup_base_width=8)), r"optim\.mup_base_width: .* null in this experiment, got 8"),
    (lambda _: OptimConfig(muon_lr=0.1), r"optim\.muon_lr: .* positive number, with optim\.optimizer=adam only null"),
    (lambda _: OptimConfig(optimizer="muon", muon_lr=0.0), r"optim\.muon_lr: .* positive number or null, got 0\.0"),
    (lambda _: OptimConfig(muon_momentum=1.0), r"optim\.muon_momentum"),
    (lambda _: OptimConfig(mup_base_width=0), r"optim\.mup_base_width: expected an integer of at least 1"),
    (lambda _: OptimConfig(mup_base_width=8, weight_decay=0.1), r"optim\.mup_base_width: .* with L2 weight decay"),
    by=lambda make, *, stopped: make(stopped).resume(),
)


def test_an_older_pytorch_has_none(monkeypatch):
    """It came with 2.9; all else trains without it."""
    monkeypatch.setattr("dat.training.optim.Muon", None)
    build_optimizer(Summing(), replace(MUON, optimizer="adamw", muon_lr=None))
    with pytest.raises(ValueError, match=r"expected adam or adamw with PyTorch before 2\.9, got 'muon'"):
        build_optimizer(Summing(), MUON)
