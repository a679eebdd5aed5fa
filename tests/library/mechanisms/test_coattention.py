"""Co-attention: symmetries, reductions, padding."""

import itertools

import pytest
import torch
from torch import nn

from dual_attention.functional import masked_mean
from dual_attention.mechanisms import (
    Additive,
    Align,
    AlternatingCoAttention,
    Entmax,
    GeneralAttention,
    Hard,
    InteractiveCoAttention,
    KeyOnly,
    ParallelCoAttention,
    Sparsemax,
)
from tests.support.refusals import refused
from tests.support.tensors import close, float64, normal

from .space import longer_by_two


class Natural(Align):
    """Softmax with the natural signature."""

    def forward(self, scores, mask):
        return scores.masked_fill(~mask, -torch.inf).softmax(-1)


B, N1, N2, D1, D2 = 3, 4, 5, 6, 2


def inputs():
    x1, x2 = normal(B, N1, D1), normal(B, N2, D2)
    mask1, mask2 = torch.rand(B, N1) < 0.7, torch.rand(B, N2) < 0.7
    mask1[0] = False
    mask1[1, 0] = mask2[:, 0] = True
    mask2[2] = False
    return x1, x2, mask1, mask2


MECHANISMS = {
    "alternating": lambda **options: AlternatingCoAttention(D1, D2, **options),
    "alternating, tied": lambda **options: AlternatingCoAttention(D1, D2, tie_first_last=True, **options),
    "interactive": lambda **options: InteractiveCoAttention(D1, D2, **options),
    "parallel": lambda **options: ParallelCoAttention(D1, D2, **options),
    "parallel, max": lambda **options: ParallelCoAttention(D1, D2, pool="max", **options),
    "parallel, additive affinity": lambda **options: ParallelCoAttention(D1, D2, 3, affinity=Additive, **options),
}


@pytest.mark.parametrize("align", [None, Sparsemax, Entmax, Natural])
@pytest.mark.parametrize("name", MECHANISMS)
def test_padding_changes_nothing_and_empty_inputs_are_zero(name, align):
    mechanism = float64(MECHANISMS[name](align=None if align is None else align()))
    x1, x2, mask1, mask2 = inputs()
    x1.requires_grad_()
    x2.requires_grad_()
    output = mechanism(x1, x2, mask1=mask1, mask2=mask2)
    assert (output.context1[0] == 0).all() and (output.context2[2] == 0).all()
    assert (output.weights1[~mask1] == 0).all() and (output.weights2[~mask2] == 0).all()
    for total, mask in ((output.weights1.sum(-1), mask1), (output.weights2.sum(-1), mask2)):
        close(total, mask.any(-1).double())
    assert output.concatenated().shape == (B, D1 + D2)
    gradients = torch.autograd.grad(output.concatenated().square().sum(), (x1, x2))
    for gradient, mask in zip(gradients, (mask1, mask2), strict=True):
        assert gradient.isfinite().all() and (gradient[~mask] == 0).all()

    longer = [longer_by_two(z) for z in (x1, x2, mask1, mask2)]
    padded = mechanism(*longer[:2], mask1=longer[2], mask2=longer[3])
    close(padded.context1, output.context1)
    close(padded.context2, output.context2)

    nothing = mechanism(x1[:, :0], x2[:, :0])
    assert (nothing.context1 == 0).all() and nothing.context2.shape == (B, D2)
    one_sided = mechanism(x1, x2[:, :0])
    assert one_sided.context1.isfinite().all() and (one_sided.context2 == 0).all()


@pytest.mark.parametrize("name", MECHANISMS)
def test_permutations_and_gradients(name):
    mechanism = float64(MECHANISMS[name]())
    x1, x2, mask1, mask2 = inputs()
    output = mechanism(x1, x2, mask1=mask1, mask2=mask2)
    p1, p2 = torch.randperm(N1), torch.randperm(N2)
    moved = mechanism(x1[:, p1], x2[:, p2], mask1=mask1[:, p1], mask2=mask2[:, p2])
    close(moved.concatenated(), output.concatenated())
    close(moved.weights1, output.weights1[:, p1])
    alone = mechanism(x1[1:2], x2[1:2], mask1=mask1[1:2], mask2=mask2[1:2])
    close(alone.concatenated(), output.concatenated()[1:2])

    def contexts(a, b):
        return mechanism(a, b, mask1=mask1[:, :2], mask2=mask2[:, :2]).concatenated()

    a, b = x1[:, :2].clone().requires_grad_(), x2[:, :2].clone().requires_grad_()
    assert torch.autograd.gradcheck(contexts, (a, b))


def test_parts_learn_alignments_of_their_own():
    align = Entmax(learned=True)
    for make in (AlternatingCoAttention, InteractiveCoAttention, ParallelCoAttention):
        mechanism = make(D1, D2, align=align)
        alphas = [p for name, p in mechanism.named_parameters() if name.endswith("raw_alpha")]
        assert len(alphas) == (3 if make is AlternatingCoAttention else 2)
        assert all(p is not align.raw_alpha for p in alphas)


