"""The implementations of relational attention against the reference, forward and every gradient."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dual_attention.functional import (
    ACTIVATIONS,
    MaskPattern,
    OffsetSymbols,
    RelativeSymbols,
    blockwise,
    linear,
    reference,
    relational,
    relational_attention,
    sdpa,
)

from ..layers import normal

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
    for a, b in zip(
        torch.autograd.grad(ours, leaves, cotangent), torch.autograd.grad(theirs, leaves, cotangent), strict=True
    ):
        torch.testing.assert_close(a, b, atol=1e-11, rtol=1e-11)


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
        for module in (linear, blockwise):
            name = f"{module.__name__.rsplit('.', 1)[1]}_relational_attention"
            patch.setattr(relational, name, partial(getattr(module, name), block=block))
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
        patch.setattr(relational, "sdpa_relational_attention", partial(sdpa.sdpa_relational_attention, columns=columns))
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


def test_bias_is_added_to_the_scores_and_minus_infinity_masks():
    leaves, index, mask = draw_inputs()
    bias = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -torch.inf)
    biased = run(relational_attention, leaves, index, bias=bias)
    assert_same_with_gradients(biased, run(reference.relational_attention, leaves, index, mask=mask), leaves)
    assert (biased[0, 0, 0] == 0).all()


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


@pytest.mark.parametrize("activation", ["identity", "tanh"])
def test_gradients_under_dropout_are_those_of_the_mask_of_the_forward_pass(activation):
    leaves, _, _ = draw_inputs(n=3, m=3, batch=1, width=2)

    def operation(*leaves):
        torch.manual_seed(5)
        return run(relational_attention, leaves, None, dropout=0.4, impl="linear", rel_activation=activation)

    assert torch.autograd.gradcheck(operation, leaves)


def test_dropout_of_linear_keeps_the_mean():
    leaves, _, _ = draw_inputs(batch=1, n=2, m=3)
    wanted = run(relational_attention, leaves, None)
    drawn = [run(relational_attention, leaves, None, dropout=0.3, impl="linear").detach() for _ in range(3000)]
    torch.testing.assert_close(torch.stack(drawn).mean(0), wanted.detach(), atol=0.15, rtol=0.1)


def test_a_second_derivative_is_refused_not_wrong():
    leaves, _, _ = draw_inputs()
    out = run(relational_attention, leaves, None, impl="linear")
    (first,) = torch.autograd.grad(out.square().sum(), leaves[0], create_graph=True)
    with pytest.raises(RuntimeError, match="linear_relational_attention_backward"):
        first.square().sum().backward()


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


def test_softmax_relations_refuse_a_mask_of_each_head():
    leaves, _, mask = draw_inputs()
    with pytest.raises(ValueError, match="shared by all heads"):
        run(relational_attention, leaves, None, rel_activation="softmax", mask=mask)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"impl": "linear", "need_weights": True}, "impl='linear'"),
        ({"impl": "sdpa", "need_weights": True}, "impl='sdpa' needs need_weights=False"),
        ({"impl": "sdpa", "dropout": 0.1}, "impl='sdpa' .*dropout=0.1"),
        ({"impl": "sdpa", "rel_activation": "softmax"}, "impl='sdpa' .*'softmax'"),
        ({"impl": "fast"}, "impl: expected one of"),
        ({"rel_activation": "swish"}, "activation: expected one of"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments, message):
    leaves, index, _ = draw_inputs()
    with pytest.raises(ValueError, match=message):
        run(relational_attention, leaves, index, **arguments)


def test_a_symbol_for_each_pair_is_dense_by_nature():
    leaves, index, mask = draw_inputs(symbols="of pairs", n=7, m=8)
    ours = run(relational_attention, leaves, index, mask=mask)
    assert_same_with_gradients(ours, run(reference.relational_attention, leaves, index, mask=mask), leaves)
    with pytest.raises(ValueError, match=r"at most 2 \(N \+ M\)"):
        run(relational_attention, leaves, index, impl="linear")


# q is measured against k, and u against w: the second of each pair is the one that is named
@pytest.mark.parametrize("position, name", list(enumerate(["k", "k", "w", "w", "symbols", "w_r"])))
def test_wrong_shapes_are_named(position, name):
    leaves, index, _ = draw_inputs()
    leaves[position] = leaves[position][..., :-1]
    with pytest.raises(ValueError, match=f"^{name}: expected shape"):
        run(relational_attention, leaves, index)


def test_relative_symbols_check_their_parts():
    with pytest.raises(ValueError, match="index"):
        RelativeSymbols(torch.zeros(3, 2), torch.zeros(2, 2))
    with pytest.raises(ValueError, match="library"):
        RelativeSymbols(torch.zeros(3), torch.zeros(2, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="position-relative"):
        RelativeSymbols.from_dense(torch.zeros(3, 2))


def test_dense_symbols_round_trip():
    dense = torch.randn(3, 4, 2)
    symbols = RelativeSymbols.from_dense(dense)
    assert symbols.shape == (3, 4, 2) and torch.equal(symbols.dense(), dense)


def test_symbols_of_offsets():
    """The index that is never built when a kernel computes it, and the symbols that it stands for."""
    library = torch.randn(5, 3, dtype=torch.float64)
    symbols = OffsetSymbols(library, 4, 6)
    assert symbols.shape == (4, 6, 3) and symbols.max_offset == 2
    for i in range(4):
        for j in range(6):
            assert torch.equal(symbols.dense()[i, j], library[max(-2, min(2, j - i)) + 2])
    projected = symbols.with_library(2 * library)
    assert isinstance(projected, OffsetSymbols) and torch.equal(projected.dense(), 2 * symbols.dense())
    plain = RelativeSymbols(library, symbols.index).with_library(2 * library)
    assert torch.equal(plain.dense(), projected.dense())
    with pytest.raises(ValueError, match=r"2 P \+ 1"):
        OffsetSymbols(library[:4], 4, 6)


@pytest.mark.parametrize("impl", ["reference", "dense", "linear"])
def test_symbols_of_offsets_are_relative_symbols(impl):
    leaves, _, mask = draw_inputs(symbols="relative")
    q, k, u, w, s, w_r = leaves
    s = torch.cat([s, s[:1]])  # an odd number of rows
    symbols = OffsetSymbols(s, 4, 5)
    ours = relational_attention(q, k, u, w, symbols, w_r, **SCALES, mask=mask, impl=impl).output
    theirs = run(reference.relational_attention, [q, k, u, w, s, w_r], symbols.index, mask=mask)
    assert_same_with_gradients(ours, theirs, leaves)
    with pytest.raises(ValueError, match="symbols: expected pairs"):
        relational_attention(q, k, u, w, OffsetSymbols(s, 5, 5), w_r, **SCALES, impl=impl)


EVERY = ["reference", "dense", "linear", "sdpa"]
FULL = (2, 4, 4, 5)  # (B, H, N, M) of draw_inputs()


def boolean(*shape, device=None):
    return torch.ones(shape, dtype=torch.bool, device=device)


@pytest.mark.parametrize("impl", EVERY)
@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"dropout": -0.1}, ValueError, "^dropout: expected a rate"),
        ({"dropout": 1.0}, ValueError, "^dropout: expected a rate"),
        ({"mask": torch.ones(FULL)}, TypeError, "^mask: expected a boolean tensor"),
        ({"mask": boolean(1, 1, 5, 5)}, ValueError, "^mask: expected shape"),
        ({"mask": boolean(1, 1, 4, 6)}, ValueError, "^mask: expected shape"),
        ({"mask": boolean(1, 3, 4, 5)}, ValueError, "^mask: expected shape"),
        ({"mask": boolean(*FULL, device="meta")}, ValueError, "^mask: expected a tensor on cpu"),
        ({"mask": MaskPattern(5, 9, causal=True)}, ValueError, r"^mask: expected a pattern of \(N, M\) = \(4, 5\)"),
        ({"mask": MaskPattern(4, 5, padding=boolean(3, 5))}, ValueError, "^padding_mask: expected shape"),
        ({"bias": boolean(*FULL)}, TypeError, "^bias: expected a floating-point tensor"),
        ({"bias": torch.zeros(1, 1, 5, 5)}, ValueError, "^bias: expected shape"),
        ({"bias": torch.zeros(FULL, device="meta")}, ValueError, "^bias: expected a tensor on cpu"),
    ],
)
def test_wrong_arguments_are_named_whatever_computes(impl, arguments, error, message):
    leaves, _, _ = draw_inputs()
    with pytest.raises(error, match=message):
        run(relational_attention, leaves, None, impl=impl, **arguments)


@pytest.mark.parametrize("impl", EVERY)
@pytest.mark.parametrize("position, name", list(enumerate(["k", "k", "u", "w", "symbols", "w_r"])))
def test_other_types_and_devices_are_named(impl, position, name):
    """The first tensor that differs from q; if that is q itself, the next."""
    leaves, _, _ = draw_inputs()
    mixed = [leaf.float() if i == position else leaf for i, leaf in enumerate(leaves)]
    with pytest.raises(TypeError, match=f"^{name}: expected dtype"):
        run(relational_attention, mixed, None, impl=impl)
    mixed = [leaf.to("meta") if i == position else leaf for i, leaf in enumerate(leaves)]
    with pytest.raises(ValueError, match=f"^{name}: expected a tensor on"):
        run(relational_attention, mixed, None, impl=impl)


@pytest.mark.parametrize("impl", EVERY)
def test_a_wide_bias_beside_narrow_tensors(impl):
    leaves, _, _ = draw_inputs(n=5)
    bias = torch.randn(1, 1, 5, 5, dtype=torch.float64).masked_fill(~boolean(5, 5).tril(), -torch.inf)
    wanted = run(reference.relational_attention, leaves, None, bias=bias)
    narrow = [leaf.bfloat16() for leaf in leaves]
    ours = run(relational_attention, narrow, None, bias=bias.float(), impl=impl)
    assert ours.dtype == torch.bfloat16
    torch.testing.assert_close(ours.double(), wanted, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("impl", EVERY)
@pytest.mark.parametrize("activation", ["identity", "relu", "softmax"])
@pytest.mark.parametrize("empty", [{"n": 0}, {"m": 0}, {"batch": 0}, {"n": 0, "m": 0}], ids=str)
def test_nothing_to_compute(impl, activation, empty):
    if impl == "sdpa" and activation != "identity":
        pytest.skip("library attention is for the identity alone")
    leaves, _, _ = draw_inputs(**empty)
    output = run(relational_attention, leaves, None, impl=impl, rel_activation=activation)
    assert output.shape == (*leaves[0].shape[:3], 3)
    for leaf, grad in zip(leaves, torch.autograd.grad(output.sum(), leaves), strict=True):
        assert grad.shape == leaf.shape and (grad == 0).all()


@pytest.mark.parametrize("impl", EVERY)
def test_no_relations_are_refused(impl):
    leaves, _, _ = draw_inputs(n_relations=0)
    with pytest.raises(ValueError, match=r"^u: expected at least one relation"):
        run(relational_attention, leaves, None, impl=impl)


@pytest.mark.parametrize("impl", ["dense", "linear", "sdpa"])
@pytest.mark.parametrize("offset, n", [(-2, 5), (3, 6)])
def test_receivers_without_a_place_of_their_own(impl, offset, n):
    """A pattern made by hand may put receivers before the first sender, or beyond the last."""
    leaves, _, _ = draw_inputs(n=n, m=5)
    pattern = MaskPattern(n, 5, causal=True, window=2, offset=offset)
    wanted = run(reference.relational_attention, leaves, None, mask=pattern.dense(None))
    assert_same_with_gradients(run(relational_attention, leaves, None, mask=pattern, impl=impl), wanted, leaves)


@pytest.mark.parametrize("impl", ["dense", "linear", "sdpa"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("position", range(5))
def test_padding_reaches_no_further_than_in_the_reference(impl, value, position):
    """NaN or infinity in padded receivers and senders: where the reference is finite at real places, so is the rest."""
    leaves, _, _ = draw_inputs(n=6, m=6)
    real = boolean(2, 6)
    real[0, 4:] = False
    along = 1 if position in (2, 3) else 2
    with torch.no_grad():
        leaves[position][0].narrow(along - 1, 4, 2).fill_(value)
    pattern = MaskPattern(6, 6, padding=real, causal=True)

    def results(**arguments):
        output = run(relational_attention, leaves, None, mask=pattern, **arguments)
        grads = torch.autograd.grad(output.where(real[:, None, :, None], 0.0).pow(2).sum(), leaves)
        places = [x.movedim(axis, 1)[real] for x, axis in zip((output, *grads[:5]), (2, 2, 2, 1, 1, 2), strict=True)]
        return [*places, grads[5]]

    for ours, wanted in zip(results(impl=impl), results(impl="reference"), strict=True):
        finite = wanted.isfinite()
        torch.testing.assert_close(ours[finite], wanted[finite], atol=1e-11, rtol=1e-11)


class OfLength(torch.nn.Module):
    """Relational attention of a sequence with itself, of tensors that the length of one decides."""

    def __init__(self, activation, relative):
        super().__init__()
        self.activation, self.relative = activation, relative

    def forward(self, x):
        heads, symbols = x[:, None], x[:, None]
        if self.relative:
            symbols = OffsetSymbols(torch.linspace(0, 1, 4 * 19, dtype=x.dtype).view(19, 1, 4), *(x.shape[1],) * 2)
        relations = x[:, :, None]
        arguments = {"mask": MaskPattern(x.shape[1], x.shape[1], causal=True), "rel_activation": self.activation}
        w_r = x.new_ones(1, 4, 1)
        return relational_attention(heads, heads, relations, relations, symbols, w_r, **SCALES, **arguments).output


@pytest.mark.parametrize("activation", ["identity", "relu", "softmax"])
@pytest.mark.parametrize("relative", [False, True])
def test_export_with_a_length_left_open(activation, relative):
    """One graph for lengths at which different implementations would be chosen."""
    module = OfLength(activation, relative)
    length = torch.export.Dim("length", min=2, max=1024)
    shapes = {"x": {1: length}}
    exported = torch.export.export(module, (normal(2, 8, 4),), dynamic_shapes=shapes, strict=False).module()
    for n in (3, 40, 300):
        x = normal(2, n, 4)
        torch.testing.assert_close(exported(x), module(x), atol=1e-11, rtol=1e-11)
