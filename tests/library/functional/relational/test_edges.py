"""Relational attention at the edges: what is refused, kinds of symbols, nothing to compute, padding, export."""

import itertools

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from dual_attention.functional import MaskPattern, OffsetSymbols, RelativeSymbols, reference, relational_attention
from dual_attention.functional.relational import blockwise, linear, pair_symbols
from tests.support.refusals import refused
from tests.support.tensors import normal

from .inputs import SCALES, assert_same_with_gradients, boolean, draw_inputs, run


def done(**options):
    return run(relational_attention, *draw_inputs()[:2], **options)


test_what_is_refused = refused(
    (lambda: done(impl="linear", need_weights=True), "impl='linear'"),
    (lambda: done(impl="sdpa", need_weights=True), "impl='sdpa' needs need_weights=False"),
    (lambda: done(impl="sdpa", dropout=0.1), "impl='sdpa' .*dropout=0.1"),
    (lambda: done(impl="sdpa", rel_activation="softmax"), "impl='sdpa' .*'softmax'"),
    (lambda: done(impl="fast"), "impl: expected one of"),
    (lambda: done(rel_activation="swish"), "^rel_activation: expected one of"),
    (lambda: RelativeSymbols(torch.zeros(3, 2), torch.zeros(2, 2)), "index"),
    (lambda: RelativeSymbols(torch.zeros(3), torch.zeros(2, 2, dtype=torch.long)), "library"),
    (lambda: RelativeSymbols.from_dense(torch.zeros(3, 2)), "position-relative"),
    (lambda: OffsetSymbols(torch.zeros(4, 3), 4, 6), r"2 P \+ 1"),
    (lambda: run(relational_attention, *draw_inputs(symbols="of pairs", n=7, m=8)[:2], impl="linear"), "at most 2 "),
)


def test_a_symbol_for_each_pair_is_dense_by_nature():
    leaves, index, mask = draw_inputs(symbols="of pairs", n=7, m=8)
    ours = run(relational_attention, leaves, index, mask=mask)
    assert_same_with_gradients(ours, run(reference.relational_attention, leaves, index, mask=mask), leaves)


# q is measured against k, and u against w: the second of each pair is the one that is named
@pytest.mark.parametrize("position, name", list(enumerate(["k", "k", "w", "w", "symbols", "w_r"])))
def test_wrong_shapes_are_named(position, name):
    leaves, index, _ = draw_inputs()
    leaves[position] = leaves[position][..., :-1]
    with pytest.raises(ValueError, match=f"^{name}: expected shape"):
        run(relational_attention, leaves, index)


@pytest.mark.parametrize("impl", ["reference", "dense", "linear"])
def test_symbols_of_offsets_are_relative_symbols(impl):
    leaves, _, mask = draw_inputs(symbols="relative")
    q, k, u, w, s, w_r = leaves
    s = torch.cat([s, s[:1]])  # an odd number of rows
    symbols = OffsetSymbols(s, 4, 5, offset=1)
    ours = relational_attention(q, k, u, w, symbols, w_r, **SCALES, mask=mask, impl=impl).output
    theirs = run(reference.relational_attention, [q, k, u, w, s, w_r], symbols.index, mask=mask)
    assert_same_with_gradients(ours, theirs, leaves)


@pytest.mark.parametrize("impl", ["reference", "dense", "linear"])
def test_symbols_of_other_offsets_are_refused(impl):
    q, k, u, w, s, w_r = draw_inputs(symbols="relative")[0]
    with pytest.raises(ValueError, match="symbols: expected pairs"):
        relational_attention(q, k, u, w, OffsetSymbols(s[:3], 5, 5), w_r, **SCALES, impl=impl)


def test_dense_symbols_round_trip():
    dense = torch.randn(3, 4, 2)
    symbols = RelativeSymbols.from_dense(dense)
    assert symbols.shape == (3, 4, 2) and torch.equal(symbols.dense(), dense)


