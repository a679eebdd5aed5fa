"""Sensory attention by the library in C against the equation in float64: forward, gradients, masks, dropout."""

import os
import shutil
import sys
from unittest import mock

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from dual_attention.functional import MaskPattern, attention, compiled_attention, reference
from dual_attention.functional.compiled_attention import can_attend
from dual_attention.functional.native.building import COMPILERS, SWITCH
from dual_attention.functional.relational import compiled

# Where there is a compiler, a library that cannot be built is a failure.
pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or os.environ.get(SWITCH) == "0" or not any(map(shutil.which, COMPILERS)),
    reason="needs a compiler of C",
)

SCALE = 0.3


@pytest.fixture(autouse=True)
def few_pairs(monkeypatch):
    monkeypatch.setattr(compiled_attention, "FEWEST_PAIRS", 2**12)


def drawn(*, batch=2, groups=2, repeat=2, n=70, m=80, d=6, width=9, seed=0):
    """Queries, keys and values as projections have them, the heads of a token side by side."""
    generator = torch.Generator().manual_seed(seed)

    def heads(length, number, size):
        flat = torch.randn(batch, length, number, size, generator=generator)
        return flat.transpose(1, 2).requires_grad_()

    return heads(n, groups * repeat, d), heads(m, groups, d), heads(m, groups, width)


@pytest.fixture(params=["together", "by group"])
def heads(request, monkeypatch):
    """Heads are weighed together, or those of each key/value head by themselves."""
    if request.param == "by group":
        monkeypatch.setattr(compiled_attention, "LARGEST_TOGETHER", 1)


def assert_equal_to_the_equation(leaves, pattern=None, needed="qkv", tolerance=3e-5):
    named = dict(zip("qkv", leaves, strict=True))
    given = [x if name in needed else x.detach() for name, x in named.items()]
    assert can_attend(*given, None)
    ours = attention(*given, scale=SCALE, mask=pattern)[0]
    wide = [x.detach().double().requires_grad_(x.requires_grad) for x in given]
    mask = None if pattern is None else pattern.dense(None)
    theirs = reference.attention(*wide, scale=SCALE, mask=mask)[0]
    g = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    of = [[x for x in tensors if x.requires_grad] for tensors in (given, wide)]
    ours = (ours, *torch.autograd.grad(ours, of[0], g.float()))
    theirs = (theirs, *torch.autograd.grad(theirs, of[1], g))
    for name, a, b in zip(("output", *needed), ours, theirs, strict=True):
        error = (a - b).abs().max() / b.abs().max().clamp(min=1e-3)
        assert error <= tolerance, f"{name}: {float(error):.1e} of its largest number"


SIZES = [
    {},
    {"batch": 1},
    {"n": 16, "m": 256, "d": 16, "width": 16},
    {"n": 65, "m": 70, "groups": 1, "repeat": 1, "d": 1, "width": 1},
    {"groups": 3, "repeat": 3, "width": 70, "d": 33},
    {"batch": 5, "groups": 1, "repeat": 4, "n": 129, "m": 64, "d": 64, "width": 128},
]


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: " ".join(f"{k}={v}" for k, v in sizes.items()) or "small")
def test_forward_and_gradients(sizes, heads):
    assert_equal_to_the_equation(drawn(**sizes))


@pytest.mark.parametrize("needed", ["q", "k", "v", "qk", "qv"])
def test_gradients_that_nobody_needs(needed, heads):
    assert_equal_to_the_equation(drawn(), needed=needed)


def patterns(n, m):
    generator = torch.Generator().manual_seed(2)
    some = torch.rand(2, 4, n, m, generator=generator) < 0.6
    padding = torch.rand(2, m, generator=generator) < 0.7
    segments = torch.arange(m).div(6, rounding_mode="floor").expand(2, m)
    order = {"causal": True, "offset": m - n}
    return {
        "causal": MaskPattern(n, m, **order),
        "window": MaskPattern(n, m, window=4, offset=m - n),
        "before all senders": MaskPattern(n, m, causal=True, offset=-8),
        "padding": MaskPattern(n, m, padding=padding),
        "one padding": MaskPattern(n, m, padding=padding[:1]),
        "mask of heads": MaskPattern(n, m, some),
        "mask for all heads": MaskPattern(n, m, some[:, :1]),
        "mask of senders": MaskPattern(n, m, some[:1, :1, :1]),
        "segments": MaskPattern(n, m, None, None, segments[:, m - n :], segments),
        "everything": MaskPattern(n, m, some, padding, segments[:, m - n :], segments, window=9, **order),
        "nothing to see": MaskPattern(n, m, torch.zeros(1, 1, 1, 1, dtype=torch.bool)),
    }


