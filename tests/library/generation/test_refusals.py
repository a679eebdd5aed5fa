"""Errors of generation with language models: bad arguments, models that lack something, models that diverged."""

import math

import pytest
import torch

from dual_attention.generation import generate, generate_stream
from tests.support.refusals import refusals

from .models import CONTEXT, AllLogits, small_lm

PROMPT = [4, 1, 7]
IDX = torch.tensor([PROMPT, [2, 2, 2]])


@pytest.mark.parametrize("function", [generate, generate_stream])
@refusals(
    ({"idx": PROMPT}, TypeError, "idx: expected a tensor .*left_pad.*, got list"),
    ({"idx": IDX.float()}, TypeError, "idx: expected integer token ids, got dtype torch.float32"),
    ({"idx": IDX > 2}, TypeError, "idx: expected integer token ids, got dtype torch.bool"),
    ({"idx": IDX[0]}, r"idx: expected shape \(batch, length\), got \(3,\)"),
    ({"idx": IDX[:, :0]}, "idx: expected at least one token"),
    ({"idx": IDX + 10}, "idx: expected token ids from 0 to 12, got 11 to 17"),
    ({"idx": IDX.to("meta")}, "idx: expected token ids with values, got a tensor on meta"),
    ({"idx": IDX - 2}, "idx: expected token ids from 0 to 12, got -1 to 5"),
    ({"max_new_tokens": -1}, "max_new_tokens: expected an integer of at least 0, got -1"),
    ({"max_new_tokens": 2.5}, TypeError, "max_new_tokens: expected an integer, got float"),
    ({"max_new_tokens": None}, TypeError, "max_new_tokens"),
    ({"temperature": -1}, "temperature"),
    ({"top_k": 0}, "top_k"),
    ({"top_p": 1.5}, "top_p"),
    ({"min_p": -1}, "min_p"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"logits_processors": ["x"]}, TypeError, "logits_processors"),
    ({"stop_tokens": 13}, "stop_tokens: expected token ids from 0 to 12, got 13"),
    ({"stop_tokens": [1, -1]}, "stop_tokens: .*-1"),
    ({"stop_tokens": "</s>"}, TypeError, "stop_tokens: expected an integer, got str"),
    ({"stop_tokens": [1.0]}, TypeError, "stop_tokens: expected an integer, got float"),
    ({"stop_tokens": 1.0}, TypeError, "stop_tokens: expected an integer, got float"),
    ({"pad_token": 13}, "pad_token: expected token ids from 0 to 12, got 13"),
    ({"pad_token": 0.5}, TypeError, "pad_token"),
    ({"padding_mask": (IDX > 0).long()}, TypeError, "padding_mask: expected a boolean tensor .*torch.int64"),
    ({"padding_mask": [[True]]}, TypeError, "padding_mask: expected a boolean tensor .*list"),
    ({"padding_mask": IDX[:1] > 0}, r"padding_mask: expected shape .* \(2, 3\), got \(1, 3\)"),
    ({"padding_mask": torch.tensor([[1, 1, 0], [1, 1, 1]]) > 0}, "padding_mask: expected left padding"),
    ({"padding_mask": torch.tensor([[1, 0, 1], [1, 1, 1]]) > 0}, "padding_mask: expected left padding"),
    ({"padding_mask": torch.tensor([[1, 1, 1], [0, 0, 0]]) > 0}, r"padding_mask: .*none in rows \[1\]"),
    ({"generator": 3}, TypeError, "generator: expected a torch.Generator, got int"),
    ({"seed": 1.5}, TypeError, "seed: expected an integer"),
    ({"seed": -1}, "seed: expected an integer of at least 0"),
    ({"seed": 1, "generator": torch.Generator()}, "seed: got a generator too"),
    ({"window_stride": 0}, "window_stride: expected an integer of at least 1"),
    ({"window_stride": CONTEXT + 1}, "window_stride: expected at most block_size=8, got 9"),
    ({"window_stride": 1.0}, TypeError, "window_stride"),
    of="arguments",
)
def test_bad_arguments(function, arguments, error, message):
    """Refused when the function is called, before any token is asked for."""
    model = small_lm()
    with pytest.raises(error, match=message):
        function(model, **{"idx": IDX, "max_new_tokens": 3, **arguments})
    assert model.calls == []


@refusals(
    (lambda model: generate(AllLogits(), IDX, 3), TypeError, "model: AllLogits has no .* use_cache=False"),
    (lambda model: generate(torch.nn.Linear(2, 2), IDX, 3), TypeError,
     "model: expected a language model with an integer block_size, got Linear"),
    *((lambda model, at=at: generate(model, IDX, 3, at), "logits: expected finite ones") for at in (0, 1)),
)  # fmt: skip
def test_models_that_cannot_generate(call, error, message):
    model = small_lm()
    torch.nn.init.constant_(model.out.bias, math.nan)  # as after training that diverged
    with pytest.raises(error, match=message):
        call(model)