@pytest.mark.parametrize("offset", [0, 2, -1])
def test_symbols_of_offsets(offset):
    """The index that is never built when a kernel computes it, and the symbols that it stands for."""
    library = torch.randn(5, 3, dtype=torch.float64)
    symbols = OffsetSymbols(library, 4, 6, offset)
    assert symbols.shape == (4, 6, 3) and symbols.max_offset == 2
    for i in range(4):
        for j in range(6):
            assert torch.equal(symbols.dense()[i, j], library[max(-2, min(2, j - i - offset)) + 2])
    for m in (6, 4, 1):
        last = symbols.last_senders(m)
        assert isinstance(last, OffsetSymbols) and torch.equal(last.dense(), symbols.dense()[:, 6 - m :])
    projected = symbols.with_library(2 * library)
    assert isinstance(projected, OffsetSymbols) and torch.equal(projected.dense(), 2 * symbols.dense())
    plain = RelativeSymbols(library, symbols.index).with_library(2 * library)
    assert torch.equal(plain.dense(), projected.dense())


EVERY = ["reference", "dense", "linear", "sdpa"]
FULL = (2, 4, 4, 5)  # (B, H, N, M) of draw_inputs()


def given(**of):
    return dict(zip(("q", "k", "u", "w", "symbols", "w_r"), draw_inputs(**of)[0], strict=True))


test_wrong_arguments_are_named_whatever_computes = pytest.mark.parametrize("impl", EVERY)(refused(
    ({"dropout": -0.1}, "^dropout: expected a rate"),
    ({"dropout": 1.0}, "^dropout: expected a rate"),
    ({"mask": torch.ones(FULL)}, TypeError, "^mask: expected a boolean tensor"),
    ({"mask": boolean(1, 1, 5, 5)}, "^mask: expected shape"),
    ({"mask": boolean(1, 1, 4, 6)}, "^mask: expected shape"),
    ({"mask": boolean(1, 3, 4, 5)}, "^mask: expected shape"),
    ({"mask": boolean(*FULL, device="meta")}, "^mask: expected a tensor on cpu"),
    ({"mask": MaskPattern(5, 9, causal=True)}, r"^mask: expected a pattern of \(N, M\) = \(4, 5\)"),
    ({"mask": MaskPattern(4, 5, padding=boolean(3, 5))}, "^padding_mask: expected shape"),
    ({"bias": boolean(*FULL)}, TypeError, "^bias: expected a floating-point tensor"),
    ({"bias": torch.zeros(1, 1, 5, 5)}, "^bias: expected shape"),
    ({"bias": torch.zeros(FULL, device="meta")}, "^bias: expected a tensor on cpu"),
    ({"mask": MaskPattern(4, 5, boolean(4, 5))}, r"^attn_mask: expected 4 axes, got shape \(4, 5\)"),
    ({"mask": MaskPattern(4, 5, receiver_segments=torch.zeros(2, 4))}, "^segments: .* of senders"),
    ({"mask": MaskPattern(4, 5, sender_segments=torch.zeros(2, 5))}, "^segments: .* of receivers"),
    ({"scale": None}, TypeError, "^scale: expected a number, got None"),
    ({"rel_scale": "1"}, TypeError, "^rel_scale: expected a number, got '1'"),
    ({"scale": float("nan")}, "^scale: expected a finite number"),
    ({"scale": 10**400}, r"^scale: expected a number that floats hold, got an integer of 1,329 bits"),
    ({"rel_activation": ["tanh"]}, TypeError, "^rel_activation: expected a name or a function"),
    ({"symbols": None}, TypeError, "^symbols: expected a tensor, got NoneType"),
    ({"symbols": [[1.0]]}, TypeError, "^symbols: expected a tensor, got list"),
    ({"symbols": torch.tensor(1.0)}, r"^symbols: expected 4 axes, got shape \(\)"),
    (given(n_relations=0), "^u: expected at least one relation"),
    by=lambda arguments, *, impl: relational_attention(**{**given(), **SCALES, "impl": impl, **arguments}),
))  # fmt: skip


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


