import math

import torch

from dual_attention.functional import (
    attention_correctness,
    attention_entropy,
    masked_softmax,
    structured_attention_penalty,
)
from tests.support.refusals import refused


def boolean(*rows):
    return torch.tensor(rows if len(rows) > 1 else rows[0], dtype=torch.bool)


def test_correctness():
    weights = torch.tensor([[0.1, 0.2, 0.7], [0.0, 0.0, 0.0]])
    region = boolean([0, 1, 1])
    torch.testing.assert_close(attention_correctness(weights, region), torch.tensor([0.9, 0.0]))


def test_entropy():
    one, uniform = torch.tensor([0.0, 1.0, 0.0, 0.0]), torch.full((4,), 0.25)
    half = torch.tensor([0.5, 0.5, 0.0, 0.0])
    rows = torch.stack([one, uniform, half, torch.zeros(4)])
    torch.testing.assert_close(attention_entropy(rows), torch.tensor([0.0, 1.0, 0.5, 0.0]))
    wanted = torch.tensor([0.0, math.log(4), math.log(2), 0.0])
    torch.testing.assert_close(attention_entropy(rows, normalise=False), wanted)
    mask = boolean([1, 1, 0, 0])
    torch.testing.assert_close(attention_entropy(half, mask), torch.tensor(1.0))
    torch.testing.assert_close(attention_entropy(0.3 * half, mask), torch.tensor(1.0))  # need not sum to one
    assert attention_entropy(one, boolean([0, 1, 0, 0])).item() == 0.0


def test_entropy_of_uniform_weights_over_any_mask_is_one():
    mask = torch.rand(20, 7) < 0.5
    weights = masked_softmax(torch.zeros(20, 7), mask)
    wanted = (mask.sum(-1) > 1).float()
    torch.testing.assert_close(attention_entropy(weights, mask), wanted)


def test_structured_attention_penalty():
    r, s = 3, 5
    assert structured_attention_penalty(torch.eye(r, s)).item() == 0.0
    uniform = torch.full((2, r, s), 1 / s, dtype=torch.float64)
    wanted = r * (r - 1) / s**2 + r * (1 - 1 / s) ** 2
    torch.testing.assert_close(structured_attention_penalty(uniform), torch.full((2,), wanted, dtype=torch.float64))


W = torch.rand(2, 3)
OF_DISTRIBUTIONS = (lambda w: attention_correctness(w, W > 0), attention_entropy)
OF_WEIGHTS = (*OF_DISTRIBUTIONS, structured_attention_penalty)
OF_MASKS = (lambda mask: attention_correctness(W, mask), lambda mask: attention_entropy(W, mask))


test_bad_input = refused(
    *(
        (lambda of=of: of(torch.tensor([[0.5, -0.5, 1.0], [0.0, 0.0, 0.0]])), "none negative")
        for of in OF_DISTRIBUTIONS
    ),
    *((lambda of=of: of([[0.5, 0.5, 0.0]]), TypeError, r"^weights: expected a tensor, got list") for of in OF_WEIGHTS),
    *((lambda of=of: of(W.long()), TypeError, r"^weights: expected a floating-point tensor") for of in OF_WEIGHTS),
    (lambda: structured_attention_penalty(W[0]), r"^weights: expected shape \(..., length, width\), got \(3,\)"),
    *((lambda of=of: of(torch.ones(2, 3)), TypeError, "boolean") for of in OF_MASKS),
    *((lambda of=of: of(torch.ones(2, 4, dtype=torch.bool)), "broadcasts") for of in OF_MASKS),
)
