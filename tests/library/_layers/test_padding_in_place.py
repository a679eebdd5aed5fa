"""Without gradients a layer clears padded senders where they are: of what is its own, and of nothing else."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from dual_attention import Attention, DualAttention, RelationalAttention

D, N = 16, 6
REAL = torch.arange(N) < torch.tensor([[4], [6]])
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "sensory": lambda: Attention(D, 2),
    "relational": lambda: RelationalAttention(D, 2),
    "symmetric": lambda: RelationalAttention(D, 2, symmetric_rels=True),
    "distances": lambda: RelationalAttention(D, 2, symmetric_rels=True, rel_score="squared_distance"),
    "both": lambda: DualAttention(D, 1, 1),
    "shared": lambda: DualAttention(D, 1, 1, share_attn_params=True),
}


class Same(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return input


def call(layer: nn.Module, inputs: list[Tensor]) -> Tensor:
    return layer(*inputs, padding_mask=REAL)[0]


def poisoned(layer: nn.Module, fill: float = torch.nan) -> list[Tensor]:
    """Inputs whose padded places hold one value."""
    inputs = [torch.randn(2, N, D) for _ in range(3 if isinstance(layer, Attention) else 2)]
    return [x.masked_fill(~REAL[..., None], fill) for x in inputs]


def same(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("fill", [torch.nan, 7.0])  # padded receivers answer, too, where they are finite
@pytest.mark.parametrize("at_once", [False, True], ids=["layer by layer", "in one product"])
@pytest.mark.parametrize("name", LAYERS)
def test_outputs_are_those_with_gradients_and_inputs_stay(
    name: str, at_once: bool, fill: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dual_attention.dual_attention.saves_launches", lambda x: at_once)
    layer = LAYERS[name]()
    inputs = poisoned(layer, fill)
    given = [x.clone() for x in inputs]
    wanted = call(layer, inputs).detach()
    with torch.no_grad():
        same(call(layer, inputs), wanted)
    with torch.inference_mode():
        same(call(layer, inputs), wanted)
    for ours, theirs in zip(inputs, given, strict=True):
        same(ours, theirs)
    assert wanted[REAL].isfinite().all()


@pytest.mark.parametrize("name", LAYERS)
def test_what_a_hook_has_kept_stays(name: str):
    layer = LAYERS[name]()
    kept: list[tuple[Tensor, Tensor]] = []
    for module in layer.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda module, inputs, output: kept.append((output, output.clone())))
    with torch.no_grad():
        call(layer, poisoned(layer))
    assert len(kept) > 3
    for ours, theirs in kept:
        same(ours, theirs)


@pytest.mark.parametrize("name", ["sensory", "relational"])
def test_what_a_projection_of_ones_own_returns_stays(name: str):
    """It may be its input."""
    layer = LAYERS[name]()
    for projection in ("wk", "wv") if name == "sensory" else ("wk_attn", "wk_rel", "wv"):
        setattr(layer, projection, Same(D, D))
    inputs = poisoned(layer)
    given = [x.clone() for x in inputs]
    with torch.no_grad():
        call(layer, inputs)
    for ours, theirs in zip(inputs, given, strict=True):
        same(ours, theirs)
