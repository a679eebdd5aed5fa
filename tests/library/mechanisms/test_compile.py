"""Representative compositions under torch.compile, without a break in the graph."""

import pytest
import torch

from dual_attention import mechanisms
from dual_attention.functional import directional_mask
from tests.support.tensors import float64

B, L, D, H = 2, 5, 8, 2

HEADS = {
    "additive, sparsemax": lambda: mechanisms.MultiHead(
        mechanisms.GeneralAttention(mechanisms.Additive(4, 4, 3, heads=H), mechanisms.Sparsemax()), D, H
    ),
    "general, learned entmax": lambda: mechanisms.MultiHead(
        mechanisms.GeneralAttention(mechanisms.General(4, 4), mechanisms.Entmax(learned=True)), D, H
    ),
    "self-attention": lambda: mechanisms.recipes.self_attention(D, H),
    "straight-through": lambda: mechanisms.MultiHead(
        mechanisms.GeneralAttention(mechanisms.General(4, 4), mechanisms.Hard("st")), D, H
    ),
    "sigmoid": lambda: mechanisms.recipes.sigmoid_self_attention(D, H),
}
RELATIONAL = {
    "relational": lambda: mechanisms.recipes.relational_heads(D, H, 4),
    "cosine relations, sparsemax": lambda: mechanisms.recipes.relational_heads(
        D, H, 4, relation=mechanisms.Cosine(learned=True, heads=4), align=mechanisms.Sparsemax()
    ),
}


def check(module, arguments, options):
    x = arguments[0].requires_grad_()
    inputs = (x, *module.parameters())
    torch._dynamo.reset()  # whatever tests before this one have compiled
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    results = []
    for call in (module, compiled):
        context = call(*arguments, **options).context
        results.append((context, *torch.autograd.grad(context.square().sum(), inputs, allow_unused=True)))
    for a, b in zip(*results, strict=True):
        if a is None:  # an argmax has no gradient, for which the compiler writes zeros
            assert b is None or (b == 0).all()
        else:
            torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*HEADS, *RELATIONAL])
def test_heads(name):
    module = float64({**HEADS, **RELATIONAL}[name]())
    x = torch.randn(B, L, D).double()
    mask = torch.rand(B, 1, L, L) < 0.7
    mask[0, :, 1] = False
    check(module, (x, x, x) if name in RELATIONAL else (x,), {"attn_mask": mask})


@pytest.mark.slow
def test_local():
    local = float64(mechanisms.recipes.luong_local_p(D, D, 2))
    check(local, (torch.randn(B, L, D).double(),), {"attn_mask": directional_mask(L)})