@pytest.mark.parametrize("shape", [(1, 1, 4, 1), (2, 1, 4, 5), (2, 4, 4, 5)], ids=str)
@pytest.mark.parametrize("impl", [*EVERY, "blockwise"])
def test_minus_infinity_hides_as_a_mask_does(impl, shape, monkeypatch):
    """Receivers from which a bias hides all senders, alone or with a mask, get zeros; in blocks and groups, too."""
    monkeypatch.setattr(linear, "block_size", lambda heads, m: 3)
    monkeypatch.setattr(linear, "examples_at_a_time", lambda *_, **more: 1)
    monkeypatch.setattr(blockwise, "BLOCK", 3)
    leaves, _, mask = draw_inputs()
    bias = normal(*shape).masked_fill(torch.rand(shape) < 0.3, -torch.inf)
    bias[:, :, 1] = -torch.inf
    mask[:, :, 2] = bias.expand(FULL)[:, :, 2] == -torch.inf
    bias.requires_grad_()
    for given, hidden in ((None, slice(1, 2)), (mask, slice(1, 3))):
        ours = run(relational_attention, leaves, None, mask=given, bias=bias, impl=impl)
        assert (ours[:, :, hidden] == 0).all()
        seen, finite = bias != -torch.inf, bias.where(bias != -torch.inf, 0.0)
        how = {"mask": seen if given is None else seen & given, "bias": finite}
        assert_same_with_gradients(ours, run(reference.relational_attention, leaves, None, **how), [*leaves, bias])


EMPTY = pytest.mark.parametrize("empty", [{"n": 0}, {"m": 0}, {"batch": 0}, {"n": 0, "m": 0}], ids=str)


@pytest.mark.parametrize(
    ("impl", "activation"),
    [*itertools.product(["reference", "dense", "linear"], ["identity", "relu", "softmax"]), ("sdpa", "identity")],
)
@EMPTY
def test_nothing_to_compute(impl, activation, empty):
    leaves, _, _ = draw_inputs(**empty)
    output = run(relational_attention, leaves, None, impl=impl, rel_activation=activation)
    assert output.shape == (*leaves[0].shape[:3], 3)
    for leaf, grad in zip(leaves, torch.autograd.grad(output.sum(), leaves), strict=True):
        assert grad.shape == leaf.shape and (grad == 0).all()


@pytest.mark.parametrize("activation", ["relu", "softmax"])
@EMPTY
def test_library_attention_is_for_the_identity_alone(activation, empty):
    """Whatever there is to compute."""
    leaves, _, _ = draw_inputs(**empty)
    with pytest.raises(ValueError, match=f"impl='sdpa' .*'{activation}'"):
        run(relational_attention, leaves, None, impl="sdpa", rel_activation=activation)


@pytest.mark.parametrize("impl", ["dense", "linear", "sdpa"])
@pytest.mark.parametrize(
    "pattern",
    [
        MaskPattern(5, 5, causal=True, window=2, offset=-2),
        MaskPattern(6, 5, causal=True, window=2, offset=3),
        MaskPattern(3, 5, None, None, torch.tensor([[0, 2, 1]]), torch.tensor([[0, 0, 1, 1, 1]])),
    ],
    ids=["before the first sender", "beyond the last", "of another segment"],
)
def test_receivers_without_a_place_of_their_own(impl, pattern):
    leaves, _, _ = draw_inputs(n=pattern.n, m=5)
    wanted = run(reference.relational_attention, leaves, None, mask=pattern.dense(None))
    assert (wanted == 0).all(dim=-1).any() and wanted.isfinite().all()
    assert_same_with_gradients(run(relational_attention, leaves, None, mask=pattern, impl=impl), wanted, leaves)


