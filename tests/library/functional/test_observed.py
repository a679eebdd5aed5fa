"""Operations are the same with an observer, which may replace what it sees."""

from functools import partial

import pytest
import torch

from dual_attention.functional import (
    OffsetSymbols,
    attention,
    disentangled_relational_cross_attention,
    mask_pattern,
    relational_attention,
    relational_cross_attention,
)

B, H, G, N, M, D, R, P = 3, 4, 2, 5, 6, 8, 3, 2


class Seeing:
    """Remembers what it sees, and replaces what it is told to."""

    def __init__(self, names=None, **replace):
        self.names, self.replace, self.seen = names, replace, {}

    def __call__(self, name, x):
        self.seen[name] = x
        return self.replace[name](x) if name in self.replace else x

    def watches(self, *names):
        return self.names is None or any(name in self.names for name in names)


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def masks():
    padding = torch.ones(B, M, dtype=torch.bool)
    padding[0, -2:] = False
    bias = normal(1, H, N, M)
    bias[:, 1, :, 2] = -torch.inf
    attn_mask = torch.rand(N, M) > 0.3
    attn_mask[2] = False  # nothing to attend
    sizes = {"batch": B, "heads": H, "n": N, "m": M}
    return {
        "none": {},
        "padding": {"mask": mask_pattern(None, padding, False, **sizes)},
        "mask": {"mask": mask_pattern(attn_mask, padding, False, **sizes)},
        "bias": {"bias": bias},
    }


def operands(kind):
    """An operation and its arguments."""
    q, k = normal(B, H, N, D), normal(B, G, M, D)
    symbols = normal(B, G, M, D)
    relative = OffsetSymbols(normal(5, G, D), N, M, offset=1)
    relations = {"scale": 0.4, "rel_scale": 0.7}
    u, w, w_r = normal(B, N, R, P), normal(B, M, R, P), normal(H, D, R)
    return {
        "attention": (attention, (q, k, normal(B, G, M, D)), {"scale": 0.4}),
        "relational": (relational_attention, (q, k, u, w, symbols, w_r), relations),
        "reference": (partial(relational_attention, impl="reference"), (q, k, u, w, symbols, w_r), relations),
        "one for all": (relational_attention, (q, k, u, w, symbols[:1], w_r), relations),
        "relative": (relational_attention, (q, k, u, w, relative, w_r), relations),
        "softmax": (relational_attention, (q, k, u, w, symbols, w_r), {**relations, "rel_activation": "softmax"}),
        "rca": (relational_cross_attention, (q, k, symbols), {"scale": 0.4}),
        "rca relu": (relational_cross_attention, (q, k, relative), {"scale": 0.4, "activation": "relu"}),
        "disrca": (
            disentangled_relational_cross_attention,
            (q, k, normal(B, H, N, D), normal(B, G, M, D), symbols),
            {"scale": 0.4, "rel_activation": "softmax"},
        ),
    }[kind]


KINDS = ["attention", "relational", "reference", "one for all", "relative", "softmax", "rca", "rca relu", "disrca"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hiding", ["none", "padding", "mask", "bias"])
@pytest.mark.parametrize("need_weights", [False, True])
def test_an_observer_that_only_looks_changes_nothing(kind, hiding, need_weights):
    operation, inputs, options = operands(kind)
    options = {**options, **masks()[hiding], "need_weights": need_weights}
    if hiding in ("padding", "mask"):  # what padding holds does not matter
        inputs[1][0, :, -2:] = torch.nan
    wanted = operation(*inputs, **options)
    for names in (None, ("weights",)):
        for got, value in zip(operation(*inputs, **options, observe=Seeing(names)), wanted, strict=True):
            assert (got is None) == (value is None)
            if value is not None:
                torch.testing.assert_close(got, value, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_seen_has_the_shapes_that_are_told(kind):
    operation, inputs, options = operands(kind)
    watch = Seeing()
    operation(*inputs, **options, **masks()["mask"], observe=watch)
    shapes = {name: tuple(x.shape) for name, x in watch.seen.items()}
    wanted = {"visible": (B, 1, N, M), "weights": (B, H, N, M)}
    if kind == "attention":
        wanted["values"] = (B, H, M, D)
    else:
        values = {"relative": (1, H, 5, D), "rca relu": (1, H, 5, D), "one for all": (1, H, M, D)}
        wanted |= {"symbol_values": values.get(kind, (B, H, M, D)), "symbol_message": (B, H, N, D)}
    if kind in ("relational", "reference", "one for all", "relative", "softmax"):
        wanted |= {"relations": (B, N, M, R), "relational_message": (B, H, N, D)}
    if kind == "disrca":
        wanted["relations"] = (B, N, M, H)
    assert shapes == wanted


@pytest.mark.sweep(1)
@pytest.mark.parametrize("hiding", ["none", "padding", "mask", "bias"])
@pytest.mark.parametrize("kind", ["attention", "relational", "reference", "rca", "disrca"])
def test_visible_pairs_are_those_with_weights(kind, hiding):
    operation, inputs, options = operands(kind)
    watch = Seeing()
    operation(*inputs, **options, **masks()[hiding], observe=watch)
    assert torch.equal(watch.seen["visible"].expand(B, H, N, M), watch.seen["weights"] != 0)


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_that_an_observer_hides_are_masked(kind):
    """Attention knockout."""
    operation, inputs, options = operands(kind)
    mask = torch.ones(N, M, dtype=torch.bool)
    mask[3, 2] = mask[1, 0] = False
    wanted = operation(*inputs, **options, mask=mask[None, None])[0]
    watch = Seeing(visible=lambda shown: shown & mask)
    torch.testing.assert_close(operation(*inputs, **options, observe=watch)[0], wanted, atol=1e-12, rtol=0)


def test_messages_add_up():
    operation, inputs, options = operands("relational")
    watch = Seeing(relational_message=lambda x: 2 * x, symbol_message=lambda x: -x)
    plain = Seeing()
    operation(*inputs, **options, observe=plain)
    wanted = 2 * plain.seen["relational_message"] - plain.seen["symbol_message"]
    torch.testing.assert_close(operation(*inputs, **options, observe=watch)[0], wanted)


def test_relations_that_nobody_watches_are_not_built():
    operation, inputs, options = operands("relational")
    watch = Seeing(("weights",))
    operation(*inputs, **options, observe=watch)
    assert "relations" not in watch.seen


def test_other_implementations_refuse_an_observer():
    operation, inputs, options = operands("relational")
    with pytest.raises(ValueError, match="impl: expected 'auto', 'dense' or 'reference' for an observer, got 'linear'"):
        operation(*inputs, **options, impl="linear", observe=Seeing())


def test_dropout_acts_on_what_the_observer_leaves():
    operation, inputs, options = operands("attention")
    watch = Seeing(weights=torch.zeros_like)
    assert not operation(*inputs, **options, dropout=0.5, observe=watch)[0].any()


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", KINDS)
def test_as_much_is_dropped_with_an_observer(kind):
    operation, inputs, options = operands(kind)
    torch.manual_seed(1)
    found = operation(*inputs, **options, dropout=0.5, need_weights=True, observe=Seeing())
    torch.manual_seed(1)
    wanted = operation(*inputs, **options, dropout=0.5, need_weights=True)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)
