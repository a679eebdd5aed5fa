"""The implementations of relational attention against the reference, forward and every gradient."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dual_attention.functional import ACTIVATIONS, RelativeSymbols, reference, relational_attention

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
    mask[0, 0, 0] = False
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


@given(
    sizes=st.fixed_dictionaries(
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
            "symbols": st.sampled_from(["shared", "one batch", "relative", "of pairs"]),
        }
    ),
    with_mask=st.booleans(),
    impl=st.sampled_from(["auto", "dense", "linear"]),
)
def test_every_implementation_is_the_reference(sizes, with_mask, impl):
    leaves, index, mask = draw_inputs(**sizes)
    mask = mask if with_mask else None
    ours = run(relational_attention, leaves, index, mask=mask, impl=impl)
    theirs = run(reference.relational_attention, leaves, index, mask=mask)
    assert_same_with_gradients(ours, theirs, leaves)


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


def test_dropout_hits_symbols_and_relations_alike():
    """Dropping weights is dropping whole messages: the same weights explain symbols and relations."""
    leaves, _, _ = draw_inputs()
    results = []
    for impl in ("linear", "dense", "reference"):
        torch.manual_seed(3)
        results.append(run(relational_attention, leaves, None, dropout=0.5, impl=impl))
    torch.testing.assert_close(results[0], results[2])
    torch.testing.assert_close(results[1], results[2])
    assert not torch.allclose(results[0], run(relational_attention, leaves, None))


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


def test_softmax_relations_refuse_a_mask_of_each_head():
    leaves, _, mask = draw_inputs()
    with pytest.raises(ValueError, match="shared by all heads"):
        run(relational_attention, leaves, None, rel_activation="softmax", mask=mask)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"impl": "linear", "rel_activation": "relu"}, "impl='linear'"),
        ({"impl": "linear", "need_weights": True}, "impl='linear'"),
        ({"impl": "fast"}, "impl: expected one of"),
        ({"rel_activation": "swish"}, "activation: expected one of"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments, message):
    leaves, index, _ = draw_inputs()
    with pytest.raises(ValueError, match=message):
        run(relational_attention, leaves, index, **arguments)


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
