from __future__ import annotations

import pytest
import torch

from dual_attention.generation import left_pad
from tests.support.refusals import refusals


def test_left_pad():
    tokens, mask = left_pad([[3], torch.tensor([1, 2, 5], dtype=torch.int32), (4, 6)], pad_token=9)
    assert tokens.tolist() == [[9, 9, 3], [1, 2, 5], [9, 4, 6]]
    assert mask.int().tolist() == [[0, 0, 1], [1, 1, 1], [0, 1, 1]]
    assert (tokens.dtype, mask.dtype) == (torch.int64, torch.bool)


def test_rows_of_a_tensor_are_prompts():
    tokens, mask = left_pad(torch.tensor([[1, 2], [3, 4]]))
    assert tokens.tolist() == [[1, 2], [3, 4]]
    assert mask.all()


@refusals(
    ([], "prompts: expected at least one"),
    ([[1], []], r"prompts\[1\]: expected a vector of at least one token id"),
    ([[[1]]], r"prompts\[0\]: expected a vector"),
    ([1, 2], r"prompts\[0\]: expected a vector"),
    ("text", TypeError, "prompts: expected a list"),
    (["text"], TypeError, r"prompts\[0\]: expected token ids, got str"),
    ([[1.5]], TypeError, r"prompts\[0\]: expected integer token ids"),
    ([[True]], TypeError, r"prompts\[0\]: expected integer token ids"),
    ([[None]], TypeError, r"prompts\[0\]: expected token ids"),
    (None, TypeError, "prompts: expected a list"),
    of="prompts",
)
def test_bad_prompts(prompts, error, message):
    with pytest.raises(error, match=message):
        left_pad(prompts)


def test_bad_pad_token():
    with pytest.raises(ValueError, match="pad_token"):
        left_pad([[1]], pad_token=-1)
