"""Observed operations equal those of the same names, and an observer may replace what it sees."""

from __future__ import annotations

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
from dual_attention.functional.observed import (
    observed_attention,
    observed_disentangled_relational_cross_attention,
    observed_relational_attention,
    observed_relational_cross_attention,
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
    """An operation, its observed form, their arguments, and whether they have a symbol to each sender."""
    q, k = normal(B, H, N, D), normal(B, G, M, D)
    symbols = normal(B, G, M, D)
    relative = OffsetSymbols(normal(5, G, D), N, M, offset=1)
    relations = {"scale": 0.4, "rel_scale": 0.7}
    u, w, w_r = normal(B, N, R, P), normal(B, M, R, P), normal(H, D, R)
    return {
        "attention": (attention, observed_attention, (q, k, normal(B, G, M, D)), {"scale": 0.4}),
        "relational": (relational_attention, observed_relational_attention, (q, k, u, w, symbols, w_r), relations),
        "one for all": (relational_attention, observed_relational_attention, (q, k, u, w, symbols[:1], w_r), relations),
        "relative": (relational_attention, observed_relational_attention, (q, k, u, w, relative, w_r), relations),
        "softmax": (
            relational_attention,
            observed_relational_attention,
            (q, k, u, w, symbols, w_r),
            {**relations, "rel_activation": "softmax"},
        ),
        "rca": (relational_cross_attention, observed_relational_cross_attention, (q, k, symbols), {"scale": 0.4}),
        "rca relu": (
            relational_cross_attention,
            observed_relational_cross_attention,
            (q, k, relative),
            {"scale": 0.4, "activation": "relu"},
        ),
        "disrca": (
            disentangled_relational_cross_attention,
            observed_disentangled_relational_cross_attention,
            (q, k, normal(B, H, N, D), normal(B, G, M, D), symbols),
            {"scale": 0.4, "rel_activation": "softmax"},
        ),
    }[kind]


KINDS = ["attention", "relational", "one for all", "relative", "softmax", "rca", "rca relu", "disrca"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hiding", ["none", "padding", "mask", "bias"])
@pytest.mark.parametrize("need_weights", [False, True])
def test_they_equal_the_operations_of_the_same_names(kind, hiding, need_weights):
    plain, observed, inputs, options = operands(kind)
    options = {**options, **masks()[hiding], "need_weights": need_weights}
    if hiding in ("padding", "mask"):  # what padding holds does not matter
        inputs[1][0, :, -2:] = torch.nan
    wanted = plain(*inputs, **options)
    for names in (None, ("weights",)):
        for got, value in zip(observed(Seeing(names), *inputs, **options), wanted, strict=True):
            assert (got is None) == (value is None)
            if value is not None:
                torch.testing.assert_close(got, value, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_seen_has_the_shapes_that_are_told(kind):
    _, observed, inputs, options = operands(kind)
    watch = Seeing()
    observed(watch, *inputs, **options, **masks()["mask"])
    shapes = {name: tuple(x.shape) for name, x in watch.seen.items()}
    wanted = {"visible": (B, 1, N, M), "weights": (B, H, N, M)}
    if kind != "attention":
        values = {"relative": (1, H, 5, D), "rca relu": (1, H, 5, D), "one for all": (1, H, M, D)}
        wanted |= {"symbol_values": values.get(kind, (B, H, M, D)), "symbol_message": (B, H, N, D)}
    if kind in ("relational", "one for all", "relative", "softmax"):
        wanted |= {"relations": (B, N, M, R), "relational_message": (B, H, N, D)}
    if kind == "disrca":
        wanted["relations"] = (B, N, M, H)
    assert shapes == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_that_an_observer_hides_are_masked(kind):
    """Attention knockout."""
    plain, observed, inputs, options = operands(kind)
    mask = torch.ones(N, M, dtype=torch.bool)
    mask[3, 2] = mask[1, 0] = False
    wanted = plain(*inputs, **options, mask=mask[None, None])[0]
    watch = Seeing(visible=lambda shown: shown & mask)
    torch.testing.assert_close(observed(watch, *inputs, **options)[0], wanted, atol=1e-12, rtol=0)


def test_messages_add_up():
    _, observed, inputs, options = operands("relational")
    watch = Seeing(relational_message=lambda x: 2 * x, symbol_message=lambda x: -x)
    plain = Seeing()
    observed(plain, *inputs, **options)
    wanted = 2 * plain.seen["relational_message"] - plain.seen["symbol_message"]
    torch.testing.assert_close(observed(watch, *inputs, **options)[0], wanted)


def test_relations_that_nobody_watches_are_not_built():
    _, observed, inputs, options = operands("relational")
    watch = Seeing(("weights",))
    observed(watch, *inputs, **options)
    assert "relations" not in watch.seen


def test_dropout_acts_on_what_the_observer_leaves():
    _, observed, inputs, options = operands("attention")
    watch = Seeing(weights=torch.zeros_like)
    assert not observed(watch, *inputs, **options, dropout=0.5)[0].any()
    torch.manual_seed(1)
    found = observed(Seeing(), *inputs, **options, dropout=0.5, need_weights=True)
    torch.manual_seed(1)
    wanted = attention(*inputs, **options, dropout=0.5, need_weights=True)
    for got, value in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, value, atol=1e-12, rtol=0)
