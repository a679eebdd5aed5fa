import torch

from dual_attention.generation import left_pad
from tests.support.refusals import refused


def test_left_pad():
    tokens, mask = left_pad([[3], torch.tensor([1, 2, 5], dtype=torch.int32), (4, 6)], pad_token=9)
    assert tokens.tolist() == [[9, 9, 3], [1, 2, 5], [9, 4, 6]]
    assert mask.int().tolist() == [[0, 0, 1], [1, 1, 1], [0, 1, 1]]
    assert (tokens.dtype, mask.dtype) == (torch.int64, torch.bool)


def test_rows_of_a_tensor_are_prompts():
    tokens, mask = left_pad(torch.tensor([[1, 2], [3, 4]]))
    assert tokens.tolist() == [[1, 2], [3, 4]]
    assert mask.all()


test_bad_prompts = refused(
    (lambda: left_pad([]), "prompts: expected at least one"),
    (lambda: left_pad([[1], []]), r"prompts\[1\]: expected a vector of at least one token id"),
    (lambda: left_pad([[[1]]]), r"prompts\[0\]: expected a vector"),
    (lambda: left_pad([1, 2]), r"prompts\[0\]: expected a vector"),
    (lambda: left_pad("text"), TypeError, "prompts: expected a list"),
    (lambda: left_pad(["text"]), TypeError, r"prompts\[0\]: expected token ids, got str"),
    (lambda: left_pad([[1.5]]), TypeError, r"prompts\[0\]: expected integer token ids"),
    (lambda: left_pad([[True]]), TypeError, r"prompts\[0\]: expected integer token ids"),
    (lambda: left_pad([[None]]), TypeError, r"prompts\[0\]: expected token ids"),
    (lambda: left_pad(None), TypeError, "prompts: expected a list"),
    (lambda: left_pad([[1]], pad_token=-1), "pad_token"),
)
