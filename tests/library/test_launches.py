"""What training and decoding launch and move on a GPU, counted on tensors without storage: a layer less a plain one."""

import functools
import importlib
import math
from collections import Counter
from contextlib import contextmanager
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.suites import generation
from benchmarks.suites.layers import size
from dual_attention._layers.fixed import after_prompt, slots_for

pytest.importorskip("triton")  # whose kernels stand for their launches; none is run
FUSED = {"dual_attention::fused_relational_attention": 1, "dual_attention::fused_relational_attention_backward": 6}
TIMES = {"dual_attention::errors_of_logits": 3}  # that its largest tensor moves: read twice, written once
FREE = {"aten::empty", "aten::empty_like", "aten::new_empty", "aten::empty_strided", "aten::detach", "aten::alias"}


ROWS = {"aten::embedding", "aten::index", "aten::index_copy_"}
"""Operations that touch as many rows of a tensor as they have indices for."""


def touched(*tensors):
    """Bytes of tensors; along an expanded axis the same ones are read again."""
    steps = [[size for size, step in zip(x.shape, x.stride(), strict=True) if step] for x in tensors]
    return sum(math.prod(sizes) * x.element_size() for sizes, x in zip(steps, tensors, strict=True))


class Launches(TorchDispatchMode):
    """Counts kernels and the bytes that they read and write; views launch nothing."""

    def __init__(self):
        super().__init__()
        self.kernels, self.bytes = Counter(), Counter()
        self.phase = "forward"

    def note(self, kernels, *tensors):
        self.kernels[self.phase] += kernels
        self.bytes[self.phase] += touched(*tensors)

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        name = operation.overloadpacket._qualified_op_name
        views = any(r.alias_info is not None and not r.alias_info.is_write for r in operation._schema.returns)
        if not (views or name in FREE or name.endswith("_unsafe_view")):
            rows = args[3] if name == "aten::index_copy_" else result
            moved = (rows, rows) if name in ROWS else (args, kwargs, result)
            tensors = [x for x in tree_leaves(moved) if isinstance(x, torch.Tensor) and x.is_meta]
            if tensors:
                self.note(FUSED.get(name, 1), *tensors)
                self.bytes[self.phase] += (TIMES.get(name, 1) - 1) * max(map(touched, tensors))
        return result


class LibraryAttention(torch.autograd.Function):
    """Attention as one kernel forward and three backward."""

    counted: Launches

    @staticmethod
    def forward(ctx, q, k, v):
        ctx.save_for_backward(q, k, v)
        output = q.new_empty((*q.shape[:3], v.shape[3]))
        LibraryAttention.counted.note(1, q, k, v, output)
        return output

    @staticmethod
    def backward(ctx, gradient):
        grads = tuple(torch.empty_like(x) for x in ctx.saved_tensors)
        LibraryAttention.counted.note(3, gradient, *ctx.saved_tensors, *grads)
        return grads


def made(layers, length, relations, symbols=generation.SYMBOLS[0]):
    work = generation.language_model(size(quick=False), layers, length, relations, symbols).kwargs
    path, _, kind = work.pop("kind").rpartition(".")
    with torch.device("meta"):
        return getattr(importlib.import_module(f"dual_attention.{path}"), kind)(**work).to(torch.bfloat16)


@contextmanager
def as_on_a_gpu():
    LibraryAttention.counted = counted = Launches()
    attention = mock.patch.object(
        F, "scaled_dot_product_attention", lambda q, k, v, **_: LibraryAttention.apply(q, k, v)
    )
    fused = mock.patch("dual_attention.functional.relational.choice.prefers_fused", lambda q: True)
    loss = mock.patch("dual_attention.functional.losses._fuses", lambda logits: True)
    spread = mock.patch("dual_attention.symbol_retrieval.spreads_over_examples", lambda x: len(x) > 1)
    with attention, fused, loss, spread, mock.patch("dual_attention.functional.wide.dispatches", lambda: False):
        yield counted


def step(layers, relations):
    model, tokens = made(layers, 1024, relations), torch.zeros((8, 1024), dtype=torch.long, device="meta")
    with as_on_a_gpu() as counted, counted:
        loss = model.loss(tokens, tokens)
        counted.phase = "backward"
        loss.backward()
    return counted


def token(layers, relations, symbols, recorded=False):
    """One that is decoded after 8,192 others."""
    model = made(layers, 8448, relations, symbols).eval()
    cache, tokens = model.new_cache(8196), torch.zeros((1, 8192), dtype=torch.long, device="meta")
    if recorded:
        cache.record_past()
    with as_on_a_gpu() as counted, torch.no_grad():
        for some in (tokens, tokens[:, :1]):
            model(some, cache=cache, all_logits=False)
        if recorded:
            cache = after_prompt(cache, slots_for(8196), tokens, None)
        counted.kernels.clear()  # attention counts itself, of these calls, too
        counted.bytes.clear()
        with counted:
            model(tokens[:, :1], cache=cache)
    return counted


def of_a_layer(count, *arguments):
    two, three = count(2, *arguments), count(3, *arguments)
    return three.kernels - two.kernels, three.bytes - two.bytes


def test_what_is_outside_the_layers():
    """The embedding, and the loss in one pass by a kernel: 182 launches and 33.9 GB by PyTorch's operations."""
    two, three = (step(layers, None) for layers in (2, 3))
    assert 3 * two.kernels.total() - 2 * three.kernels.total() <= 92
    assert 3 * two.bytes.total() - 2 * three.bytes.total() <= 17.5e9


@pytest.mark.parametrize("relations", [8, 64])
def test_a_training_step_beside_that_of_a_plain_layer(relations):
    kernels, moved = of_a_layer(step, None)
    ours, ours_moved = of_a_layer(step, relations)
    assert ours.total() <= 1.6 * kernels.total(), (ours, kernels)
    assert ours_moved["backward"] <= 1.25 * moved["backward"], (ours_moved, moved)


PLAIN_TOKEN = functools.cache(lambda *recorded: of_a_layer(token, None, generation.SYMBOLS[0], *recorded))


@pytest.mark.parametrize("symbols", generation.SYMBOLS)
def test_a_decoded_token_beside_that_of_a_plain_layer(symbols):
    kernels, moved = PLAIN_TOKEN()
    ours, ours_moved = of_a_layer(token, 64, symbols)
    most = 1.8 if symbols in ("position_relative", "rel_sym_attn") else 1.5
    assert ours.total() <= most * kernels.total(), (ours, kernels)
    assert ours_moved.total() <= 1.05 * moved.total(), (ours_moved, moved)


@pytest.mark.parametrize(("symbols", "most"), [*zip(generation.SYMBOLS, (38, 37, 42, 54), strict=True)])
def test_a_recorded_token_beside_that_of_a_plain_layer(symbols, most):
    """Places are on the device: as many kernels as docs/costs.md says, or fewer."""
    kernels, moved = PLAIN_TOKEN(True)
    ours, ours_moved = of_a_layer(token, 64, symbols, True)
    assert ours.total() <= most and kernels.total() >= 23, (ours, kernels)
    assert ours_moved.total() <= (1.08 if symbols == "rel_sym_attn" else 1.05) * moved.total(), (ours_moved, moved)
