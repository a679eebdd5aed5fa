"""Attention of one receiver in C against the equation in float64: sizes, masks, symbols; and where it is not taken."""

import os
import shutil
import sys
from unittest import mock

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

from dual_attention.functional import (
    MaskPattern,
    OffsetSymbols,
    RelativeSymbols,
    attention,
    compiled_step,
    explain_relational_attention,
    reference,
    relational_attention,
)
from dual_attention.functional.compiled_step import can_step
from dual_attention.functional.native.building import COMPILERS, SWITCH, UnavailableError
from dual_attention.functional.native.library import Library
from dual_attention.functional.relational import linear

# Where there is a compiler, a library that cannot be built is a failure.
pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or os.environ.get(SWITCH) == "0" or not any(map(shutil.which, COMPILERS)),
    reason="needs a compiler of C",
)

SCALE, REL_SCALE = 0.3, 0.7


def drawn(*, batch=2, groups=2, repeat=2, m=300, d=20, width=24, relations=5, p=3, held=320, of_symbols=None, seed=0):
    """Queries, keys, relation queries and keys, symbols and W_r; senders as a cache has them, with room behind them."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    heads = groups * repeat
    q = normal(batch, 1, heads, d).transpose(1, 2)
    k = normal(batch, groups, max(m, held), d)[:, :, :m]
    u, w = normal(batch, 1, relations, p), normal(batch, max(m, held), relations * p)[:, :m].unflatten(-1, (-1, p))
    s = normal(batch if of_symbols is None else of_symbols, groups, max(m, held), width)[:, :, :m]
    return q, k, u, w, s, normal(heads, width, relations)


def equation(q, k, u, w, symbols, w_r, mask=None):
    wide = [x.double() for x in (q, k, u, w)]
    symbols = (
        symbols.with_library(symbols.library.double()) if isinstance(symbols, RelativeSymbols) else symbols.double()
    )
    return reference.relational_attention(*wide, symbols, w_r.double(), scale=SCALE, rel_scale=REL_SCALE, mask=mask)[0]


def assert_equal_to_the_equation(tensors, mask=None):
    q, k, _, _, symbols, _ = tensors
    whole = None if mask is None else mask.dense(None)
    with mock.patch.object(linear, "step", wraps=linear.step) as taken:
        ours = relational_attention(*tensors, scale=SCALE, rel_scale=REL_SCALE, mask=mask).output
    assert taken.called
    theirs = equation(*tensors, mask=whole)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-5)
    if isinstance(symbols, RelativeSymbols):
        return
    assert can_step(q, None, 0.0, k, symbols)
    ours = attention(q, k, symbols.expand(q.shape[0], -1, -1, -1), scale=SCALE, mask=mask)[0]
    theirs = reference.attention(q.double(), k.double(), symbols.double(), scale=SCALE, mask=whole)[0]
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-5)


SIZES = [
    {},
    {"m": 1},
    {"m": 255},
    {"m": 256},
    {"m": 257, "held": 0},
    {"m": 7, "batch": 1, "groups": 1, "repeat": 1, "d": 1, "width": 1, "relations": 1, "p": 1},
    {"batch": 1, "groups": 8, "repeat": 1, "d": 64, "width": 64, "relations": 64, "p": 8, "m": 1000, "held": 1024},
    {"batch": 3, "groups": 1, "repeat": 20, "d": 33, "width": 70, "relations": 16, "p": 16},
    {"of_symbols": 1},
]


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: " ".join(f"{k}={v}" for k, v in sizes.items()) or "small")
def test_sizes(sizes):
    assert_equal_to_the_equation(drawn(**sizes))


def patterns(m):
    generator = torch.Generator().manual_seed(2)
    some = torch.rand(2, 4, 1, m, generator=generator) < 0.6
    padding = torch.arange(m) >= torch.tensor([[280], [3]])
    segments = torch.arange(m).div(60, rounding_mode="floor").expand(2, m)
    return {
        "a step of decoding": MaskPattern(1, m, causal=True, offset=m - 1),
        "later senders": MaskPattern(1, m, causal=True, offset=m - 70),
        "window": MaskPattern(1, m, causal=True, window=130, offset=m - 1),
        "padding": MaskPattern(1, m, padding=padding),
        "one padding": MaskPattern(1, m, padding=padding[:1]),
        "mask of heads": MaskPattern(1, m, some),
        "mask for all heads": MaskPattern(1, m, some[:, :1]),
        "mask of senders": MaskPattern(1, m, some[:1, :1]),
        "segments": MaskPattern(1, m, None, None, segments[:, m - 1 :], segments),
        "everything": MaskPattern(1, m, some, padding, segments[:, m - 1 :], segments, True, 100, m - 1),
        "nothing to see": MaskPattern(1, m, torch.zeros(1, 1, 1, 1, dtype=torch.bool)),
    }


@pytest.mark.parametrize("kind", patterns(300))
def test_masks(kind):
    assert_equal_to_the_equation(drawn(), patterns(300)[kind])


@pytest.mark.parametrize("kind", ["index", "offsets", "one for each pair"])
@pytest.mark.parametrize("hidden", [False, True])
def test_relative_symbols(kind, hidden):
    *tensors, _, w_r = drawn()
    generator = torch.Generator().manual_seed(3)
    library = torch.randn(301 if kind == "one for each pair" else 41, 2, 24, generator=generator)
    index = torch.randint(0, 41, (1, 600), generator=generator)[:, ::2]
    symbols = {
        "index": RelativeSymbols(library, index.int()),
        "offsets": OffsetSymbols(library, 1, 300, offset=299),
        "one for each pair": RelativeSymbols(library, torch.arange(300)[None]),
    }[kind]
    assert_equal_to_the_equation((*tensors, symbols, w_r), patterns(300)["padding"] if hidden else None)


@pytest.mark.parametrize("hole", [float("nan"), float("inf")])
def test_what_padded_senders_hold_is_not_read(hole):
    pattern = patterns(300)["padding"]
    tensors = drawn()
    expected = relational_attention(*tensors, scale=SCALE, rel_scale=REL_SCALE, mask=pattern).output
    q, k, _, w, s, _ = tensors
    values = attention(q, k, s, scale=SCALE, mask=pattern)[0]
    for row, padding in enumerate(pattern.padding):
        k[row][:, ~padding], s[row][:, ~padding], w[row][~padding] = hole, hole, hole
    assert torch.equal(relational_attention(*tensors, scale=SCALE, rel_scale=REL_SCALE, mask=pattern).output, expected)
    assert torch.equal(attention(q, k, s, scale=SCALE, mask=pattern)[0], values)


def test_a_number_that_is_none_is_not_hidden():
    q, k, *_, s, _ = drawn()
    k[0, 0, 200, 3] = float("nan")
    out = attention(q, k, s, scale=SCALE)[0]
    assert out[0, :2].isnan().all()
    assert not out[0, 2:].isnan().any()
    assert not out[1].isnan().any()


def test_large_scores():
    q, k, *rest = drawn()
    assert_equal_to_the_equation((100 * q, k, *rest))


def test_bits_depend_on_neither_threads_nor_other_examples(monkeypatch):
    monkeypatch.setattr(compiled_step, "FEWEST_PER_THREAD", 1)
    tensors, found = drawn(batch=3, m=900), []
    before = torch.get_num_threads()
    try:
        for number in (1, 2, 5, 300):
            torch.set_num_threads(number)
            found.append(relational_attention(*tensors, scale=SCALE, rel_scale=REL_SCALE).output)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0], other) for other in found)
    *senders, w_r = tensors
    alone = relational_attention(*(x[1:2] for x in senders), w_r, scale=SCALE, rel_scale=REL_SCALE).output
    assert torch.equal(alone, found[0][1:2])


def test_it_is_explained():
    given = {"scale": SCALE, "rel_scale": REL_SCALE}
    assert str(explain_relational_attention(*drawn(), **given)).startswith("linear: a library in C reads the senders")
    assert explain_relational_attention(*drawn(), **given, need_weights=True).name == "dense"
    assert explain_relational_attention(*drawn(), **given, rel_activation="relu").name == "dense"


def test_calls_that_others_serve():
    q, k, *_, v, _ = drawn()
    assert can_step(q, None, 0.0, k, v)
    assert not can_step(q.expand(-1, -1, 2, -1), None, 0.0, k, v)
    assert not can_step(q, torch.zeros(1, 1, 1, 300), 0.0, k, v)
    assert not can_step(q, None, 0.1, k, v)
    assert not can_step(q, None, 0.0, k.double(), v)
    assert not can_step(q, None, 0.0, k.transpose(2, 3).contiguous().transpose(2, 3), v)
    assert not can_step(q, None, 0.0, k[:, :, :0], v[:, :, :0])
    assert not can_step(q, None, 0.0, k.clone().requires_grad_(), v)
    with torch.no_grad():
        assert can_step(q, None, 0.0, k.clone().requires_grad_(), v)
    with torch.autocast("cpu", torch.bfloat16):
        assert not can_step(q, None, 0.0, k, v)
    with FlopCounterMode(display=False):
        assert not can_step(q, None, 0.0, k, v)
    assert not torch.func.vmap(lambda x: torch.tensor(can_step(x, None, 0.0, k, v)))(q[None]).any()


def test_derivatives_take_other_ways():
    q, k, u, w, s, w_r = drawn()
    q.requires_grad_()
    out = relational_attention(q, k, u, w, s, w_r, scale=SCALE, rel_scale=REL_SCALE).output
    (grad,) = torch.autograd.grad(out.sum(), q)
    assert grad.abs().max() > 0
    tangent = torch.ones_like(q)
    forward = torch.func.jvp(lambda x: attention(x, k, s, scale=SCALE)[0], (q.detach(),), (tangent,))[1]
    assert forward.abs().max() > 0


def unavailable(monkeypatch):
    monkeypatch.setattr(
        "dual_attention.functional.native.library.built", mock.Mock(side_effect=UnavailableError("no compiler"))
    )
    monkeypatch.setattr(compiled_step, "LIBRARY", Library(compiled_step.SOURCE, {}))


def test_without_a_compiler_others_serve(monkeypatch):
    tensors = drawn()
    expected = relational_attention(*tensors, scale=SCALE, rel_scale=REL_SCALE).output
    unavailable(monkeypatch)
    assert explain_relational_attention(*tensors, scale=SCALE, rel_scale=REL_SCALE).name == "dense"
    ours = relational_attention(*tensors, scale=SCALE, rel_scale=REL_SCALE).output
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def compiled(call, *tensors):
    torch._dynamo.reset()
    return torch.compile(call, backend="aot_eager", fullgraph=True)(*tensors)


@pytest.mark.parametrize("kind", ["a step of decoding", "padding", "mask of heads", "nothing to see"])
def test_compiled_code_calls_it_as_one_operation(kind):
    tensors, pattern = drawn(), patterns(300)[kind]
    q, k, _, w, s, _ = tensors
    expected = relational_attention(*tensors, scale=SCALE, rel_scale=REL_SCALE, mask=pattern).output
    values = attention(q, k, s, scale=SCALE, mask=pattern)[0]
    if kind == "padding":
        spoil_padding(pattern, k, w, s)
    with mock.patch.object(compiled_step, "_step", wraps=compiled_step._step) as taken:
        ours = compiled(
            lambda *x: relational_attention(*x, scale=SCALE, rel_scale=REL_SCALE, mask=pattern).output, *tensors
        )
        own = compiled(lambda *x: attention(*x, scale=SCALE, mask=pattern)[0], q, k, s)
    assert taken.call_count == 2
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(own, values, rtol=1e-4, atol=1e-5)


def spoil_padding(pattern, k, w, s):
    """Write no numbers where nobody looks."""
    for row, seen in enumerate(pattern.padding):
        k[row][:, ~seen], s[row][:, ~seen], w[row][~seen] = (float("nan"),) * 3


def test_compiled_code_takes_other_ways_without_a_compiler_of_c(monkeypatch):
    tensors = drawn()
    expected = relational_attention(*tensors, scale=SCALE, rel_scale=REL_SCALE).output
    unavailable(monkeypatch)
    with mock.patch.object(compiled_step, "_equation", side_effect=AssertionError):
        ours = compiled(lambda *x: relational_attention(*x, scale=SCALE, rel_scale=REL_SCALE).output, *tensors)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def test_compiled_relative_symbols():
    *tensors, _, w_r = drawn()
    table, index = torch.randn(41, 2, 24), torch.randint(0, 41, (1, 300))

    def call(index):
        symbols = RelativeSymbols(table, index)
        return relational_attention(*tensors, symbols, w_r, scale=SCALE, rel_scale=REL_SCALE).output

    torch.testing.assert_close(compiled(call, index), call(index), rtol=1e-4, atol=1e-5)
    for wrong in (41, -1):
        index[0, 7] = wrong
        with pytest.raises(IndexError, match="expected rows of a library of 41"):
            compiled(call, index)


def arguments_of_the_operation(kind):
    q, k, u, w, s, _ = drawn()
    mask, index = patterns(300)["mask of heads"].dense(None), torch.randint(0, 41, (1, 300))
    if kind == "padding":
        pattern = patterns(300)[kind]
        spoil_padding(pattern, k, w, s)
        mask = pattern.dense(None)
    return {
        "relations": (q, k, s, u, w, None, mask, SCALE, REL_SCALE),
        "padding": (q, k, s, u, w, None, mask, SCALE, REL_SCALE),
        "relative symbols": (q, k, torch.randn(41, 2, 24), u, w, index, None, SCALE, REL_SCALE),
        "columns": (q, k.transpose(2, 3).contiguous().transpose(2, 3), s, None, None, None, None, SCALE, 1.0),
    }[kind]


KINDS = ["relations", "padding", "relative symbols", "columns"]


@pytest.mark.parametrize("library", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_operation_is_registered_as_it_behaves(kind, library, monkeypatch):
    arguments = arguments_of_the_operation(kind)
    if not library:
        unavailable(monkeypatch)
    with torch.no_grad():
        torch.library.opcheck(compiled_step._operation, arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_that_was_kept_serves_without_a_library(kind, monkeypatch):
    arguments = arguments_of_the_operation(kind)
    expected = compiled_step._operation(*arguments)
    unavailable(monkeypatch)
    for ours, theirs in zip(compiled_step._operation(*arguments), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_compiled_calls_with_gradients_take_other_ways():
    q, k, u, w, s, w_r = drawn()
    q.requires_grad_()
    with mock.patch.object(compiled_step, "_step", wraps=compiled_step._step) as taken:
        out = compiled(lambda q: relational_attention(q, k, u, w, s, w_r, scale=SCALE, rel_scale=REL_SCALE).output, q)
    assert not taken.called
    (grad,) = torch.autograd.grad(out.sum(), q)
    assert grad.abs().max() > 0


def call_of_queries(*, relational):
    """Attention of one receiver as a function of its queries, and queries."""
    q, k, u, w, s, w_r = drawn()
    if relational:
        return lambda q: relational_attention(q, k, u, w, s, w_r, scale=SCALE, rel_scale=REL_SCALE).output, q
    return lambda q: attention(q, k, s, scale=SCALE)[0], q


TRANSFORMS = {
    "vmap": lambda call: lambda q: torch.func.vmap(call)(torch.stack((q, 2 * q))),
    "jvp": lambda call: lambda q: torch.func.jvp(call, (q,), (q,))[1],
    "grad": lambda call: lambda q: torch.func.grad(lambda q: call(q).square().sum())(q),
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("relational", [True, False])
def test_compiled_transforms_take_other_ways(name, relational):
    """The operation would lose tangents and gradients without a word."""
    call, q = call_of_queries(relational=relational)
    transformed = TRANSFORMS[name](call)
    found = compiled(transformed, q)
    assert found.abs().max() > 0
    torch.testing.assert_close(found, transformed(q), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["eager", "compiled"])
@pytest.mark.parametrize("relational", [True, False])
def test_forward_derivatives(kind, relational):
    call, q = call_of_queries(relational=relational)
    expected = torch.func.jvp(call, (q,), (q,))[1]
    torch._dynamo.reset()
    function = torch.compile(call, backend="eager") if kind == "compiled" else call
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(function(forward_ad.make_dual(q, q))).tangent
    assert found is not None
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
