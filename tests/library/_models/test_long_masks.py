"""Padded and packed sequences take about the memory of others: a mask is of lengths, not of pairs."""

from typing import Any

import pytest
import torch
from torch import Tensor

from dual_attention import DualAttnTransformerLM, TransformerLM, native
from dual_attention.functional.relational import choice
from dual_attention.functional.relational.table import Choice
from tests.lab.estimate.measuring import peak
from tests.support.compilers import HAS_COMPILER

N, SIZES = 4096, {"vocab_size": 32, "d_model": 64, "n_layers": 1, "max_block_size": 4096}


def masks(kind: str) -> dict[str, Tensor]:
    places = torch.arange(N)
    real = places < torch.tensor([[N], [N // 3]])
    segments = {"segments": places[None] // 700}
    return {"padded": {"padding_mask": real}, "packed": segments}[kind]


NATIVE = pytest.param("native", marks=pytest.mark.skipif(not HAS_COMPILER, reason="needs a C compiler"))


@pytest.mark.slow
@pytest.mark.parametrize("impl", ["", "linear", "sdpa", NATIVE])
def test_peak_of_a_training_step(impl: str, monkeypatch: pytest.MonkeyPatch):
    model: Any = (
        DualAttnTransformerLM(**SIZES, n_heads_sa=2, n_heads_ra=2) if impl else TransformerLM(**SIZES, n_heads=4)
    )
    if impl == "native":
        native.enable()  # tests/conftest.py disables it
    elif impl:
        monkeypatch.setattr(choice, "choose", lambda *_, **options: Choice(impl, "it is tested"))
    x = torch.randint(32, (2, N))

    def taken(**masks: Tensor) -> int:
        return peak(lambda: model.loss(x, x, **masks).backward())

    taken()  # gradients stay
    without = taken()
    for name in ("padded", "packed"):
        assert taken(**masks(name)) <= 1.1 * without, name