@pytest.mark.parametrize("make", [AlternatingCoAttention, InteractiveCoAttention, ParallelCoAttention])
def test_parts_draw_from_one_generator(make):
    """The caller's, so that none draws the noise of another, and its seed decides all of it."""
    generator = torch.Generator().manual_seed(0)
    mechanism = make(D1, D2, align=Hard(generator=generator))
    parts = [part for part in mechanism.modules() if isinstance(part, Hard)]
    draws = [[part(torch.zeros(8, 99)).weights for part in parts] for _ in range(2)]
    generator.manual_seed(0)
    again = [part(torch.zeros(8, 99)).weights for part in parts]
    assert len(parts) > 1 and all(map(torch.equal, draws[0], again))
    drawn = [*draws[0], *draws[1]]
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(drawn, 2))


# Alternating


def test_alternating_steps():
    mechanism = float64(AlternatingCoAttention(D1, D2))
    x1, x2, mask1, mask2 = inputs()
    output = mechanism(x1, x2, mask1=mask1, mask2=mask2)
    c0 = mechanism.first(normal(B, 1, D2) * 0, x1, padding_mask=mask1).context
    c2 = mechanism.second(c0, x2, padding_mask=mask2).context
    close(output.context2, c2.squeeze(1))
    close(output.context1, mechanism.last(c2, x1, padding_mask=mask1).context.squeeze(1))
    query_less = KeyOnly(D1).double()
    score = mechanism.first.score
    with torch.no_grad():
        query_less.weight_k.copy_(score.weight_k)
        query_less.bias.copy_(score.bias)
        query_less.weight.copy_(score.weight[None])
    close(GeneralAttention(query_less)(None, x1, padding_mask=mask1).context, c0)


def test_alternating_tied_without_guidance_repeats_itself():
    mechanism = float64(AlternatingCoAttention(D1, D2, tie_first_last=True))
    nn.init.zeros_(mechanism.last.score.weight_q)
    output = mechanism(*inputs()[:2])
    close(output.weights1, output.first_weights)
    assert mechanism.first is mechanism.last
    assert len(list(mechanism.parameters())) < len(list(AlternatingCoAttention(D1, D2).parameters()))


# Symmetries


def test_interactive_swap():
    mechanism, swapped = float64(InteractiveCoAttention(D1, D2)), InteractiveCoAttention(D2, D1).double()
    swapped.attention1.load_state_dict(mechanism.attention2.state_dict())
    swapped.attention2.load_state_dict(mechanism.attention1.state_dict())
    x1, x2, mask1, mask2 = inputs()
    output = mechanism(x1, x2, mask1=mask1, mask2=mask2)
    other = swapped(x2, x1, mask1=mask2, mask2=mask1)
    close(other.context1, output.context2)
    close(other.context2, output.context1)
    close(output.context1[2], masked_mean(x1, mask1)[2])  # the other side is empty, so that all scores are alike


@pytest.mark.parametrize("pool", ["project", "max"])
def test_parallel_swap(pool):
    mechanism = float64(ParallelCoAttention(D1, D2, 3, pool=pool))
    swapped = ParallelCoAttention(D2, D1, 3, pool=pool).double()
    with torch.no_grad():
        swapped.affinity.weight.copy_(mechanism.affinity.weight.T)
        if pool == "project":
            for name in ("weight", "vector"):
                for a, b in (("1", "2"), ("2", "1")):
                    getattr(swapped, name + a).copy_(getattr(mechanism, name + b))
    x1, x2, mask1, mask2 = inputs()
    output = mechanism(x1, x2, mask1=mask1, mask2=mask2)
    other = swapped(x2, x1, mask1=mask2, mask2=mask1)
    close(other.context1, output.context2)
    close(other.context2, output.context1)


def test_parallel_formula():
    m = float64(ParallelCoAttention(D1, D2, 3))
    x1, x2 = normal(B, N1, D1), normal(B, N2, D2)
    c = torch.tanh(x1 @ m.affinity.weight.T @ x2.transpose(1, 2))
    h1 = torch.tanh(x1 @ m.weight1.T + c @ (x2 @ m.weight2.T))
    h2 = torch.tanh(x2 @ m.weight2.T + c.transpose(1, 2) @ (x1 @ m.weight1.T))
    output = m(x1, x2)
    close(output.weights1, (h1 @ m.vector1).softmax(-1))
    close(output.context2, ((h2 @ m.vector2).softmax(-1)[:, None] @ x2).squeeze(1))
    highest = ParallelCoAttention(D1, D2, pool="max").double()
    highest.load_state_dict({"affinity.weight": m.affinity.weight})
    close(highest(x1, x2).weights1, c.amax(2).softmax(-1))


# What is refused


test_bad_inputs = pytest.mark.parametrize("name", MECHANISMS)(refused(
    (lambda m, x1, x2, mask1: m(x1, x1), "x2: expected shape"),
    (lambda m, x1, x2, mask1: m(x1[0], x2), "x1: expected shape"),
    (lambda m, x1, x2, mask1: m(x1, x2, mask1=mask1.float()), TypeError, "mask1: expected a boolean"),
    (lambda m, x1, x2, mask1: m(x1, x2, mask2=mask1), "mask2: expected shape"),
    by=lambda call, *, name: call(float64(MECHANISMS[name]()), *inputs()[:3]),
))  # fmt: skip


test_bad_settings = refused(
    (lambda: ParallelCoAttention(D1, D2, pool="mean"), "pool"),
    (lambda: ParallelCoAttention(D1, D2, affinity=lambda a, b: Additive(a, b, d_out=3)), "affinity"),
    (lambda: AlternatingCoAttention(0, 2), "expected a positive number"),
    (lambda: InteractiveCoAttention(0, 2), "expected a positive number"),
    (lambda: ParallelCoAttention(0, 2), "expected a positive number"),
)
