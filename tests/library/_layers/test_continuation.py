"""Layers continue from what a cache holds, compiled or not."""

import pytest
import torch
import torch._dynamo

from dual_attention.attention import Attention
from dual_attention.relational_attention import RelationalAttention
from tests.support.tensors import normal


@pytest.fixture
def one_form():
    """Let the compiler make one form of each code, and no more."""
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=1, fail_on_recompile_limit_hit=True):
        yield
    torch._dynamo.reset()


def test_layers_of_one_kind_do_not_use_up_the_forms_of_another(one_form):
    x, symbols = (normal(1, 5, 8, dtype=torch.float32) for _ in range(2))
    torch.compile(Attention(8, 2), backend="eager")(x, x, x)
    torch.compile(RelationalAttention(8, 2, n_relations=2), backend="eager")(x, symbols)
