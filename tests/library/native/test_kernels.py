"""The C kernels against the paper's equation in float64: forward, every gradient, masks of all kinds, dropout."""

import ctypes
import random

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from dual_attention.functional import (
    MaskPattern,
    OffsetSymbols,
    RelativeSymbols,
    explain_relational_attention,
    reference,
    relational_attention,
)
from dual_attention.functional.relational.blocks import LinearArguments
from dual_attention.native import implementation, kernels
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("enabled")

SCALES = {"scale": 0.6, "rel_scale": 0.4}
LEAVES = ("q", "k", "u", "w", "symbols", "w_r")


def drawn(*, batch=2, groups=2, repeat=2, n=19, m=21, d=5, width=6, relations=3, p=2, symbols="shared", seed=0):
    """Leaves in float32, and how to make symbols of the fifth."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator).requires_grad_()

    heads, reach = groups * repeat, 4
    table = {
        "shared": (batch, groups, m, width),
        "one for all": (1, groups, m, width),
        "index": (7, groups, width),
        "offsets": (2 * reach + 1, groups, width),
    }[symbols]
    index = torch.randint(7, (n, m), generator=generator)
    leaves = [
        normal(batch, heads, n, d),
        normal(batch, groups, m, d),
        normal(batch, n, relations, p),
        normal(batch, m, relations, p),
        normal(*table),
        normal(heads, width, relations),
    ]
    makes = {"index": lambda s: RelativeSymbols(s, index), "offsets": lambda s: OffsetSymbols(s, n, m, m - n)}
    return leaves, makes.get(symbols, lambda s: s)


def assert_equal_to_the_equation(leaves, make, pattern=None, *, tolerance=3e-5, operation=None, like=None):
    """Outputs and gradients of the library, and those of the reference in float64."""
    q, k, u, w, s, w_r = leaves
    operation = operation or relational_attention
    ours = operation(q, k, u, w, make(s), w_r, mask=pattern, impl="native", **SCALES).output
    wide = [x.detach().double().requires_grad_() for x in leaves]
    mask = None if pattern is None else pattern.dense(None)
    theirs = reference.relational_attention(*wide[:4], make(wide[4]), wide[5], mask=mask, **SCALES)[0]
    g = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    grads = torch.autograd.grad(theirs, wide, g)
    ours, theirs = (ours, *torch.autograd.grad(ours, leaves, g.float())), (theirs.detach(), *grads)
    for name, a, b in zip(("output", *LEAVES), ours, theirs, strict=True):
        error = (a - b).abs().max() / b.abs().max().clamp(min=1e-3)
        assert error <= tolerance, f"{name}: {float(error):.1e} of its largest number"


@pytest.mark.parametrize("symbols", ["shared", "one for all", "index", "offsets"])
@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"n": 1, "m": 5},
        {"n": 16, "m": 16, "d": 16, "width": 16, "p": 16},
        {"n": 33, "m": 70, "groups": 1, "repeat": 1, "relations": 1, "p": 1, "d": 1, "width": 1},
        {"groups": 3, "repeat": 3, "relations": 17, "p": 9, "width": 70, "d": 33},
        {"batch": 5, "n": 40, "m": 7, "relations": 70, "p": 3},
    ],
    ids=lambda sizes: " ".join(f"{k}={v}" for k, v in sizes.items()) or "small",
)
def test_forward_and_gradients(symbols, sizes):
    assert_equal_to_the_equation(*drawn(symbols=symbols, **sizes))


def patterns(batch, heads, n, m):
    generator = torch.Generator().manual_seed(2)
    some = torch.rand(batch, heads, n, m, generator=generator) < 0.6
    padding = torch.rand(batch, m, generator=generator) < 0.7
    order = {"causal": True, "offset": m - n}
    segments = torch.arange(m).div(6, rounding_mode="floor").expand(batch, m)
    of_receivers = segments[:, m - n :] if m >= n else torch.zeros(batch, n, dtype=torch.long)
    return {
        "causal": MaskPattern(n, m, **order),
        "causal from the first sender": MaskPattern(n, m, causal=True),
        "window": MaskPattern(n, m, window=4, offset=m - n),
        "window of everything": MaskPattern(n, m, window=2**40),
        "causal window": MaskPattern(n, m, window=3, **order),
        "before all senders": MaskPattern(n, m, causal=True, offset=-8),
        "padding": MaskPattern(n, m, padding=padding),
        "mask of heads": MaskPattern(n, m, some),
        "mask for all heads": MaskPattern(n, m, some[:, :1]),
        "mask of senders": MaskPattern(n, m, some[:1, :1, :1]),
        "segments": MaskPattern(n, m, None, None, of_receivers, segments),
        "everything": MaskPattern(n, m, some, padding, of_receivers, segments, window=9, **order),
        "nothing to see": MaskPattern(n, m, torch.zeros(1, 1, 1, 1, dtype=torch.bool)),
    }


@pytest.mark.parametrize("kind", patterns(2, 4, 1, 1))
@pytest.mark.parametrize("symbols", ["shared", "offsets"])
@pytest.mark.parametrize("n", [19, 37])
def test_masks(kind, symbols, n):
    m = 37
    assert_equal_to_the_equation(*drawn(symbols=symbols, n=n, m=m), patterns(2, 4, n, m)[kind])


def test_random_calls():
    chosen = random.Random(0)
    for seed in range(40):
        sizes = {
            "batch": chosen.randint(1, 4),
            "groups": chosen.randint(1, 3),
            "repeat": chosen.randint(1, 4),
            "n": chosen.randint(1, 50),
            "m": chosen.randint(5, 50),
            "d": chosen.randint(1, 20),
            "width": chosen.randint(1, 40),
            "relations": chosen.randint(1, 20),
            "p": chosen.randint(1, 20),
        }
        leaves, make = drawn(symbols=chosen.choice(["shared", "one for all", "index", "offsets"]), seed=seed, **sizes)
        kinds = patterns(sizes["batch"], sizes["groups"] * sizes["repeat"], sizes["n"], sizes["m"])
        pattern = kinds.get(chosen.choice([None, *kinds]))
        assert_equal_to_the_equation(leaves, make, pattern, tolerance=1e-4)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("symbols", ["shared", "one for all", "offsets"])
@pytest.mark.parametrize("batch", [1, 3])
def test_any_number_of_threads(symbols, batch, threads, monkeypatch):
    """Threads divide examples among them, whose gradients two of them then add up."""
    monkeypatch.setattr(kernels, "FEWEST_MULTIPLICATIONS", 1)
    leaves, make = drawn(symbols=symbols, batch=batch, n=70, m=70)
    pattern = MaskPattern(70, 70, causal=True)
    for number in (1, 2, 5, 40):
        threads(number)
        assert_equal_to_the_equation(leaves, make, pattern)
        first, second = (gradients(leaves, make, pattern) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True)), number


def gradients(leaves, make, pattern=None, **options):
    q, k, u, w, s, w_r = leaves
    out = relational_attention(q, k, u, w, make(s), w_r, mask=pattern, impl="native", **SCALES, **options).output
    return out, *torch.autograd.grad(out.square().sum(), leaves)


def test_inputs_of_any_strides():
    leaves, make = drawn(n=20, m=20)
    flipped = [torch.empty(x.shape[::-1]).permute(*range(x.dim())[::-1]).copy_(x.detach()) for x in leaves]
    for x in flipped:
        x.requires_grad_()
    torch.testing.assert_close(gradients(flipped, make), gradients(leaves, make))
    q, k, u, w, s, w_r = leaves
    out = relational_attention(q, k, u, w, make(s), w_r, impl="native", **SCALES).output
    expanded = torch.autograd.grad(out.sum(), leaves, retain_graph=True)  # a gradient of strides zero
    whole = torch.autograd.grad(out, leaves, torch.ones_like(out))
    torch.testing.assert_close(expanded, whole)


@pytest.mark.parametrize("symbols", ["shared", "offsets"])
def test_dropout_is_the_same_in_every_derivative(symbols):
    """The first derivative draws factors again; the second takes all of them at once, by plain operations."""
    leaves, make = drawn(symbols=symbols, n=30, m=30)
    q, k, u, w, s, w_r = leaves
    torch.manual_seed(3)
    out = relational_attention(q, k, u, w, make(s), w_r, dropout=0.4, impl="native", **SCALES).output
    g = torch.randn(out.shape)
    direct = torch.autograd.grad(out, leaves, g, retain_graph=True)
    with_graph = torch.autograd.grad(out, leaves, g, create_graph=True)
    torch.testing.assert_close(direct, with_graph, rtol=1e-4, atol=1e-4)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("sizes", [(48, 16384), (16384, 48)])
@pytest.mark.parametrize("rows, used", [(None, None), (50, 50), (4200, 3)], ids=["shared", "few rows", "many rows"])
def test_long_sums_are_made_of_short_ones(rows, used, sizes):
    """One chain of 16,384 terms of one sign would be rounded to some 3e-6, and to 5e-5 in the gradient of a library."""
    n, m = sizes
    torch.manual_seed(0)
    shapes = (1, 1, n, 8), (1, 1, m, 8), (1, n, 2, 4), (1, m, 2, 4), (1, 1, m, 8), (1, 8, 2)
    q, k, u, w, s, w_r = (0.5 + torch.rand(shape) for shape in shapes)
    index, cotangent = torch.randint(used or 1, (n, m)), 0.5 + torch.rand(1, 1, n, 8)
    leaves = [
        0 * q,
        0 * k,
        u,
        w,
        s if rows is None else s[0, 0, :1].expand(rows, 1, 8) * torch.rand(rows, 1, 1),
        w_r,
    ]

    def results(impl, dtype):
        of_dtype = [x.to(dtype).requires_grad_() for x in leaves]
        q, k, u, w, s, w_r = of_dtype
        named = s if rows is None else RelativeSymbols(s, index)
        out = relational_attention(q, k, u, w, named, w_r, impl=impl, **SCALES).output
        return out, *torch.autograd.grad(out, of_dtype[2:], cotangent.to(dtype))

    names = ("output", "u", "w", "symbols", "w_r")
    for name, ours, exact in zip(names, results("native", torch.float32), results("dense", torch.float64), strict=True):
        error = (ours.double() - exact).abs().max() / exact.abs().max()
        assert error < {"output": 1.5e-6, "w_r": 6e-6}.get(name, 4e-6), name  # the sum of w_r is PyTorch's


HALVES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


@HALVES
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("symbols", ["shared", "one for all", "index"])
def test_half_precision_is_computed_in_float32_and_rounded_once(symbols, dropout, dtype, monkeypatch):
    """Outputs and gradients have the bits that float32 has for the same numbers, rounded at the end."""
    monkeypatch.setattr(kernels, "LEFT_TO_PYTORCH", frozenset())
    narrow = [x.detach().to(dtype).requires_grad_() for x in drawn(symbols=symbols, n=40, m=40)[0][:5]]
    wide = [x.detach().float().requires_grad_() for x in narrow]
    index = torch.arange(40 * 40).view(40, 40) % 7 if symbols == "index" else None
    seed = torch.tensor([5]) if dropout else None
    rest = (index, None, seed, None, None, None, None, True, None, 0, 0.6, 0.4, dropout, 32)
    outs = [torch.ops.dual_attention.native_relational_attention(*leaves, *rest) for leaves in (narrow, wide)]
    g = [torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(dtype) for x in outs[0]]
    grads = torch.autograd.grad(outs[0], narrow, g), torch.autograd.grad(outs[1], wide, [x.float() for x in g])
    for ours, theirs in zip((*outs[0], *grads[0]), (*outs[1], *grads[1]), strict=True):
        assert ours.dtype == dtype and torch.equal(ours, theirs.to(dtype))


@HALVES
def test_matrix_units_are_left_to_pytorch(dtype, monkeypatch):
    leaves, make = drawn(n=300, m=300)
    q, k, u, w, s, w_r = (x.detach().to(dtype) for x in leaves)
    monkeypatch.setattr(kernels, "LEFT_TO_PYTORCH", frozenset())
    explained = explain_relational_attention(q, k, u, w, make(s), w_r, **SCALES)
    assert explained.name == "native" and explained.reason.endswith(", in float32")
    monkeypatch.setattr(kernels, "LEFT_TO_PYTORCH", kernels.HALVES)
    assert "matrix units" in str(explain_relational_attention(q, k, u, w, make(s), w_r, **SCALES))
    assert explain_relational_attention(q, k, u, w, make(s), w_r, impl="native", **SCALES).name == "native"


def test_weights_are_built_at_once_in_bfloat16_only_where_they_are_in_float32(monkeypatch):
    """Large products, which suit a processor that multiplies bfloat16, would be taken if the kernels were not."""
    monkeypatch.setattr("dual_attention.functional.relational.tiles._HAS_BFLOAT16", True)
    leaves, _ = drawn(batch=8, groups=8, repeat=1, n=200, m=200, relations=8, d=16, p=16)
    leaves = [x.detach().bfloat16() for x in leaves]
    taken = {}
    for left in (frozenset(), frozenset(kernels.HALVES)):
        monkeypatch.setattr(kernels, "LEFT_TO_PYTORCH", left)
        taken[left] = explain_relational_attention(*leaves, **SCALES).name
    assert list(taken.values()) == ["native", "dense"]


def arguments(dropout, n=64, m=80, seed=5):
    leaves, _ = drawn(n=n, m=m)
    q, k, u, w, s, _ = (x.detach() for x in leaves)
    nothing = (None,) * 4
    return LinearArguments(
        q, k, u, w, s, None, None, torch.tensor([seed]), *nothing, False, None, 0, 0.6, 0.4, dropout, 32
    )


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_keeps_its_share_everywhere(rate):
    factors = kernels.dropout_factors(arguments(rate))
    kept = factors != 0
    torch.testing.assert_close(factors[kept], torch.full_like(factors[kept], 1 / (1 - rate)), rtol=1e-3, atol=0)
    spread = (rate * (1 - rate)) ** 0.5
    for axes in ([0, 1, 2, 3], [0, 1, 2], [0, 1, 3], [1, 2, 3], [0, 2, 3]):  # over all, and along each axis
        of_axis = kept.float().mean(axes)
        entries = kept.numel() / of_axis.numel()
        assert (of_axis - (1 - rate)).abs().max() < 5 * spread / entries**0.5
    # Neighbours along each axis agree no more often than chance.
    for axis in range(4):
        a, b = kept.narrow(axis, 0, kept.shape[axis] - 1), kept.narrow(axis, 1, kept.shape[axis] - 1)
        agree = (a == b).float().mean()
        assert abs(agree - (rate**2 + (1 - rate) ** 2)) < 5 * 0.5 / a.numel() ** 0.5
    assert not torch.equal(factors, kernels.dropout_factors(arguments(rate, seed=6)))


def test_dropout_of_the_output():
    x = arguments(0.3)
    symbols, attended = x.q.new_empty(*x.q.shape[:3], x.table.shape[-1]), x.q.new_empty(*x.q.shape[:3], x.u.shape[2])
    kernels.forward(x, symbols, attended)
    alpha = reference.attention_weights(x.q, x.k, scale=x.scale) * kernels.dropout_factors(x)
    torch.testing.assert_close(symbols, reference.attend_to_symbols(alpha, x.table), rtol=1e-4, atol=1e-4)
    r = reference.relations(x.u, x.w, scale=x.rel_scale)
    torch.testing.assert_close(attended, torch.einsum("bhnm,bnmr->bhnr", alpha, r), rtol=1e-4, atol=1e-4)


def test_gradient_of_symbols_that_examples_share_in_memory():
    q, k, u, w, s, w_r = drawn(batch=3)[0]
    one = s.detach()[:1].expand(s.shape).requires_grad_()
    torch.use_deterministic_algorithms(True)  # which fills what is not written with NaN
    try:
        out = relational_attention(q, k, u, w, one, w_r, impl="native", **SCALES).output
        (found,) = torch.autograd.grad(out.sin().sum(), one)
    finally:
        torch.use_deterministic_algorithms(False)
    wide = [x.detach().double().requires_grad_() for x in (q, k, u, w, one, w_r)]
    theirs = reference.relational_attention(*wide, **SCALES)[0]
    wanted = torch.autograd.grad(theirs.sin().sum(), wide[4])[0]
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)


def test_what_is_no_number_stays_so():
    leaves, make = drawn(n=20, m=20)
    with torch.no_grad():
        leaves[0][0, 1, 3, 0] = torch.nan
        q, k, u, w, s, w_r = leaves
        out = relational_attention(q, k, u, w, make(s), w_r, impl="native", **SCALES).output
    assert out[0, 1, 3].isnan().all()
    out[0, 1, 3] = 0.0
    assert out.isfinite().all()


def test_large_scores_do_not_overflow():
    leaves, make = drawn()
    with torch.no_grad():
        leaves[0] *= 1e4
    assert_equal_to_the_equation(leaves, make, tolerance=1e-3)


@pytest.mark.slow
def test_registered_operation():
    """Schema, fake tensors and autograd registration, as of the form in PyTorch."""
    leaves, _ = drawn(n=5, m=5)
    values = (*leaves[:5], *[None] * 7, True, None, 0, 0.5, 0.5, 0.0, 2)
    torch.library.opcheck(torch.ops.dual_attention.native_relational_attention.default, values)


@pytest.mark.parametrize("symbols", ["shared", "index"])
@pytest.mark.parametrize("sizes", [{"batch": 0}, {"n": 0}, {"m": 0}])
def test_no_pairs_give_zeros(sizes, symbols):
    leaves, make = drawn(symbols=symbols, **sizes)
    assert not any(x.any() for x in gradients(leaves, make))


OUT_OF_RANGE = pytest.mark.parametrize("wrong", [-1, 7, 10**9, -(2**40)])


def call_with_index(leaves, index, **options):
    q, k, u, w, s, w_r = leaves
    return relational_attention(q, k, u, w, RelativeSymbols(s, index), w_r, impl="native", **SCALES, **options).output


@OUT_OF_RANGE
@pytest.mark.parametrize("threads", [1, 3])
def test_an_index_out_of_range_is_refused_forward(wrong, threads, monkeypatch):
    monkeypatch.setattr(kernels, "FEWEST_MULTIPLICATIONS", 1)
    torch.set_num_threads(threads)
    leaves, _ = drawn(symbols="index", n=40, m=40)
    index = torch.randint(7, (40, 40))
    index[31, 17] = wrong
    parameter = torch.nn.Parameter(index, requires_grad=False)  # whose numbers are not looked at beforehand
    message = rf"symbols.index: expected 0 to 6, rows of the library, got {wrong}"
    with pytest.raises(IndexError, match=message):
        call_with_index(leaves, parameter)
    compiled = torch.compile(call_with_index, backend="aot_eager", fullgraph=True)
    with pytest.raises(IndexError, match=message):
        compiled(leaves, index)


class OfIndex(torch.nn.Module):
    """The kernels as a function of an index of relative symbols."""

    def __init__(self):
        super().__init__()
        self.leaves = [x.detach() for x in drawn(symbols="index")[0]]

    def forward(self, index):
        return call_with_index(self.leaves, index)


@pytest.mark.parametrize("backend", [None, pytest.param("inductor", marks=pytest.mark.slow)])
def test_an_index_out_of_range_is_refused_by_a_program(backend):
    module, good = OfIndex(), torch.zeros(19, 21, dtype=torch.long)
    call = torch.export.export(module, (good,)).module() if backend is None else torch.compile(module, backend=backend)
    torch.testing.assert_close(call(good), module(good))
    bad = good.clone()
    bad[3, 4] = 7
    with pytest.raises(IndexError, match="expected 0 to 6, rows of the library, got 7"):
        call(bad)


@OUT_OF_RANGE
def test_an_index_out_of_range_is_refused_backward(wrong):
    """Nothing is written where it points, although it was in range in the forward pass."""
    leaves, _ = drawn(symbols="index")
    index = torch.randint(7, (19, 21))
    out = call_with_index(leaves, torch.nn.Parameter(index, requires_grad=False))
    index.data[3, 4] = wrong  # behind the back of autograd
    with pytest.raises(IndexError, match=f"expected 0 to 6, rows of the library, got {wrong}"):
        out.sum().backward()


def test_an_index_into_no_library_is_refused():
    leaves, _ = drawn(symbols="index")
    leaves[4] = leaves[4].detach()[:0].requires_grad_()
    with pytest.raises(IndexError, match="rows of the library, which has none"):
        call_with_index(leaves, torch.nn.Parameter(torch.zeros(19, 21, dtype=torch.long), requires_grad=False))


def number_of_no_numbers(leaves, make, operation, mask, **options):
    """How many entries of the output and of each gradient are no finite numbers."""
    q, k, u, w, s, w_r = leaves
    out = operation(q, k, u, w, make(s), w_r, mask=mask, **SCALES, **options)[0]
    return [int((~x.isfinite()).sum()) for x in (out, *torch.autograd.grad(out.sum(), leaves))]


@pytest.mark.parametrize("value", [torch.inf, 3e38, torch.nan])
@pytest.mark.parametrize("place", [1, 3, 4], ids=["key", "relation key", "symbol"])
@pytest.mark.parametrize("n", [16, 20, 37])
@pytest.mark.parametrize("kind", ["mask", "order", "segments"])
def test_a_hidden_sender_that_is_infinite_spoils_no_more_than_in_the_equation(kind, n, place, value):
    """Lanes without a receiver, and weights of zero times infinity, reach no gradient."""
    m, hidden = n + 2, n + 1
    leaves, make = drawn(n=n, m=m)
    with torch.no_grad():
        leaves[place][(slice(None), hidden) if place == 3 else (slice(None), slice(None), hidden)] = value
    visible = torch.arange(m) != hidden
    pattern = {
        "mask": MaskPattern(n, m, visible[None, None, None]),
        "order": MaskPattern(n, m, causal=True, offset=1),
        "segments": MaskPattern(n, m, None, None, torch.ones(1, n, dtype=torch.long), visible[None].long()),
    }[kind]
    ours = number_of_no_numbers(leaves, make, relational_attention, pattern, impl="native")
    theirs = number_of_no_numbers(leaves, make, reference.relational_attention, pattern.dense(None))
    assert all(a <= b for a, b in zip(ours, theirs, strict=True)), (ours, theirs)
    if place == 1:
        assert ours[0] == 0 and not any(ours[2:])  # the gradient of queries is of keys times zero


def explained(dtype=torch.float32, **options):
    leaves, make = drawn(n=300, m=300)
    q, k, u, w, s, w_r = (x.to(dtype) for x in leaves)
    return str(explain_relational_attention(q, k, u, w, make(s), w_r, **SCALES, **options))


test_refusals = refused(
    ({"bias": torch.zeros(1, 1, 1, 1)}, "^impl='native' takes no bias$"),
    ({"rel_activation": "relu"}, "^impl='native' needs relations with the activation 'identity', got 'relu'$"),
    ({"need_weights": True}, "^impl='native' .*it needs need_weights=False$"),
    ({"dtype": torch.float64}, "^impl='native' .*got torch.float64 on cpu$"),
    by=lambda options: explained(**options, impl="native"),
)


def test_a_choice_is_explained(monkeypatch):
    assert explained().startswith("native: ") and explained().endswith("and C kernels are enabled")
    assert explained(bias=torch.zeros(1, 1, 1, 1)).endswith("(not native: takes no bias)")
    with FlopCounterMode(display=False):
        assert explained().endswith("(not native: someone sees every operation, to count or imitate it)")
    monkeypatch.setattr(kernels, "LARGEST_SCRATCH", 1000)
    assert explained().endswith("(not native: its threads would need too much memory for sums)")


def test_a_choice_does_not_change_with_the_number_of_threads(monkeypatch):
    """A block that is computed again draws the same dropout."""
    leaves, _ = drawn(n=300, m=300)
    torch.set_num_threads(2)
    implementation._usual_threads.cache_clear()
    monkeypatch.setattr(kernels, "threads_with_room", lambda *tensors: 1)
    names = []
    for threads in (2, 8):
        torch.set_num_threads(threads)
        names.append(explain_relational_attention(*leaves, **SCALES).name)
    implementation._usual_threads.cache_clear()
    assert names == ["native", "native"]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("symbols", ["shared", "offsets"])
@pytest.mark.parametrize("n, relations, p", [(8192, 64, 8), (8192, 8, 64), (1000, 3, 5)])
def test_scratch_is_bounded(n, relations, p, symbols, batch):
    """Whatever the number of threads; two of them have room for a long sequence, whose senders they share."""
    sizes = {"batch": batch, "groups": 4, "n": n, "m": n, "d": 64, "width": 64, "relations": relations, "p": p}
    with torch.device("meta"):
        q, k, u, table = (
            torch.empty(shape)
            for shape in (
                (batch, 8, n, 64), (batch, 4, n, 64), (batch, n, relations, p),
                (batch, 4, n, 64) if symbols == "shared" else (257, 4, 64),
            )
        )  # fmt: skip
    room = kernels.threads_with_room(q, k, u, table, symbols != "shared")
    assert room >= 2 or batch > 1
    library = kernels.LIBRARY.get()
    block = library.block_of(ctypes.c_int64(n))
    one = symbols != "shared" or batch == 1
    rows = 0 if symbols == "shared" else len(table)
    call = kernels._Call(**sizes, heads=8, library=rows, threads=max(1, room), one_table=one, block=block)
    for is_backward in (False, True):
        assert 4 * library.scratch_size(ctypes.byref(call), is_backward) <= 1.02 * kernels.LARGEST_SCRATCH
