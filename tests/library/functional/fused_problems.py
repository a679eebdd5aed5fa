"""Small problems of relational attention for the fused kernels, and how they are held against the reference.

Without a GPU the kernels run in Triton's interpreter, which must be asked for before Triton is first imported: hence
here, when tests are collected.
"""

import importlib
import os

import pytest
import torch

from dual_attention.functional import MaskPattern, OffsetSymbols, relational_attention
from dual_attention.functional.triton.tuning import Tile, Tuning

CUDA = torch.cuda.is_available()
if not CUDA:
    os.environ.setdefault("TRITON_INTERPRET", "1")
launch = pytest.importorskip("dual_attention.functional.triton.launch", reason="triton is not installed")

needs_kernels = pytest.mark.skipif(
    not CUDA and not launch.INTERPRETED, reason="no GPU, and Triton was imported before its interpreter was asked for"
)

DEVICE = "cuda" if CUDA else "cpu"
SCALES = {"scale": 0.7, "rel_scale": 0.4}
TINY = Tuning.uniform(Tile(16, 16, 16, 4, 1))._replace(programs=1)


def patch_once_per_function(monkeypatch):
    """Halve the time of Triton's interpreter.

    It puts its own operations in the place of Triton's whenever one function of a kernel calls another; the first call
    of each is enough.
    """
    interpreted = importlib.import_module("triton.runtime.interpreter").InterpretedFunction
    patching_call, called = interpreted.__call__, set()

    def call(function, *args, **kwargs):
        if function in called:
            return function.rewrite()(*args, **kwargs)
        called.add(function)
        return patching_call(function, *args, **kwargs)

    monkeypatch.setattr(interpreted, "__call__", call)


@pytest.fixture(autouse=True)
def tiny_tiles_and_poisoned_memory(monkeypatch):
    """Several tiles along every side of a small problem; memory that no kernel fills holds NaN."""
    monkeypatch.setattr(launch, "tuning", lambda *_: TINY)
    if CUDA:
        yield
        return
    patch_once_per_function(monkeypatch)
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


class Problem:
    """Inputs in float64, drawn from a seed, on the device."""

    def __init__(
        self,
        batch=1,
        groups=1,
        rep=1,
        n=18,
        m=None,
        key_dim=5,
        width=6,
        n_relations=3,
        p=3,
        symbols="shared",
        max_offset=4,
        causal=False,
        window=None,
        padded=False,
        packed: bool | str = False,
        offset=0,
        symbol_offset=None,
    ):
        m = n if m is None else m
        generator = torch.Generator().manual_seed(0)

        def normal(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        heads = groups * rep
        self.relative = symbols == "offsets"
        of_senders = (1 if symbols == "one batch" else batch, groups, m, width)
        self.leaves = [
            normal(batch, heads, n, key_dim),
            normal(batch, groups, m, key_dim),
            normal(batch, n, n_relations, p),
            normal(batch, m, n_relations, p),
            normal(2 * max_offset + 1, groups, width) if self.relative else normal(*of_senders),
            normal(heads, width, n_relations),
        ]
        self.cotangent = normal(batch, heads, n, width)
        padding = receivers = senders = None
        if padded:
            padding = torch.rand(batch, m, generator=generator) < 0.7
            padding[0] = False  # nothing to attend in the whole first example
        if packed in ("in order", "by 16"):  # receivers at their places among the senders
            length = 16 if packed == "by 16" else -(-m // 3)
            receivers, senders = (torch.arange(n)[None] + offset) // length, torch.arange(m)[None] // length
        elif packed:
            receivers = torch.arange(n)[None] * 3 // n
            senders = torch.arange(m).flip(0).expand(batch, m) * 4 // m  # the last segment has no receiver
        parts = [None if part is None else part.to(DEVICE) for part in (padding, receivers, senders)]
        self.pattern = MaskPattern(n, m, None, *parts, causal, window, offset)
        self.pairs = n, m, offset if symbol_offset is None else symbol_offset

    def results(self, impl, dtype=torch.float32):
        """The output and the gradients of all leaves, in float64 on the CPU."""
        leaves = [x.to(DEVICE, dtype).detach().requires_grad_() for x in self.leaves]
        out = self.run(leaves, impl)
        grads = torch.autograd.grad(out, leaves, self.cotangent.to(DEVICE, dtype))
        return [x.detach().double().cpu() for x in (out, *grads)]

    def run(self, leaves, impl):
        q, k, u, w, s, w_r = leaves
        symbols = OffsetSymbols(s, *self.pairs) if self.relative else s
        return relational_attention(q, k, u, w, symbols, w_r, **SCALES, mask=self.pattern, impl=impl).output


def assert_as_reference(problem, tolerance=1e-5, impl="triton"):
    ours, theirs = problem.results(impl), problem.results("reference", torch.float64)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, atol=tolerance * max(1.0, float(b.abs().max())), rtol=0)
