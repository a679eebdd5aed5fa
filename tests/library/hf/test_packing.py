"""Sequences packed into one row, in every way in which transformers' collators tell of them, are those one by one."""

import pytest
import torch
from torch import Tensor
from transformers import DataCollatorWithFlattening

from tests.library.hf.models import KINDS, causal, tokens

LENGTHS = (5, 1, 9, 12)  # together longer than the context

TOLD = {
    "position_ids": {},
    "seq_idx": {"return_position_ids": False, "return_seq_idx": True},
    "cu_seq_lens": {"return_position_ids": False, "return_flash_attn_kwargs": True},
    "all": {"return_seq_idx": True, "return_flash_attn_kwargs": True},
}


def packed(sequences: list[Tensor], **told) -> dict:
    return DataCollatorWithFlattening(**told)([{"input_ids": x.tolist()} for x in sequences], return_tensors="pt")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("told", TOLD)
@pytest.mark.parametrize("training", [True, False])
def test_packed_as_one_by_one(kind: str, told: str, training: bool):
    """Logits, loss and gradients, with gradients and, as in an evaluation, without."""
    model = causal(kind).double().train(training)
    sequences = [tokens(length) for length in LENGTHS]
    batch = packed(sequences, **TOLD[told])
    with torch.set_grad_enabled(training):
        whole = model(**batch)
        alone = [model(x[None], labels=x[None]) for x in sequences]
    assert whole.past_key_values is None
    torch.testing.assert_close(whole.logits[0], torch.cat([part.logits[0] for part in alone]), atol=1e-12, rtol=1e-12)
    scored = [length - 1 for length in LENGTHS]
    losses = sum(part.loss * count for part, count in zip(alone, scored, strict=True) if count)
    torch.testing.assert_close(whole.loss, losses / sum(scored), atol=1e-12, rtol=1e-12)
    if training:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        ours, theirs = (torch.autograd.grad(loss, parameters) for loss in (whole.loss, losses / sum(scored)))
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-9)


def test_packed_rows_of_a_batch():
    """Sequence numbers are of each row, whatever they are, and padding stays padding."""
    model = causal().double()
    x = tokens(2, 6)
    numbers = torch.tensor([[7, 7, 3, 3, 3, 3], [0, 1, 1, 1, 1, 1]])
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    logits = model(x, mask, seq_idx=numbers).logits
    for row, part in ((0, slice(2)), (0, slice(2, 6)), (1, slice(1)), (1, slice(1, 4))):
        torch.testing.assert_close(logits[row, part], model(x[row : row + 1, part]).logits[0], atol=1e-12, rtol=1e-12)


def test_packed_base():
    model = causal().double()
    batch = packed([tokens(length) for length in LENGTHS], return_seq_idx=True)
    labels = batch.pop("labels")
    hidden = model.base_model(**batch, use_cache=True).last_hidden_state
    torch.testing.assert_close(model.lm_head(hidden), model(**batch, labels=labels).logits, atol=1e-12, rtol=1e-12)


def test_packed_sequences_have_no_past():
    model = causal()
    with torch.no_grad(), pytest.raises(ValueError, match="segments: packed sequences cannot be continued"):
        model(tokens(1, 4), seq_idx=torch.tensor([[0, 0, 1, 1]]), past_key_values=model.new_cache())
