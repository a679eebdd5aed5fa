"""The implementations of relational attention against the reference, forward and every gradient."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from dual_attention.functional import ACTIVATIONS, MaskPattern, reference, relational_attention
from dual_attention.functional.relational import blockwise, linear, sdpa
from tests.support.tensors import normal

from .inputs import SCALES, assert_same_with_gradients, draw_inputs, run

pytestmark = pytest.mark.sweep(3)

SIZES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 99),
        "batch": st.integers(1, 3),
        "groups": st.integers(1, 2),
        "repeat": st.integers(1, 2),
        "n": st.integers(1, 5),
        "m": st.integers(1, 5),
        "key_dim": st.integers(1, 3),
        "width": st.integers(1, 3),
        "n_relations": st.integers(1, 4),
        "p": st.integers(1, 3),
        "symbols": st.sampled_from(["shared", "one batch", "relative"]),
    }
)


@given(sizes=SIZES, with_mask=st.booleans(), impl=st.sampled_from(["auto", "dense", "linear"]))
def test_every_implementation_is_the_reference(sizes, with_mask, impl):
    leaves, index, mask = draw_inputs(**sizes)
    mask = mask if with_mask else None
    ours = run(relational_attention, leaves, index, mask=mask, impl=impl)
    theirs = run(reference.relational_attention, leaves, index, mask=mask)
    assert_same_with_gradients(ours, theirs, leaves)


@given(
    sizes=SIZES,
    causal=st.booleans(),
    window=st.sampled_from([None, 1, 2, 9]),
    packed=st.booleans(),
    padded=st.booleans(),
    masked=st.booleans(),
    bias_shape=st.sampled_from([None, (1, 1, 1, 1), (0, 0, 0, 0), (0, 1, 1, 0), (1, 0, 0, 1)]),
    activation=st.sampled_from(["identity", "identity", "tanh"]),
    block=st.integers(1, 4),
    earlier=st.sampled_from([0, 0, 3]),
)
def test_blocks_of_every_pattern(sizes, causal, window, packed, padded, masked, bias_shape, activation, block, earlier):
    """Each part of a pattern and a bias with gradients, in blocks smaller than the sequence."""
    leaves, index, mask = draw_inputs(**{**sizes, "m": sizes["n"] + earlier})
    batch, heads, n = leaves[0].shape[:3]
    m = n + earlier
    generator = torch.Generator().manual_seed(1)
    segments = torch.randint(2, (batch, m), generator=generator) if packed else None
    padding = torch.rand(batch, m, generator=generator) < 0.6 if padded else None
    receivers = None if segments is None else segments[:, earlier:]
    pattern = MaskPattern(n, m, mask if masked else None, padding, receivers, segments, causal, window, earlier)
    bias = None
    if bias_shape is not None:
        full = (batch, heads, n, m)
        shape = [size if whole else 1 for size, whole in zip(full, bias_shape, strict=True)]
        bias = torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
    tensors = leaves if bias is None else [*leaves, bias]
    arguments = {"bias": bias, "rel_activation": activation}
    theirs = run(reference.relational_attention, leaves, index, mask=pattern.dense(None), **arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "block_size", lambda heads, m: block)
        patch.setattr(blockwise, "BLOCK", block)
        ours = run(relational_attention, leaves, index, mask=pattern, impl="linear", **arguments)
    assert_same_with_gradients(ours, theirs, tensors)


@given(
    sizes=SIZES,
    causal=st.booleans(),
    window=st.sampled_from([None, 2]),
    packed=st.booleans(),
    padded=st.booleans(),
    masked=st.booleans(),
    biased=st.booleans(),
    columns=st.integers(1, 9),
)
def test_library_attention_in_groups_of_relations(sizes, causal, window, packed, padded, masked, biased, columns):
    leaves, _, mask = draw_inputs(
        **{**sizes, "m": sizes["n"], "symbols": sizes["symbols"].replace("relative", "shared")}
    )
    n = sizes["n"]
    segments = torch.arange(n)[None] // 2 if packed else None
    padding = torch.arange(n).expand(len(leaves[0]), n) < n - 1 if padded else None
    pattern = MaskPattern(n, n, mask if masked else None, padding, segments, segments, causal, window)
    bias = torch.randn(1, 1, n, n, dtype=torch.float64).requires_grad_() if biased else None
    theirs = run(reference.relational_attention, leaves, None, mask=pattern.dense(None), bias=bias)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sdpa, "COLUMNS", columns)
        ours = run(relational_attention, leaves, None, mask=pattern, bias=bias, impl="sdpa")
    assert_same_with_gradients(ours, theirs, leaves if bias is None else [*leaves, bias])


def test_memory_of_linear_does_not_hold_the_weights():
    """What autograd keeps between forward and backward grows with N, not with N * N."""

    def kept(n):
        leaves, _, _ = draw_inputs(n=n, m=n)
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
            run(relational_attention, leaves, None, impl="linear", mask=MaskPattern(n, n, causal=True))
        return sum(sizes)

    assert kept(400) < 2.2 * kept(200)


@pytest.mark.parametrize("activation", [*ACTIVATIONS, torch.sin])
def test_activations_and_maps(activation):
    leaves, index, _ = draw_inputs()
    mask = torch.ones(1, 1, 4, 5, dtype=torch.bool).tril(1)
    arguments = {"rel_activation": activation, "mask": mask}
    ours = run(relational_attention, leaves, index, **arguments)
    theirs = run(reference.relational_attention, leaves, index, **arguments)
    assert_same_with_gradients(ours, theirs, leaves)
    with_maps = relational_attention(*leaves, **SCALES, **arguments, need_weights=True)
    _, weights, relations = reference.relational_attention(*leaves, **SCALES, **arguments)
    torch.testing.assert_close(with_maps.output, theirs)
    torch.testing.assert_close(with_maps.weights, weights)
    torch.testing.assert_close(with_maps.relations, relations)


def test_reference_is_algorithm_1_by_hand():
    leaves, _, _ = draw_inputs(batch=1, groups=1, repeat=1, n=1, m=2, key_dim=1, width=1, n_relations=1, p=1)
    q, k, u, w, s, w_r = (x.detach().flatten() for x in leaves)
    alpha = torch.softmax(0.7 * q * k, dim=0)
    r = 0.4 * u * w
    wanted = sum(alpha[j] * (w_r[0] * r[j] + s[j]) for j in range(2))
    torch.testing.assert_close(run(reference.relational_attention, leaves, None).flatten()[0], wanted)


def test_reference_gradients():
    leaves, index, mask = draw_inputs(symbols="relative", n=2, m=3)

    def operation(*leaves):
        return run(reference.relational_attention, leaves, index, mask=mask, rel_activation="tanh")

    assert torch.autograd.gradcheck(operation, leaves)


@pytest.mark.parametrize("impl", ["reference", "dense", "linear"])
@pytest.mark.parametrize("activation", ["identity", "relu"])
def test_dropout_hits_symbols_and_relations_alike(impl, activation):
    """With the sender's symbol as its only relation, positive, what is attended of both is the same number."""
    q, k = normal(1, 1, 50, 2), normal(1, 1, 50, 2)
    s, ones = normal(1, 1, 50, 1).abs(), torch.ones(1, 50, 1, 1, dtype=torch.float64)

    def attend(symbols, w_r):
        torch.manual_seed(3)
        arguments = {"scale": 0.7, "rel_scale": 1.0, "rel_activation": activation, "dropout": 0.5, "impl": impl}
        return relational_attention(q, k, ones, s.transpose(1, 2), symbols, w_r, **arguments).output

    of_symbols = attend(s, torch.zeros(1, 1, 1, dtype=torch.float64))
    of_relations = attend(torch.zeros_like(s), torch.ones(1, 1, 1, dtype=torch.float64))
    torch.testing.assert_close(of_symbols, of_relations)
    assert not torch.allclose(of_symbols, attend_without_dropout(q, k, s))


