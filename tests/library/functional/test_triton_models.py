"""A whole DAT as a GPU runs it, eager and compiled: fused kernels, packed products, the loss in one pass."""

import pytest
import torch

from tests.support.language import DAT_KINDS, lm, tokens

from .fused_problems import (  # noqa: F401 (the fixture is used by every test)
    DEVICE,
    launch,
    needs_kernels,
    tiny_tiles_and_poisoned_memory,
)

pytestmark = needs_kernels

CHOICES = (
    "dual_attention.saves_launches",
    "symbol_retrieval.saves_launches",
    "symbol_retrieval.spreads_over_examples",
    "functional.relational.choice.prefers_fused",
    "functional.losses._fuses",
)
"""What a GPU decides otherwise than a CPU."""
KINDS = [pytest.param(kind, marks=() if kind == "positional_symbols" else pytest.mark.slow) for kind in DAT_KINDS]


@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradients_are_those_of_the_cpu(kind, monkeypatch):
    """As one graph with no break, whose backward pass is given strides that its tracing was promised."""
    model, x = lm(kind, pos_enc_type="RoPE", n_layers=1).to(DEVICE, torch.float32), tokens(2, 9).to(DEVICE)
    parameters = [*model.parameters()]

    def results(loss_of):
        loss = loss_of(x, x)
        return [loss, *torch.autograd.grad(loss, parameters)]

    wanted, calls, backward = results(model.loss), [], launch.Call.backward
    monkeypatch.setattr(launch.Call, "backward", lambda call, *a: calls.append(1) or backward(call, *a))
    for name in CHOICES:
        monkeypatch.setattr(f"dual_attention.{name}", lambda *_: True)
    torch._dynamo.reset()
    compiled = torch.compile(model.loss, backend="aot_eager", fullgraph=True)
    for loss_of in (model.loss, compiled):
        torch.testing.assert_close(results(loss_of), wanted, atol=1e-4, rtol=1e-3)
    assert len(calls) == 2
