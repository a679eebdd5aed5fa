"""The fused kernels against the reference, forward and every gradient.

Without a GPU they run in Triton's interpreter, which :mod:`.fused_problems` asks for. On a GPU the same tests run them
compiled.
"""

import importlib
import itertools

import pytest
import torch

from dual_attention import PositionRelativeSymbolRetriever, RelationalAttention
from dual_attention.functional import (
    MaskPattern,
    RelativeSymbols,
    explain_relational_attention,
    relational_attention,
)
from dual_attention.functional.relational.table import IMPLEMENTATIONS
from dual_attention.functional.triton import support
from dual_attention.functional.triton.tuning import Tile, Tuning, tuning
from tests.support.combinations import mostly_slow
from tests.support.refusals import refusals

from .fused_problems import (  # noqa: F401 (the fixture is used by every test)
    DEVICE,
    SCALES,
    TINY,
    Problem,
    assert_as_reference,
    launch,
    needs_kernels,
    tiny_tiles_and_poisoned_memory,
)

pytestmark = [needs_kernels, pytest.mark.sweep(3)]

UNEQUAL = Tuning(
    Tile(32, 16, 32, 4, 1),
    Tile(16, 32, 16, 4, 1),
    Tile(16, 32, 64, 4, 1),
    Tile(32, 16, 16, 4, 1),
    Tile(16, 32, 16, 4, 1),
    Tile(16, 32, 16, 4, 1),
    programs=99,
)


SHARED = [
    {"groups": 2, "rep": 3, "causal": True, "n": 5},
    {"n_relations": 7, "p": 5},
    {"n_relations": 1, "p": 1, "n": 5},
    {"n_relations": 2, "p": 17, "n": 5},
    {"key_dim": 17, "width": 1, "n": 5},
    {"window": 5, "causal": True, "padded": True, "packed": True, "n": 20, "batch": 2},
    {"batch": 2, "groups": 2, "rep": 2, "n": 5, "m": 18},
    {"causal": True, "rep": 2},
    {"n": 5, "m": 21, "batch": 2},
    {"n": 33, "m": 1},
    {"n": 16, "m": 16, "key_dim": 16, "width": 16, "n_relations": 4, "p": 8},
    {"n_relations": 5, "p": 1, "causal": True},
    {"symbols": "one batch", "batch": 2},
    {"symbols": "one batch", "n": 7},
    {"padded": True, "causal": True, "n": 20, "batch": 2},
    {"packed": True, "batch": 2},
    {"packed": True, "causal": True, "padded": True, "groups": 2, "batch": 2, "n": 12},
    {"packed": True, "n": 19, "m": 6, "batch": 2},
    {"window": 3, "n": 37},
    {"window": 17, "causal": True, "n": 20},
    {"window": 1, "rep": 2, "n": 5},
]
"""The first with sizes that :mod:`.test_triton_tiles` leaves as they are; it takes every pair of options."""


@pytest.mark.parametrize("arguments", mostly_slow(SHARED, quick=6), ids=str)
def test_shared_symbols(arguments):
    assert_as_reference(Problem(**arguments))


OF_OFFSETS = [
    {"max_offset": 1, "n": 35},  # tiles far from the diagonal on both sides
    {"max_offset": 40, "n": 20},  # some offsets never occur
    {"packed": True, "causal": True, "width": 17, "batch": 2},
    {"batch": 2, "rep": 2, "n": 5, "m": 18},
    {"causal": True, "n": 20, "groups": 2},
    {"max_offset": 0},
    {"max_offset": 2, "n": 20, "causal": True},
    {"n": 6, "m": 23, "batch": 2},
    {"n": 23, "m": 6, "padded": True, "batch": 2},
    {"window": 6, "n": 20},
]


@pytest.mark.parametrize("arguments", mostly_slow(OF_OFFSETS, quick=3), ids=str)
def test_symbols_of_offsets(arguments):
    assert_as_reference(Problem(**{"symbols": "offsets", **arguments}))