def attend_without_dropout(q, k, s):
    return reference.attention(q, k, s, scale=0.7)[0]


@pytest.mark.parametrize("impl", ["reference", "dense", "linear", "blockwise"])
@pytest.mark.parametrize("recomputed", [False, True])
def test_each_receiver_drops_other_weights_and_the_same_in_both_passes(impl, recomputed, monkeypatch):
    """Whatever the block, head, group of examples and call; symbols that name their senders show the weights."""
    monkeypatch.setattr(linear, "block_size", lambda heads, m: 2)
    monkeypatch.setattr(linear, "examples_at_a_time", lambda *_, **more: 2)
    monkeypatch.setattr(blockwise, "BLOCK", 2)
    shapes, rate = ((3, 2, 6, 1), (3, 2, 32, 1), (3, 6, 1, 1), (3, 32, 1, 1), (2, 32, 1)), 0.3
    q, k, u, w, w_r = (torch.zeros(shape, dtype=torch.float64) for shape in shapes)
    names = torch.eye(32, dtype=torch.float64).repeat(3, 2, 1, 1).requires_grad_()

    def attend(symbols, **more):
        return relational_attention(q, k, u, w, symbols, w_r, **SCALES, dropout=rate, impl=impl, **more)

    weights = checkpoint(lambda s: attend(s).output, names, use_reentrant=False) if recomputed else attend(names).output
    torch.testing.assert_close(weights[weights > 0], torch.full_like(weights, 1 / (1 - rate) / 32)[weights > 0])
    assert abs((weights == 0).double().mean() - rate) < 0.05
    assert torch.pdist(torch.cat([weights, attend(names).output]).flatten(0, 2)).min() > 0.01
    cotangent = torch.randn_like(weights)
    for graph in (False, True):
        (grad,) = torch.autograd.grad(weights, names, cotangent, retain_graph=True, create_graph=graph)
        torch.testing.assert_close(grad, weights.mT @ cotangent)
    if impl in ("reference", "dense"):
        maps = attend(names, need_weights=True)
        torch.testing.assert_close(maps.weights, maps.output)