def test_blocks_without_senders(monkeypatch):
    monkeypatch.setattr(linear, "block_size", lambda heads, m: 2)
    leaves, _, _ = draw_inputs(n=5, m=5)
    pattern = MaskPattern(5, 5, causal=True, offset=-2)
    wanted = run(reference.relational_attention, leaves, None, mask=pattern.dense(None))
    torch.use_deterministic_algorithms(True)  # which fills what is not written with NaN
    try:
        assert_same_with_gradients(run(relational_attention, leaves, None, mask=pattern, impl="linear"), wanted, leaves)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("impl", ["reference", "dense", "linear", "sdpa"])
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

    def oracle(q, k, u, w, s, w_r, **how):
        """The equation of padded senders that hold zeros."""
        k, s, w = (x.where(real.view(at), 0.0) for x, at in ((k, (2, 1, 6, 1)), (s, (2, 1, 6, 1)), (w, (2, 6, 1, 1))))
        return reference.relational_attention(q, k, u, w, s, w_r, **how)

    def results(operation, mask, **arguments):
        output = run(operation, leaves, None, mask=mask, **arguments)
        grads = torch.autograd.grad(output.where(real[:, None, :, None], 0.0).pow(2).sum(), leaves)
        places = [x.movedim(axis, 1)[real] for x, axis in zip((output, *grads[:5]), (2, 2, 2, 1, 1, 2), strict=True)]
        return [*places, grads[5]]

    of_oracle = results(oracle, pattern.dense(None))
    for ours, wanted in zip(results(relational_attention, pattern, impl=impl), of_oracle, strict=True):
        finite = wanted.isfinite()
        torch.testing.assert_close(ours[finite], wanted[finite], atol=1e-11, rtol=1e-11)


def test_symbols_are_written_out_where_many_weights_share_them():
    assert pair_symbols.worth_writing_out(65 * 65, 3 * 32, maps=128 * 6)
    assert not pair_symbols.worth_writing_out(65 * 65, 3 * 32, maps=6)
    assert not pair_symbols.worth_writing_out(1024 * 1024, 3 * 32, maps=128 * 6)
    table, index = torch.randn(9, 2, 3), torch.randint(9, (4, 5))
    assert pair_symbols.pair_symbols(table, index, 4, 5, maps=12) is not None
    assert pair_symbols.pair_symbols(table, index, 4, 5, maps=11) is None
    assert pair_symbols.pair_symbols(table, None, 4, 5, maps=12) is None


@pytest.mark.parametrize("impl", ["reference", "dense"])
@pytest.mark.parametrize("activation", ["identity", "sigmoid", "softmax"])
def test_returned_relations_are_not_masked(impl, activation):
    """They are those of padded senders too, as they were given, except for softmax, which leaves them out."""
    leaves, _, _ = draw_inputs()
    real = boolean(2, 5)
    real[0, 3:] = False
    how = {**SCALES, "rel_activation": activation, "need_weights": True, "impl": impl}
    maps = relational_attention(*leaves, mask=MaskPattern(4, 5, padding=real), **how)
    mask = real[:, None, None] if activation == "softmax" else None
    wanted = reference.relations(leaves[2], leaves[3], scale=SCALES["rel_scale"], activation=activation, mask=mask)
    torch.testing.assert_close(maps.relations, wanted)
    assert (maps.relations[0, :, 3:] == 0).all() == (activation == "softmax")
    leaves[3].data[0, 3:] = torch.nan
    again = relational_attention(*leaves, mask=MaskPattern(4, 5, padding=real), **how)
    torch.testing.assert_close(again.output, maps.output)
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(again.output.sum(), leaves))


def test_relations_of_width_one_are_a_product_that_is_counted():
    u, w = normal(2, 4, 3, 1), normal(2, 5, 3, 1)
    with FlopCounterMode(display=False) as counter:
        relations = reference.relations(u, w, scale=0.5, activation="tanh")
    torch.testing.assert_close(relations, torch.tanh(0.5 * u[:, :, None, :, 0] * w[:, None, :, :, 0]))
    assert counter.get_total_flops() == 2 * 2 * 4 * 5 * 3