@pytest.mark.parametrize(
    "arguments",
    [
        {"symbols": "shared", "m": 20, "groups": 2, "n_relations": 9},
        {"symbols": "offsets", "rep": 2, "causal": True, "window": 20},
    ],
    ids=str,
)
def test_tiles_of_unequal_sides_and_split_sums(arguments, monkeypatch):
    monkeypatch.setattr(launch, "tuning", lambda *_: UNEQUAL)
    assert_as_reference(Problem(n=34, **arguments))


@pytest.mark.parametrize(
    "dtype, symbols", [(torch.bfloat16, "shared"), (torch.bfloat16, "offsets"), (torch.float16, "shared")]
)
def test_low_precision_is_no_worse_than_dense(dtype, symbols):
    problem = Problem(symbols=symbols, rep=2, n=24, key_dim=8, width=8, p=4, causal=True)
    exact = problem.results("reference", torch.float64)
    errors = {
        impl: [float((a - b).abs().max() / b.abs().max()) for a, b in zip(got, exact, strict=True)]
        for impl, got in ((impl, problem.results(impl, dtype)) for impl in ("dense", "triton"))
    }
    eps = torch.finfo(dtype).eps
    for ours, theirs in zip(errors["triton"], errors["dense"], strict=True):
        assert ours <= 1.5 * theirs + 2 * eps


def test_nothing_to_attend_gives_zeros_and_zero_gradients():
    problem = Problem(padded=True, batch=2)
    out, dq, dk, du, dw, ds, _ = problem.results("triton")
    for gradient in (out, dq, dk, du, dw, ds):
        assert (gradient[0] == 0).all() and (gradient[1] != 0).any()


@pytest.mark.parametrize("sides", [(0, 3), (3, 0)])
def test_empty_sides(sides):
    n, m = sides
    problem = Problem(batch=2, rep=2, n=n, m=m)
    for gradient in problem.results("triton")[:-1]:
        assert (gradient == 0).all()


@pytest.mark.slow
def test_gradients_are_the_same_in_every_run():
    first, second = (Problem(rep=2).results("triton") for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_views_need_no_copy_to_be_right():
    """Heads as the layer splits them, and gradients that are expanded."""
    problem = Problem(batch=2, groups=2, width=5, causal=True)
    wanted = problem.results("reference", torch.float64)[0]
    leaves = [x.to(DEVICE, torch.float32) for x in problem.leaves]
    for position in (0, 1, 4):
        leaves[position] = leaves[position].transpose(1, 2).contiguous().transpose(1, 2)
    wide = torch.cat([leaves[2], leaves[3]], dim=-1)
    leaves[2], leaves[3] = wide.chunk(2, dim=-1)
    leaves = [x.requires_grad_() for x in leaves]
    out = problem.run(leaves, "triton")
    torch.testing.assert_close(out.detach().double().cpu(), wanted, atol=1e-5, rtol=1e-5)
    dense = problem.run(leaves, "dense")
    for a, b in zip(torch.autograd.grad(out.sum(), leaves), torch.autograd.grad(dense.sum(), leaves), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("arguments", [{"causal": True, "padded": True}, {"symbols": "offsets"}])
def test_second_derivatives_are_those_of_dense(arguments):
    problem = Problem(n=3, rep=2, **arguments)
    leaves = [x.to(DEVICE, torch.float32).requires_grad_() for x in problem.leaves]
    seconds = []
    for impl in ("triton", "dense"):
        loss = problem.run(leaves, impl).square().sum()
        (first,) = torch.autograd.grad(loss, leaves[0], create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), leaves))
    torch.testing.assert_close(*seconds, atol=1e-3, rtol=1e-3)


def test_what_is_kept_for_the_backward_pass(monkeypatch):
    """Nothing where no gradients are wanted; what is not kept is computed again, to the same gradients."""
    kept, forward = [], launch.Call.forward
    monkeypatch.setattr(launch.Call, "forward", lambda call: kept.append(call.keep) or forward(call))
    problem = Problem(rep=2, causal=True, n_relations=7)
    wanted = problem.results("triton")
    problem.run([x.to(DEVICE, torch.float32) for x in problem.leaves], "triton")
    monkeypatch.setattr("dual_attention.functional.triton.operation.LONGEST_KEPT", 2)
    for ours, theirs in zip(problem.results("triton"), wanted, strict=True):
        assert torch.equal(ours, theirs)
    assert kept == [True, False, False, True]