@pytest.mark.parametrize("activation", ["identity", "tanh"])
def test_gradients_under_dropout_are_those_of_the_mask_of_the_forward_pass(activation):
    leaves, _, _ = draw_inputs(n=3, m=3, batch=1, width=2)

    def operation(*leaves):
        torch.manual_seed(5)
        return run(relational_attention, leaves, None, dropout=0.4, impl="linear", rel_activation=activation)

    assert torch.autograd.gradcheck(operation, leaves)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_no_worse_than_dense(dtype):
    leaves, _, _ = draw_inputs(n=40, m=40, key_dim=8, width=8, p=4)
    exact = run(reference.relational_attention, leaves, None)
    cotangent = torch.randn_like(exact)
    wanted = torch.autograd.grad(exact, leaves, cotangent)
    low = [x.detach().to(dtype).requires_grad_() for x in leaves]
    errors = {}
    for impl in ("dense", "linear"):
        out = run(relational_attention, low, None, impl=impl)
        grads = torch.autograd.grad(out, low, cotangent.to(dtype))
        errors[impl] = [
            float(((ours.double() - theirs).abs().max() / theirs.abs().max()).detach())
            for ours, theirs in zip((out, *grads), (exact, *wanted), strict=True)
        ]
    eps = torch.finfo(dtype).eps
    for ours, theirs in zip(errors["linear"], errors["dense"], strict=True):
        assert ours <= 1.5 * theirs + 2 * eps


@pytest.mark.parametrize("impl", ["reference", "dense", "linear", "blockwise", "sdpa"])
@pytest.mark.parametrize("spread", [1, 10, 30])
def test_bfloat16_is_as_exact_as_attention_of_pytorch(impl, spread):
    """At scores of that standard deviation, in the output and the gradients of queries and keys."""
    generator, shape = torch.Generator().manual_seed(0), (1, 4, 128, 64)
    q, k, s, g, u = (torch.randn(shape, generator=generator).bfloat16() for _ in range(5))
    q, k, u = q * spread**0.5, k * spread**0.5, u[0].permute(1, 0, 2)[None]

    def errors(attend):
        exact = attention_of_pytorch(*(wide := [x.double().requires_grad_() for x in (q, k, s)]))
        ours = attend(*(low := [x.clone().requires_grad_() for x in (q, k, s)]))
        wanted = exact, *torch.autograd.grad(exact, wide, g.double())
        found = ours, *torch.autograd.grad(ours, low, g)
        return [float(((a - b).norm() / b.norm()).detach()) for a, b in zip(found, wanted, strict=True)]

    def attention_of_pytorch(q, k, s):
        return torch.nn.functional.scaled_dot_product_attention(q, k, s)

    def relational(q, k, s):
        w_r = q.new_zeros(4, 64, 4)
        return relational_attention(q, k, u, u, s, w_r, scale=0.125, rel_scale=0.125, impl=impl).output

    for ours, theirs in zip(errors(relational), errors(attention_of_pytorch), strict=True):
        assert ours < 1.5 * theirs + 5e-4


