"""One receiver in C against the equation in float64: sizes, masks, symbols; and where it is not taken."""

from unittest import mock

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

from dual_attention import native
from dual_attention.functional import (
    MaskPattern,
    OffsetSymbols,
    RelativeSymbols,
    explain_relational_attention,
    reference,
    relational_attention,
)
from dual_attention.functional.relational.inputs import check_inputs
from dual_attention.native import implementation, step

pytestmark = pytest.mark.usefixtures("enabled", "with_few_senders")

SCALE, REL_SCALE = 0.3, 0.7


@pytest.fixture
def with_few_senders(monkeypatch):
    """What :func:`drawn` gives is enough for ``impl="auto"``."""
    monkeypatch.setattr(implementation, "FEWEST_SENDERS", 1)


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
    whole = None if mask is None else mask.dense(None)
    with taken() as steps:
        ours = relational_attention(*tensors, scale=SCALE, rel_scale=REL_SCALE, mask=mask).output
    assert steps.called
    torch.testing.assert_close(ours.double(), equation(*tensors, mask=whole), rtol=1e-4, atol=1e-5)


def taken():
    """Whether the kernel runs meanwhile."""
    return mock.patch.object(step, "_step", wraps=step._step)


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
    _, k, _, w, s, _ = tensors
    for row, padding in enumerate(pattern.padding):
        k[row][:, ~padding], s[row][:, ~padding], w[row][~padding] = hole, hole, hole
    assert torch.equal(relational_attention(*tensors, scale=SCALE, rel_scale=REL_SCALE, mask=pattern).output, expected)


def test_a_number_that_is_none_is_not_hidden():
    tensors = drawn()
    tensors[1][0, 0, 200, 3] = float("nan")
    out = relational_attention(*tensors, scale=SCALE, rel_scale=REL_SCALE).output
    assert out[0, :2].isnan().all()
    assert not out[0, 2:].isnan().any()
    assert not out[1].isnan().any()


def test_large_scores():
    q, k, *rest = drawn()
    assert_equal_to_the_equation((100 * q, k, *rest))


def test_bits_depend_on_neither_threads_nor_other_examples(monkeypatch):
    monkeypatch.setattr(step, "FEWEST_PER_THREAD", 1)
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
    assert str(explain_relational_attention(*drawn(), **given)).startswith("native: a C kernel reads the senders")
    assert explain_relational_attention(*drawn(), **given, need_weights=True).name == "dense"
    assert explain_relational_attention(*drawn(), **given, rel_activation="relu").name == "dense"


def test_few_senders_are_left_to_pytorch(monkeypatch):
    given = {"scale": SCALE, "rel_scale": REL_SCALE}
    monkeypatch.setattr(implementation, "FEWEST_SENDERS", 301)
    chosen = explain_relational_attention(*drawn(m=300), **given)
    assert chosen.name == "dense" and "C gains from that many on" in chosen.reason
    assert explain_relational_attention(*drawn(m=301), **given).name == "native"
    assert explain_relational_attention(*drawn(m=300), **given, impl="native").name == "native"


def can_step(*tensors, bias=None, dropout=0.0, rel_activation="identity", need_weights=False):
    rest = (SCALE, REL_SCALE, rel_activation, None, bias, dropout, need_weights)
    return step.can_step(check_inputs(*tensors, *rest))


def test_calls_that_others_serve():
    q, k, u, w, s, w_r = tensors = drawn()
    assert can_step(*tensors)
    assert not can_step(*drawn(), bias=torch.zeros(1, 1, 1, 300))
    assert not can_step(*tensors, dropout=0.1)
    assert not can_step(*tensors, rel_activation="relu")
    assert not can_step(*tensors, need_weights=True)
    assert not can_step(*(x.double() for x in tensors))
    assert not can_step(q, k.transpose(2, 3).contiguous().transpose(2, 3), u, w, s, w_r)
    assert not can_step(q, k[:, :, :0], u, w[:, :0], s[:, :, :0], w_r)
    assert not can_step(q.expand(-1, -1, 2, -1), k, u.expand(-1, 2, -1, -1), w, s, w_r)
    leaf = k.clone().requires_grad_()
    assert not can_step(q, leaf, u, w, s, w_r)
    with torch.no_grad():
        assert can_step(q, leaf, u, w, s, w_r)
    with torch.autocast("cpu", torch.bfloat16):
        assert not can_step(*tensors)
    with FlopCounterMode(display=False):
        assert not can_step(*tensors)
    assert not torch.func.vmap(lambda q: torch.tensor(can_step(q, *tensors[1:])))(q[None]).any()


def test_derivatives_take_other_ways():
    q, k, u, w, s, w_r = drawn()
    q.requires_grad_()
    out = relational_attention(q, k, u, w, s, w_r, scale=SCALE, rel_scale=REL_SCALE).output
    (grad,) = torch.autograd.grad(out.sum(), q)
    assert grad.abs().max() > 0
    tangent = torch.ones_like(q)
    call, _ = call_of_queries()
    forward = torch.func.jvp(call, (q.detach(),), (tangent,))[1]
    assert forward.abs().max() > 0