@pytest.mark.parametrize("kind", patterns(1, 1))
def test_masks(kind, heads):
    n, m = 70, 80
    assert_equal_to_the_equation(drawn(n=n, m=m), patterns(n, m)[kind])


def test_values_that_all_examples_share(heads):
    q, k, v = drawn()
    v = v.detach()[:1].requires_grad_()

    def gradient(operation, *tensors):
        return torch.autograd.grad(operation(*tensors, scale=SCALE)[0].square().sum(), tensors[-1])[0]

    ours = gradient(lambda *x, scale: attention(x[0], x[1], x[2].expand(2, -1, -1, -1), scale=scale), q, k, v)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    theirs = gradient(lambda *x, scale: reference.attention(x[0], x[1], x[2].expand(2, -1, -1, -1), scale=scale), *wide)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=["examples", "heads", "both"])
def test_gradient_of_values_that_are_expanded(axes, heads):
    """Each entry has a gradient of its own, whatever memory it shares."""
    q, k, v = drawn()
    shape = [1 if axis in axes else length for axis, length in enumerate(v.shape)]
    wide = v.detach()[tuple(slice(length) for length in shape)].expand(v.shape)
    ours, theirs = wide.requires_grad_(), wide.detach().double().requires_grad_()
    torch.use_deterministic_algorithms(True)  # which fills what is not written with NaN
    try:
        (found,) = torch.autograd.grad(attention(q, k, ours, scale=SCALE)[0].sin().sum(), ours)
    finally:
        torch.use_deterministic_algorithms(False)
    out = reference.attention(q.double(), k.double(), theirs, scale=SCALE)[0]
    torch.testing.assert_close(found.double(), torch.autograd.grad(out.sin().sum(), theirs)[0], rtol=1e-4, atol=1e-4)


