"""The form for matrix units against the equation in float64, with its operations on tiles emulated on any processor.

The form for real tiles is compiled, refused where there are none, and tested where there are some.
"""

import random

import pytest
import torch

from dual_attention import native
from dual_attention.functional import explain_relational_attention, reference, relational_attention
from dual_attention.native import amx, kernels
from tests.library.native.test_kernels import LEAVES, SCALES, drawn, patterns
from tests.support.compilers import HAS_COMPILER

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="needs a C compiler")


@pytest.fixture
def emulated(monkeypatch):
    monkeypatch.setattr(amx, "LIBRARY", kernels.library(amx.SOURCE, ["can_run"], ["-DEMULATED_AMX"]))
    native.enable(amx=True)
    yield
    native.disable()


def halves(leaves):
    return [x.detach().bfloat16().requires_grad_() for x in leaves]


def assert_close_to_the_equation(leaves, make, pattern=None):
    """Outputs and gradients are off by what bfloat16 rounds, of their norms; one sender of a hundred would be more."""
    leaves = halves(leaves)
    q, k, u, w, s, w_r = leaves
    ours = relational_attention(q, k, u, w, make(s), w_r, mask=pattern, impl="native", **SCALES).output
    wide = [x.detach().double().requires_grad_() for x in leaves]
    mask = None if pattern is None else pattern.dense(None)
    theirs = reference.relational_attention(*wide[:4], make(wide[4]), wide[5], mask=mask, **SCALES)[0]
    g = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    grads = torch.autograd.grad(theirs, wide, g.double())
    ours, theirs = (ours, *torch.autograd.grad(ours, leaves, g)), (theirs.detach(), *grads)
    for name, a, b in zip(("output", *LEAVES), ours, theirs, strict=True):
        assert a.dtype == torch.bfloat16
        error = (a - b).norm() / b.norm().clamp(min=1e-2)
        assert error <= 1e-2, f"{name}: {float(error):.1e} of its norm"


SIZES = [
    {},
    {"n": 1, "m": 5},
    {"n": 32, "m": 64, "d": 32, "width": 32, "p": 32},
    {"n": 33, "m": 70, "groups": 1, "repeat": 1, "relations": 1, "p": 1, "d": 1, "width": 1},
    {"groups": 3, "repeat": 3, "relations": 17, "p": 9, "width": 70, "d": 33},
    {"batch": 5, "n": 40, "m": 7, "relations": 70, "p": 3},
    {"batch": 1, "n": 90, "m": 100, "relations": 3, "p": 70},
]


@pytest.mark.parametrize("symbols", ["shared", "one for all", "index", "offsets"])
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: " ".join(f"{k}={v}" for k, v in sizes.items()) or "small")
def test_forward_and_gradients(emulated, symbols, sizes):
    assert_close_to_the_equation(*drawn(symbols=symbols, **sizes))


@pytest.mark.parametrize("kind", patterns(2, 4, 1, 1))
@pytest.mark.parametrize("symbols", ["shared", "offsets"])
@pytest.mark.parametrize("n", [19, 37])
def test_masks(emulated, kind, symbols, n):
    assert_close_to_the_equation(*drawn(symbols=symbols, n=n, m=37), patterns(2, 4, n, 37)[kind])


def test_random_calls(emulated):
    chosen = random.Random(0)
    most = {"batch": 4, "groups": 3, "repeat": 4, "n": 90, "m": 90, "d": 40, "width": 40, "relations": 20, "p": 20}
    for seed in range(30):
        sizes = {name: chosen.randint(5 if name == "m" else 1, size) for name, size in most.items()}
        leaves, make = drawn(symbols=chosen.choice(["shared", "one for all", "index", "offsets"]), seed=seed, **sizes)
        kinds = patterns(sizes["batch"], sizes["groups"] * sizes["repeat"], sizes["n"], sizes["m"])
        assert_close_to_the_equation(leaves, make, kinds.get(chosen.choice([None, *kinds])))


