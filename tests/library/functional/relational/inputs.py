"""Random inputs of relational attention, and how its implementations are called and compared."""

import torch

from dual_attention.functional import RelativeSymbols

SCALES = {"scale": 0.7, "rel_scale": 0.4}


def draw_inputs(
    seed=0, batch=2, groups=2, repeat=2, n=4, m=5, key_dim=2, width=3, n_relations=3, p=2, symbols="shared"
):
    """Leaf tensors q, k, u, w, w_r, s, an optional index of relative symbols, and a mask of each head."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    heads = groups * repeat
    index = None
    if symbols == "relative":
        rows = 4
        s, index = normal(rows, groups, width), torch.randint(rows, (n, m), generator=generator)
    elif symbols == "of pairs":
        s, index = normal(n * m, groups, width), torch.arange(n * m).view(n, m)
    else:
        s = normal(1 if symbols == "one batch" else batch, groups, m, width)
    leaves = [
        normal(batch, heads, n, key_dim),
        normal(batch, groups, m, key_dim),
        normal(batch, n, n_relations, p),
        normal(batch, m, n_relations, p),
        s,
        normal(heads, width, n_relations),
    ]
    mask = torch.rand(batch, heads, n, m, generator=generator) < 0.7
    mask[:1, :1, :1] = False
    return leaves, index, mask


def run(operation, leaves, index, **arguments):
    q, k, u, w, s, w_r = leaves
    symbols = s if index is None else RelativeSymbols(s, index)
    return operation(q, k, u, w, symbols, w_r, **SCALES, **arguments)[0]


def assert_same_with_gradients(ours, theirs, leaves):
    torch.testing.assert_close(ours, theirs, atol=1e-11, rtol=1e-11)
    cotangent = torch.randn_like(theirs)
    for a, b in zip(*(torch.autograd.grad(output, leaves, cotangent) for output in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b, atol=1e-11, rtol=1e-11)


def boolean(*shape, device=None):
    return torch.ones(shape, dtype=torch.bool, device=device)