def test_second_derivatives_under_dropout(heads):
    """By the change of the first ones under one draw."""
    q, k, v = (x.detach().double().float() for x in drawn(n=64, m=128, batch=1))
    steps = [torch.randn(x.shape, generator=torch.Generator().manual_seed(5)) for x in (q, k, v)]

    def penalty(at):
        tensors = [(x + at * step).requires_grad_() for x, step in zip((q, k, v), steps, strict=True)]
        torch.manual_seed(0)
        out = attention(*tensors, scale=SCALE, dropout=0.3)[0]
        first = torch.autograd.grad(out.sin().sum(), tensors, create_graph=True)
        return sum(g.square().sum() for g in first), tensors

    value, tensors = penalty(0.0)
    second = torch.autograd.grad(value, tensors)
    along = sum((g * step).sum() for g, step in zip(second, steps, strict=True))
    torch.testing.assert_close(along, (penalty(1e-3)[0] - penalty(-1e-3)[0]).detach() / 2e-3, rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_batched_gradients(dropout, heads):
    q, k, v = drawn(n=64, m=128)
    torch.manual_seed(0)
    out = attention(q, k, v, scale=SCALE, dropout=dropout)[0]
    grads = torch.randn(3, *out.shape)
    batched = torch.autograd.grad(out, (q, k, v), grads, is_grads_batched=True, retain_graph=True)
    single = [torch.autograd.grad(out, (q, k, v), g, retain_graph=True) for g in grads]
    for ours, theirs in zip(batched, map(torch.stack, zip(*single, strict=True)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_masks_of_inference_mode_serve_training():
    n, m = 70, 128
    with torch.inference_mode():
        mask = MaskPattern(n, m, torch.ones(1, 1, n, m, dtype=torch.bool), torch.ones(2, m, dtype=torch.bool))
    assert_equal_to_the_equation(drawn(n=n, m=m), mask)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_output_may_be_changed_in_place(dropout, heads):
    q, k, v = drawn()
    torch.manual_seed(0)
    out = attention(q, k, v, scale=SCALE, dropout=dropout)[0]
    expected = 2 * out.detach()
    assert torch.equal(out.mul_(2), expected)
    out.sum().backward()
    assert q.grad is not None


def test_numbers_that_are_negated_in_place():
    q, k, v = (x.detach() for x in drawn())
    negate = torch._neg_view  # pyright: ignore[reportPrivateImportUsage]
    negated = negate(q)
    torch.testing.assert_close(attention(negated, k, v, scale=SCALE)[0], attention(-q, k, v, scale=SCALE)[0])
    leaf = q.clone().requires_grad_()
    out = attention(leaf, k, v, scale=SCALE)[0]
    g = torch.randn_like(out)
    ours = torch.autograd.grad(out, leaf, negate(g), retain_graph=True)[0]
    torch.testing.assert_close(ours, -torch.autograd.grad(out, leaf, g)[0])


def test_hidden_senders_may_be_no_numbers():
    """Receivers before a sender without numbers see nothing of it."""
    q, k, v = (x.detach() for x in drawn(n=80, m=80))
    k[:, :, 40:] = torch.nan
    found = attention(q, k, v, scale=SCALE, mask=MaskPattern(80, 80, causal=True))[0]
    assert found[:, :, :40].isfinite().all()
    assert found[:, :, 40:].isnan().all()


def test_dropout_beside_another_default_device():
    q, k, v = (x.detach() for x in drawn())
    with torch.device("meta"):
        assert attention(q, k, v, scale=SCALE, dropout=0.5)[0].device.type == "cpu"


def test_second_derivatives(heads):
    leaves = drawn(n=64, m=64)

    def second(operation, tensors):
        first = torch.autograd.grad(operation(*tensors, scale=SCALE)[0].sin().sum(), tensors, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), tensors)

    wide = [x.detach().double().requires_grad_() for x in leaves]
    for ours, theirs in zip(second(attention, leaves), second(reference.attention, wide), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-4 * theirs.abs().max().item())


def test_dropout(heads):
    """What is kept is scaled, the gradient is of the same draw, and the seed decides it."""
    q, k, v = drawn(n=128, m=128)

    def run(seed, values=v, rate=0.4):
        torch.manual_seed(seed)
        return attention(q, k, values, scale=SCALE, dropout=rate)[0]

    out = run(0)
    torch.testing.assert_close(out, run(0))
    assert not torch.equal(out, run(1))
    ones = run(0, torch.ones_like(v))  # sums of the kept weights
    ones = ones.detach()
    assert abs(float(ones.mean()) - 1.0) < 0.02
    assert 0.03 < float(ones.std()) < 0.3
    # It is linear in the values, by the kept weights of that draw: their gradient is the transposed map.
    g = torch.randn_like(out)
    (dv,) = torch.autograd.grad(run(0), v, g)
    torch.testing.assert_close((dv * v).sum(), (g * out).sum(), rtol=1e-3, atol=1e-3)
    step = 1e-2 * torch.randn_like(q)
    (dq,) = torch.autograd.grad(run(0), q, g)
    with torch.no_grad():
        ends = [(g * self_out).sum() for self_out in moved(q, k, v, step)]
    torch.testing.assert_close((ends[0] - ends[1]) / 2, (dq * step).sum(), rtol=2e-2, atol=2e-2)


def moved(q, k, v, step):
    """Outputs with queries moved by a step to either side, under the dropout of seed 0."""
    for sign in (1, -1):
        torch.manual_seed(0)
        yield attention(q + sign * step, k, v, scale=SCALE, dropout=0.4)[0]


def test_examples_and_heads_have_dropout_of_their_own(heads):
    q, k, v = drawn()
    q, k, v = (x.detach()[:1, :1].expand(2, 2, -1, -1) for x in (q, k, v))
    torch.manual_seed(0)
    out = attention(q, k, v, scale=SCALE, dropout=0.5)[0].flatten(0, 1)
    assert not any(torch.equal(out[i], out[j]) for i in range(4) for j in range(i))


def test_results_do_not_depend_on_the_number_of_threads(heads):
    leaves = drawn(n=300, m=300)
    before = torch.get_num_threads()
    try:
        outs = []
        for number in (1, 3):
            torch.set_num_threads(number)
            outs.append(attention(*leaves, scale=SCALE)[0])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*outs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype, heads, monkeypatch):
    monkeypatch.setattr(compiled, "LEFT_TO_PYTORCH", frozenset())
    narrow = [x.detach().to(dtype).requires_grad_() for x in drawn()]
    wide = [x.detach().float().requires_grad_() for x in narrow]
    assert can_attend(*narrow, None)
    ours = attention(*narrow, scale=SCALE)[0]
    theirs = attention(*wide, scale=SCALE)[0]
    g = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    grads = torch.autograd.grad(ours, narrow, g), torch.autograd.grad(theirs, wide, g.float())
    for a, b in zip((ours, *grads[0]), (theirs, *grads[1]), strict=True):
        assert a.dtype == dtype and torch.equal(a, b.to(dtype))
    monkeypatch.setattr(compiled, "LEFT_TO_PYTORCH", compiled.HALVES)
    assert not can_attend(*narrow, None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_a_graph_serves_several_backward_passes(autocast, dtype, heads, monkeypatch):
    monkeypatch.setattr(compiled, "LEFT_TO_PYTORCH", frozenset())
    leaves = [x.detach().to(dtype).requires_grad_() for x in drawn()]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        out = attention(*leaves, scale=SCALE, dropout=0.3)[0]
    first, second = (torch.autograd.grad(out.sum(), leaves, retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    with_graph = torch.autograd.grad(out.sum(), leaves, create_graph=True)
    for a, b in zip(first, with_graph, strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=0, atol=0.03 * b.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_autocast_does_not_make_numbers_of_what_are_none(dtype):
    q, k, v = (x.detach() for x in drawn())
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(TypeError, match="k: expected a floating-point tensor"):
        attention(q, k.to(dtype), v, scale=SCALE)


@pytest.mark.parametrize("narrow", ["", "q", "qk", "qkv"])
def test_autocast_casts_as_it_does_for_pytorch(narrow, monkeypatch):
    """Such as the queries of a projection, but not the parameters that they are compared with."""
    leaves = dict(zip("qkv", drawn(), strict=True))
    given = [x.detach().to(torch.bfloat16 if name in narrow else torch.float32) for name, x in leaves.items()]
    for x in given:
        x.requires_grad_()
    found = []
    for left in ((), compiled.HALVES):
        monkeypatch.setattr(compiled, "LEFT_TO_PYTORCH", left)
        with (
            torch.autocast("cpu", torch.bfloat16),
            mock.patch.object(compiled, "forward", wraps=compiled.forward) as called,
        ):
            out = attention(*given, scale=SCALE)[0]
        assert called.called is not bool(left) and out.dtype == torch.bfloat16
        found.append((out, *torch.autograd.grad(out.float().square().sum(), given)))
    for ours, theirs, like in zip(*found, (None, *given), strict=True):
        assert like is None or ours.dtype == like.dtype
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0.05 * theirs.abs().max().item())


def test_too_few_pairs_and_others_are_left_to_pytorch(monkeypatch):
    q, k, v = (x.detach() for x in drawn())
    assert can_attend(q, k, v, None)
    assert not can_attend(q[:, :, :15], k, v, None)
    assert not can_attend(q[:, :, :20], k[:, :, :20], v[:, :, :20], None)
    assert not can_attend(q[:0], k[:0], v[:0], None)
    assert not can_attend(q, k, v, torch.zeros(1, 1, 70, 80))
    assert not can_attend(q.double(), k.double(), v.double(), None)
    with FlopCounterMode(display=False):
        assert not can_attend(q, k, v, None)
    monkeypatch.setattr(compiled.LIBRARY, "find", lambda: "no compiler")
    assert not can_attend(q, k, v, None)
    torch.testing.assert_close(
        attention(q, k, v, scale=SCALE)[0], reference.attention(q, k, v, scale=SCALE)[0], rtol=1e-4, atol=1e-5
    )


def test_a_long_sequence_needs_memory_of_one_head_only():
    """What threads keep for sums is counted for one key/value head at a time."""
    q = torch.empty(1, 16, 16, 64)
    k = torch.empty(1, 16, 40_000, 64)
    with mock.patch.object(compiled, "_usual_threads", lambda: 2):
        assert can_attend(q, k, k, None)
        assert compiled.obstacle(q, k, q.new_empty(1, 16, 0, 1), q, k, None, relative=False) is not None


def test_compiled_code_keeps_pytorchs(heads):
    q, k, v = drawn()

    def run(q, k, v):
        return attention(q, k, v, scale=SCALE)[0]

    out = torch.compile(run, backend="aot_eager", fullgraph=True)(q, k, v)
    torch.testing.assert_close(out, run(q, k, v), rtol=1e-4, atol=1e-5)