IN_PARTS = [
    {"causal": True, "offset": 67, "groups": 2},
    {"symbols": "offsets", "causal": True, "offset": 67, "n_relations": 7, "p": 5},
    {"padded": True, "window": 20, "offset": 30, "symbols": "one batch"},
    {"packed": True, "padded": True, "n": 1},
]


@pytest.mark.parametrize("parts, wanted", [(1, []), (3, [3]), (99, [5])])
@pytest.mark.parametrize("arguments", IN_PARTS, ids=str)
def test_programs_that_share_the_senders_of_few_receivers(arguments, parts, wanted, monkeypatch):
    """Also in parts of which no sender may be attended, and if more parts are asked for than there are senders."""
    problem, combined, start = Problem(**{"batch": 2, "rep": 2, "n": 3, "m": 70, **arguments}), [], launch.Call.launch

    def counted(call, kernel, grid, tile, **own):
        combined.extend([own["parts"]] if "parts" in own else [])
        start(call, kernel, grid, tile, **own)

    heads, (relations, p) = problem.leaves[0].shape[1], problem.leaves[2].shape[2:]
    groups = -(-relations // (16 // launch.next_power_of_2(p)))
    monkeypatch.setattr(launch, "tuning", lambda *_: TINY._replace(programs=2 * heads * groups * parts))
    monkeypatch.setattr(launch.Call, "launch", counted)
    with torch.no_grad():
        ours = problem.run([x.to(DEVICE, torch.float32) for x in problem.leaves], "triton")
    theirs = problem.run([x.to(DEVICE) for x in problem.leaves], "reference")
    torch.testing.assert_close(ours.double(), theirs, atol=1e-5, rtol=0)
    assert combined == wanted


@pytest.mark.parametrize("n", [3, 18])
def test_gradients_of_senders_in_parts(n, monkeypatch):
    """More receivers than a block has share no senders. The row log-sum-exp, which is kept for the backward pass, is
    that of all parts."""
    monkeypatch.setattr("dual_attention.functional.triton.operation.LONGEST_KEPT", 2)
    monkeypatch.setattr(launch, "tuning", lambda *_: TINY._replace(programs=99))
    assert_as_reference(Problem(n=n, m=40, rep=2, causal=True, offset=22))


def call_of_operation(symbols, groups=1):
    """The registered operation and its arguments."""
    importlib.import_module("dual_attention.functional.triton.operation")  # registers it
    problem = Problem(batch=2, n=4, groups=groups, symbols=symbols)
    leaves = [x.to(DEVICE, torch.float32).requires_grad_() for x in problem.leaves[:5]]
    max_offset = 4 if problem.relative else None
    arguments = (*leaves, None, None, None, max_offset, 2, True, None, 3, 0.5, 0.5, TINY.numbers(), True)
    return torch.ops.dual_attention.fused_relational_attention.default, arguments


@pytest.mark.parametrize("used", [0, 1])
def test_one_result_may_be_used_alone(used):
    operation, arguments = call_of_operation("shared")
    leaves, results = arguments[:5], operation(*arguments)[:2]
    alone = torch.autograd.grad(results[used].sum(), leaves, retain_graph=True)
    both = torch.autograd.grad(results[used].sum() + 0 * results[1 - used].sum(), leaves)
    assert all(torch.equal(a, b) for a, b in zip(alone, both, strict=True))


@pytest.mark.parametrize("symbols", ["shared", "offsets"])
def test_registered_operation(symbols):
    """Schema, fake tensors and autograd registration, which torch.compile and torch.export rely on."""
    operation, arguments = call_of_operation(symbols)
    dynamic = ("test_aot_dispatch_dynamic",) if symbols == "offsets" else ()
    tests = ("test_schema", "test_faketensor", *dynamic)
    torch.library.opcheck(operation, arguments, test_utils=("test_autograd_registration", *tests))


@pytest.mark.parametrize("symbols", ["shared", "one batch", "offsets"])
def test_gradients_lie_as_a_compiled_graph_expects(symbols, monkeypatch):
    """Views of them, which a graph takes, fit no other strides."""
    operation, arguments = call_of_operation(symbols, groups=2)
    registered = importlib.import_module("dual_attention.functional.triton.operation")
    calls, real = [], launch.Call.backward
    monkeypatch.setattr(launch.Call, "backward", lambda *given: calls.append((given, real(*given))) or calls[-1][1])
    torch.autograd.grad(sum(result.sum() for result in operation(*arguments)[:2]), arguments[:5])
    ((_, *saved), found) = calls[0]
    expected = registered._empty_of_backward(*saved, *arguments)
    for one, other in zip(found, expected, strict=True):
        strides = [[step for step, size in zip(x.stride(), x.shape, strict=True) if size > 1] for x in (one, other)]
        assert one.shape == other.shape and strides[0] == strides[1]


class Module(torch.nn.Module):
    def forward(self, q, k, u, w, s, w_r):
        pattern = MaskPattern(q.shape[2], k.shape[2], causal=True)
        return relational_attention(q, k, u, w, s, w_r, **SCALES, mask=pattern, impl="triton").output


@pytest.mark.slow
def test_compiles_as_one_graph_and_exports():
    problem = Problem(batch=2, rep=2, n=8, causal=True)
    leaves = [x.to(DEVICE, torch.float32).requires_grad_() for x in problem.leaves]
    wanted = problem.results("triton")
    out = torch.compile(Module(), fullgraph=True, backend="aot_eager")(*leaves)
    grads = torch.autograd.grad(out, leaves, problem.cotangent.to(out))
    for a, b in zip((out, *grads), wanted, strict=True):
        torch.testing.assert_close(a.detach().double().cpu(), b, atol=1e-5, rtol=1e-5)
    exported = torch.export.export(Module(), tuple(x.detach() for x in leaves)).module()
    torch.testing.assert_close(exported(*leaves).detach().double().cpu(), wanted[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("relative", [{}, {"max_rel_pos": 3}, {"sinusoidal": True}])
def test_auto_in_a_layer(relative, monkeypatch):
    """The choice of ``impl="auto"`` on a GPU: the kernels where they can run, otherwise another way, never an error."""
    calls = []
    fused = IMPLEMENTATIONS["triton"]
    monkeypatch.setattr("dual_attention.functional.relational.choice.prefers_fused", lambda q: True)
    noted = fused._replace(run=lambda inputs: calls.append(1) or fused.run(inputs))
    monkeypatch.setitem(IMPLEMENTATIONS, "triton", noted)
    layer = RelationalAttention(8, 2, use_relative_positional_symbols=bool(relative), n_kv_heads=1).to(DEVICE)
    x = torch.randn(2, 20, 8, device=DEVICE)
    s = (
        PositionRelativeSymbolRetriever(8, **relative).to(DEVICE)(x)
        if relative
        else torch.randn(2, 20, 8, device=DEVICE)
    )
    fast = layer(x, s, is_causal=True).output
    assert len(calls) == 1
    full = layer(x, s, is_causal=True, need_weights=True).output  # maps cannot come from the kernels
    masked = layer(x, s, attn_mask=torch.ones(20, 20, dtype=torch.bool, device=DEVICE).tril()).output
    assert len(calls) == 1
    torch.testing.assert_close(fast, full, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(masked, full, atol=1e-5, rtol=1e-5)


@refusals(
    ({"need_weights": True}, "need_weights=False"),
    ({"rel_activation": "relu"}, "activation 'identity'"),
    ({"dropout": 0.1}, "dropout=0.1"),
    ({"bias": torch.zeros(1, 1, 1, 1)}, "no bias"),
    ({"mask": torch.ones(1, 1, 4, 4, dtype=torch.bool)}, "in parts"),
    ({"symbols": RelativeSymbols(torch.zeros(3, 1, 6), torch.zeros(4, 4, dtype=torch.long))}, "OffsetSymbols"),
    (dict.fromkeys(("u", "w"), torch.zeros(2, 4, 3, 300)), "widths up to 256"),
    of="arguments",
)
def test_what_cannot_be_done_is_refused(arguments, error, message):
    names = ("q", "k", "u", "w", "symbols", "w_r")
    leaves = (x.float() for x in Problem(batch=2, rep=2, n=4).leaves)
    given = {**dict(zip(names, leaves, strict=True)), **SCALES, **arguments}
    with pytest.raises(error, match=f"impl='triton' cannot compute this: .*{message}"):
        relational_attention(**given, impl="triton")


def test_a_card_with_little_shared_memory_takes_a_slower_way(monkeypatch):
    """As Turing, in place of an error of Triton's."""
    monkeypatch.setattr(support, "shared_memory", lambda x: 64 * 1024)
    leaves = [x.half() for x in Problem(n=4).leaves]
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    with pytest.raises(ValueError, match=r"need 101376 bytes of shared memory for a program, got 65536 .* impl='auto'"):
        relational_attention(*leaves, **SCALES, impl="triton")
    assert "101376 bytes" in explain_relational_attention(*leaves, **SCALES).reason


@refusals((None, "is not installed"), ((3, 2), "needs Triton 3.3 or later, got 3.2"), of="version")
def test_a_missing_or_old_triton_is_refused(version, error, message, monkeypatch):
    monkeypatch.setattr(support, "INSTALLED", version)
    with pytest.raises(error, match=message):
        Problem(n=4).results("triton")


def test_version_is_that_of_the_module():
    import triton

    assert support.installed_version() == tuple(int(part) for part in triton.__version__.split(".")[:2])


def test_float64_is_refused():
    problem = Problem(n=4)
    with pytest.raises(ValueError, match="needs bfloat16, float16 or float32"):
        problem.results("triton", torch.float64)


def test_the_interpreter_is_never_entered_unasked(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    leaves = [x.float() for x in Problem(n=4).leaves]
    with pytest.raises(ValueError, match="it needs CUDA tensors"):
        relational_attention(*leaves, **SCALES, impl="triton")


@pytest.mark.parametrize("width, columns", [(16, 8), (64, 512), (64, 4096), (128, 128), (128, 2048), (256, 64)])
def test_sizes_are_powers_of_two_that_products_can_take(width, columns):
    memories, dtypes = (None, 99 * 1024, 227 * 1024), (torch.bfloat16, torch.float32)
    for shared_memory, dtype, relative in itertools.product(memories, dtypes, (False, True)):
        sizes = tuning(width, columns, relative, dtype, shared_memory)
        for tile in sizes[:-1]:
            assert all(side >= 16 and side & (side - 1) == 0 for side in tile[:3])
        for n in (0, 1, 16, 17, 60, 10**6):
            side, changed = sizes.forward.receivers, sizes.for_receivers(n)
            assert changed.forward.receivers == next(rows for rows in (16, 32, 64, 128) if rows >= min(n, side))
            assert changed._replace(forward=sizes.forward) == sizes
        assert Tuning.from_numbers(sizes.numbers()) == sizes


def test_tiles_larger_than_the_problem(monkeypatch):
    """The sizes that are used where no test asks for others."""
    monkeypatch.setattr(launch, "tuning", tuning)
    assert_as_reference(Problem(causal=True, symbols="offsets", rep=2))


@pytest.mark.parametrize("arguments", [{"rep": 2}, {"symbols": "offsets", "causal": True}, {"n_relations": 9, "p": 2}])
def test_padding_for_assemblers_that_need_wide_tiles(arguments, monkeypatch):
    monkeypatch.setattr(launch, "narrowest_for", lambda q: 64)
    assert_as_reference(Problem(**arguments))


def test_narrow_tiles_are_padded_where_the_assembler_is_unsound(monkeypatch):
    """ptxas before CUDA 12.9 gives wrong sums for tiles of 32 columns beside tiles of 64 on Hopper."""
    monkeypatch.setattr(support, "INSTALLED", (3, 7))
    assert support.narrowest(torch.bfloat16, (9, 0)) == support.narrowest(torch.float16, (9, 0)) == 64
    assert support.narrowest(torch.float32, (9, 0)) == support.narrowest(torch.bfloat16, (8, 9)) == 16
    monkeypatch.setattr(support, "INSTALLED", support.FIRST_SOUND_ASSEMBLER)
    assert support.narrowest(torch.bfloat16, (9, 0)) == 16