def test_registered_operation():
    """Schema, fake tensors and autograd registration, which torch.compile and torch.export rely on."""
    leaves, _, _ = draw_inputs(n=5, m=5)
    nothing = [None] * 7
    arguments = (*leaves[:5], *nothing, True, None, 0, 0.5, 0.5, 0.0, 2)
    torch.library.opcheck(torch.ops.dual_attention.linear_relational_attention.default, arguments)


@pytest.mark.parametrize("symbols", ["shared", "relative"])
def test_no_senders_gives_zeros(symbols):
    leaves, index, _ = draw_inputs(m=0, symbols=symbols)
    assert (run(relational_attention, leaves, index, impl="linear") == 0).all()


def test_softmax_relations_do_not_leak_what_the_mask_hides():
    leaves, _, _ = draw_inputs(n=5, m=5)
    causal = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()
    before = run(relational_attention, leaves, None, rel_activation="softmax", mask=causal)
    leaves[3] = leaves[3].detach().clone()
    leaves[3][:, -1] += 1.0
    after = run(relational_attention, leaves, None, rel_activation="softmax", mask=causal)
    torch.testing.assert_close(before[:, :, :-1], after[:, :, :-1])
    assert not torch.allclose(before[:, :, -1], after[:, :, -1])


@pytest.mark.parametrize("impl", ["reference", "dense", "linear"])
@pytest.mark.parametrize("of_heads", [1, 4])
def test_softmax_relations_do_not_leak_what_minus_infinity_hides(impl, of_heads):
    """A bias that masks is a mask, for relations too; what some head sees counts for all."""
    leaves, _, _ = draw_inputs(n=5, m=5)
    causal = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()
    bias = torch.zeros(1, of_heads, 5, 5, dtype=torch.float64).masked_fill(~causal, -torch.inf)
    ours = run(relational_attention, leaves, None, rel_activation="softmax", bias=bias, impl=impl)
    wanted = run(reference.relational_attention, leaves, None, rel_activation="softmax", mask=causal)
    assert_same_with_gradients(ours, wanted, leaves)
    if of_heads > 1:
        bias = torch.where(torch.arange(of_heads).view(1, -1, 1, 1) == 0, 0.0, bias)
        arguments = {"rel_activation": "softmax", "need_weights": True, "scale": 0.5, "rel_scale": 0.5}
        relations = relational_attention(*leaves, bias=bias, **arguments).relations
        torch.testing.assert_close(relations, relational_attention(*leaves, **arguments).relations)


@pytest.mark.parametrize("impl", ["reference", "dense", "blockwise"])
def test_softmax_relations_leave_out_what_every_head_hides(impl):
    leaves, _, mask = draw_inputs()
    mask[:, :, :, 0] = False
    how = {"rel_activation": "softmax", "mask": mask}
    ours = run(relational_attention, leaves, None, **how, impl=impl)
    q, k, u, w, s, w_r = leaves
    seen = mask.any(dim=1)
    scores = 0.4 * torch.einsum("bnrp,bmrp->bnmr", u, w).masked_fill(~seen[..., None], -torch.inf)
    relations = scores.softmax(dim=2)
    assert (relations[:, :, 0] == 0).all() and relations.isfinite().all()
    alpha = reference.attention_weights(q, k, scale=0.7, mask=mask)
    attended = torch.einsum("bhnm,bnmr->bhnr", alpha, relations) @ w_r.transpose(1, 2)
    assert_same_with_gradients(ours, attended + reference.attend_to_symbols(alpha, s), leaves)
    if impl != "blockwise":
        maps = relational_attention(*leaves, **SCALES, **how, impl=impl, need_weights=True)
        torch.testing.assert_close(maps.relations, relations)