@pytest.mark.parametrize("batch", [1, 3])
def test_any_number_of_threads(emulated, batch, monkeypatch):
    monkeypatch.setattr(kernels, "FEWEST_MULTIPLICATIONS", 1)
    before = torch.get_num_threads()
    try:
        for number in (1, 2, 5):
            torch.set_num_threads(number)
            assert_close_to_the_equation(*drawn(batch=batch, n=130, m=130), patterns(batch, 4, 130, 130)["causal"])
    finally:
        torch.set_num_threads(before)


def test_dropout_is_that_of_the_other_kernels(emulated):
    """The same factors, from the same seed, forward and backward."""
    narrow = halves(drawn(n=40, m=40)[0][:5])
    rest = (None, None, torch.tensor([5]), None, None, None, None, True, None, 0, 0.6, 0.4, 0.4, 32)
    found = []
    for name, leaves in (("amx", narrow), ("native", [x.detach().float().requires_grad_() for x in narrow])):
        outs = getattr(torch.ops.dual_attention, f"{name}_relational_attention")(*leaves, *rest)
        g = [torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).bfloat16().to(x.dtype) for x in outs]
        found.append((*outs, *torch.autograd.grad(outs, leaves, g)))
    for ours, theirs in zip(*found, strict=True):
        assert (ours - theirs).norm() <= 1e-2 * theirs.norm()


def test_what_is_no_number_stays_so(emulated):
    leaves, make = drawn(n=40, m=40)
    with torch.no_grad():
        leaves[0][0, 1, 3, 0] = torch.nan
        q, k, u, w, s, w_r = halves(leaves)
        out = relational_attention(q, k, u, w, make(s), w_r, impl="native", **SCALES).output
    assert out[0, 1, 3].isnan().all()
    out[0, 1, 3] = 0.0
    assert out.isfinite().all()


def test_only_bfloat16_and_only_if_asked(emulated, monkeypatch):
    monkeypatch.setattr(kernels, "LEFT_TO_PYTORCH", kernels.HALVES)
    q, k, u, w, s, w_r = (x.detach() for x in drawn(n=300, m=300)[0])

    def chosen(dtype):
        return str(explain_relational_attention(*(x.to(dtype) for x in (q, k, u, w, s, w_r)), **SCALES))

    assert chosen(torch.bfloat16).startswith("native: ") and "AMX" in chosen(torch.bfloat16)
    assert chosen(torch.float32).startswith("native: ") and "AMX" not in chosen(torch.float32)
    assert "matrix units" in chosen(torch.float16)
    native.enable()
    assert "matrix units" in chosen(torch.bfloat16)
    assert relational_attention(q, k, u, w, s, w_r, impl="native", **SCALES).output.dtype == torch.float32


def test_real_tiles():
    against = amx.missing_units()
    if against is not None:
        pytest.skip(against)
    native.enable(amx=True)
    try:
        for sizes in SIZES:
            assert_close_to_the_equation(*drawn(**sizes))
        assert_close_to_the_equation(*drawn(n=37, m=37), patterns(2, 4, 37, 37)["everything"])
    finally:
        native.disable()


def test_it_compiles_for_real_tiles_and_is_refused_without(monkeypatch):
    against = amx.missing_units()
    if against is not None and "-mamx" in against:
        pytest.skip(f"needs a compiler that knows AMX: {against}")
    assert against is None or "AMX-BF16" in against
    if against is not None:  # as for a program that was exported elsewhere, which would end the process
        values = (*halves(drawn()[0][:5]), *[None] * 7, True, None, 0, 0.6, 0.4, 0.0, 32)
        with pytest.raises(RuntimeError, match="relational attention by AMX: no matrix units"):
            torch.ops.dual_attention.amx_relational_attention(*values)
    monkeypatch.setattr(amx, "missing_units", lambda: "no such units")
    with pytest.raises(RuntimeError, match=r"native\.enable\(amx=True\): no such units"):
        native.enable(amx=True)
    assert not native.is_enabled()
