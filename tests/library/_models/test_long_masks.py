"""Padded and packed sequences take about the memory of others: a mask is of lengths, not of pairs."""

import multiprocessing
from typing import Any

import pytest
import torch
from torch import Tensor

from dual_attention import (
    Attention,
    DualAttnEncoderBlock,
    DualAttnTransformerLM,
    EncoderBlock,
    RelationalAttention,
    TransformerLM,
    native,
)
from dual_attention.functional.relational import choice
from dual_attention.functional.relational.table import Choice
from tests.lab.estimate.measuring import peak, summed
from tests.support.compilers import HAS_COMPILER

N, SIZES = 4096, {"vocab_size": 32, "d_model": 64, "n_layers": 1, "max_block_size": 4096}


def masks(kind: str) -> dict[str, Tensor]:
    places = torch.arange(N)
    real = places < torch.tensor([[N], [N // 3]])
    segments = {"segments": places[None] // 700}
    return {"padded": {"padding_mask": real}, "packed": segments}[kind]


NEEDS_COMPILER = pytest.mark.skipif(not HAS_COMPILER, reason="needs a C compiler")
CASES = [
    ("", True),
    ("", False),
    ("linear", True),
    ("linear", False),
    ("sdpa", True),
    ("sdpa", False),
    pytest.param("native", True, marks=NEEDS_COMPILER),
    pytest.param("native", False, marks=NEEDS_COMPILER),
]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["model", "layer that reads in both directions", "heads"])
@pytest.mark.parametrize(("impl", "gradients"), CASES)
def test_peak_of_a_call(impl: str, part: str, gradients: bool):
    """In a process of its own: others before it leave PyTorch in states in which it allocates more.

    Sensory heads alone have little beside the mask of a block of receivers.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        without, padded, packed = pool.apply(peaks, (impl, part, gradients))
    if part == "heads" and not impl:
        packed = 0
    assert padded <= 1.1 * without and packed <= 1.1 * without, (without, padded, packed)


def peaks(impl: str, part: str, gradients: bool) -> list[int]:
    """Peak memory of a call: without a mask, with padding, and with packed sequences."""
    torch.set_num_threads(1)
    if impl == "native":
        native.enable()
    elif impl:
        choice.choose = lambda *_, **options: Choice(impl, "it is tested")
    heads: Any = {"n_heads_sa": 2, "n_heads_ra": 2} if impl else {"n_heads": 4}
    whole = part == "model"
    if whole:
        model: Any = (DualAttnTransformerLM if impl else TransformerLM)(**SIZES, **heads)
        inputs = [torch.randint(32, (2, N))] * 2
    elif part == "heads":
        model = RelationalAttention(64, 4) if impl else Attention(64, 4)
        inputs = [torch.randn(2, N, 64) for _ in range(2 if impl else 3)]
    else:
        model = (DualAttnEncoderBlock if impl else EncoderBlock)(64, **heads)
        inputs = [torch.randn(2, N, 64) for _ in ("x", *["symbols"] * bool(impl))]

    def loss(**masks: Tensor) -> Tensor:
        return model.loss(*inputs, **masks) if whole else summed(model, *inputs, **masks)

    def taken(**masks: Tensor) -> int:
        with torch.set_grad_enabled(gradients):
            return peak(lambda: loss(**masks).backward() if gradients else loss(**masks))

    taken()  # gradients stay
    return [taken(), taken(**masks("padded")), taken(**masks("packed"))]