def compiled(call, *tensors):
    torch._dynamo.reset()
    if torch.compile(lambda: torch.ones(1) * torch.compiler.is_exporting(), backend="eager")():
        pytest.skip("this PyTorch takes all code that it compiles for exported")
    return torch.compile(call, backend="aot_eager", fullgraph=True)(*tensors)


@pytest.mark.parametrize("kind", ["a step of decoding", "padding", "mask of heads", "nothing to see"])
def test_compiled_code_calls_it_as_one_operation(kind):
    tensors, pattern = drawn(), patterns(300)[kind]
    _, k, _, w, s, _ = tensors
    expected = relational_attention(*tensors, scale=SCALE, rel_scale=REL_SCALE, mask=pattern).output
    if kind == "padding":
        spoil_padding(pattern, k, w, s)
    with taken() as steps:
        ours = compiled(
            lambda *x: relational_attention(*x, scale=SCALE, rel_scale=REL_SCALE, mask=pattern).output, *tensors
        )
    assert steps.call_count == 1
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def spoil_padding(pattern, k, w, s):
    """Write no numbers where nobody looks."""
    for row, seen in enumerate(pattern.padding):
        k[row][:, ~seen], s[row][:, ~seen], w[row][~seen] = (float("nan"),) * 3


def test_compiled_code_notices_that_it_is_disabled():
    tensors = drawn()
    call = torch.compile(
        lambda *x: relational_attention(*x, scale=SCALE, rel_scale=REL_SCALE).output, backend="aot_eager"
    )
    expected = call(*tensors)
    native.disable()
    with taken() as steps:
        torch.testing.assert_close(call(*tensors), expected, rtol=1e-4, atol=1e-5)
    assert not steps.called


def test_compiled_relative_symbols():
    *tensors, _, w_r = drawn()
    table, index = torch.randn(41, 2, 24), torch.randint(0, 41, (1, 300))

    def call(index):
        symbols = RelativeSymbols(table, index)
        return relational_attention(*tensors, symbols, w_r, scale=SCALE, rel_scale=REL_SCALE).output

    torch.testing.assert_close(compiled(call, index), call(index), rtol=1e-4, atol=1e-5)
    for wrong in (41, -1, 10**9):
        index[0, 7] = wrong
        message = f"symbols.index: expected 0 to 40, rows of the library, got {wrong}"
        with pytest.raises(IndexError, match=message):
            compiled(call, index)
        with pytest.raises(IndexError, match=message):
            call(torch.nn.Parameter(index, requires_grad=False))


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
        "columns": (q, k.transpose(2, 3).contiguous().transpose(2, 3), s, u, w, None, None, SCALE, 1.0),
    }[kind]


KINDS = ["relations", "padding", "relative symbols", "columns"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_operation_is_registered_as_it_behaves(kind):
    arguments = arguments_of_the_operation(kind)
    with torch.no_grad():
        torch.library.opcheck(step._operation, arguments)


def test_the_operation_refuses_a_gradient():
    q, *rest = arguments_of_the_operation("relations")
    with pytest.raises(RuntimeError, match="dual_attention::step has no gradient"):
        step._operation(q.requires_grad_(), *rest)


def test_compiled_calls_with_gradients_take_other_ways():
    q, k, u, w, s, w_r = drawn()
    q.requires_grad_()
    with taken() as steps:
        out = compiled(lambda q: relational_attention(q, k, u, w, s, w_r, scale=SCALE, rel_scale=REL_SCALE).output, q)
    assert not steps.called
    (grad,) = torch.autograd.grad(out.sum(), q)
    assert grad.abs().max() > 0


def call_of_queries():
    """Attention of one receiver as a function of its queries, and queries."""
    q, k, u, w, s, w_r = drawn()
    return lambda q: relational_attention(q, k, u, w, s, w_r, scale=SCALE, rel_scale=REL_SCALE).output, q


TRANSFORMS = {
    "vmap": lambda call: lambda q: torch.func.vmap(call)(torch.stack((q, 2 * q))),
    "jvp": lambda call: lambda q: torch.func.jvp(call, (q,), (q,))[1],
    "grad": lambda call: lambda q: torch.func.grad(lambda q: call(q).square().sum())(q),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_compiled_transforms_take_other_ways(name):
    """The operation would lose tangents and gradients without a word."""
    call, q = call_of_queries()
    transformed = TRANSFORMS[name](call)
    found = compiled(transformed, q)
    assert found.abs().max() > 0
    torch.testing.assert_close(found, transformed(q), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["eager", "compiled"])
def test_forward_derivatives(kind):
    call, q = call_of_queries()
    expected = torch.func.jvp(call, (q,), (q,))[1]
    torch._dynamo.reset()
    function = torch.compile(call, backend="eager") if kind == "compiled" else call
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(function(forward_ad.make_dual(q, q))).tangent
    assert found is not None
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
