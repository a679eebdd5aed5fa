"""The optimisers are PyTorch's, to the bit, without what surrounds them."""

import copy

import pytest
import torch

from dat.training.configs import OptimConfig
from dat.training.optim import build_optimizer


def steps(optimizer: torch.optim.Optimizer, model: torch.nn.Module, number: int, first: int = 0) -> None:
    for step in range(first, first + number):
        optimizer.zero_grad(set_to_none=True)
        model(torch.full((3, 4), 0.1 * step)).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_steps_and_state_are_those_of_pytorch(name: str):
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.GELU(), torch.nn.Linear(5, 2))
    other = copy.deepcopy(model)
    ours = build_optimizer(model, OptimConfig(optimizer=name, weight_decay=0.1))
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    assert isinstance(ours, kind)
    of_other = dict(zip(model.parameters(), other.parameters(), strict=True))
    groups = [{**group, "params": [of_other[p] for p in group["params"]]} for group in ours.param_groups]
    theirs = kind(groups, fused=True)
    steps(ours, model, 3)
    steps(theirs, other, 3)
    saved = ours.state_dict()
    torch.testing.assert_close(saved, theirs.state_dict(), atol=0, rtol=0)

    again = build_optimizer(model, OptimConfig(optimizer=name, weight_decay=0.1))  # as if resumed
    again.load_state_dict(copy.deepcopy(saved))
    steps(again, model, 2, first=3)
    steps(theirs, other, 2, first=3)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b) and a.requires_grad
    assert torch.is_grad_enabled()
