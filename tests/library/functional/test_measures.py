import math

import torch

from dual_attention.functional import (
    alignment_error_rate,
    attention_correctness,
    attention_entropy,
    coverage_loss,
    doubly_stochastic_penalty,
    masked_softmax,
    rank_correlation,
    structured_attention_penalty,
    supervised_attention_loss,
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


def test_alignment_error_rate():
    weights = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4]])  # links 0-0, 1-1, 2-2
    sure = boolean([1, 0, 0], [0, 0, 1], [0, 0, 0])
    possible = boolean([1, 0, 0], [0, 1, 1], [0, 0, 0])
    # A has 3, G_s 2; A and G_s share 0-0, A and G_p share 0-0 and 1-1
    torch.testing.assert_close(alignment_error_rate(weights, sure, possible), torch.tensor(1 - 3 / 5))
    assert alignment_error_rate(weights, torch.eye(3).bool()).item() == 0.0
    assert alignment_error_rate(weights, torch.eye(3).roll(1, 0).bool()).item() == 1.0
    padded = torch.cat([weights, torch.zeros(2, 3)])
    assert alignment_error_rate(padded, torch.eye(5, 3).bool()).item() == 0.0
    assert alignment_error_rate(torch.zeros(2, 3), torch.zeros(2, 3).bool()).isnan()


def test_rank_correlation():
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    human = torch.tensor([1.0, 5.0, 7.0, 100.0], dtype=torch.float64)
    torch.testing.assert_close(rank_correlation(weights, human).item(), 1.0)
    torch.testing.assert_close(rank_correlation(weights, -human).item(), -1.0)
    tied = torch.tensor([1.0, 1.0, 2.0, 0.0], dtype=torch.float64)
    # ranks 1.5 1.5 3 0 against 0 1 2 3: covariance 0, computed by hand: centred (0 0 1.5 -1.5) . (-1.5 -.5 .5 1.5)
    torch.testing.assert_close(rank_correlation(weights, tied).item(), (0.75 - 2.25) / math.sqrt(4.5 * 5.0))
    mask = boolean([1, 1, 1, 0])
    changed = torch.tensor([1.0, 5.0, 7.0, -9.0], dtype=torch.float64)
    torch.testing.assert_close(rank_correlation(weights, changed, mask).item(), 1.0)
    assert rank_correlation(weights, torch.ones_like(weights)).isnan()


def test_supervised_loss():
    weights = torch.tensor([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]], requires_grad=True)
    gold = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    loss = supervised_attention_loss(weights, gold)
    torch.testing.assert_close(loss[0].item(), math.log(2))
    assert loss[1].isfinite() and loss[1] > 50
    loss.sum().backward()
    assert weights.grad.isfinite().all()
    squares = supervised_attention_loss(weights, gold, boolean([1, 1, 0]), kind="mse")
    torch.testing.assert_close(squares, torch.tensor([(0.25 + 0.0625) / 2, 1.0]))


def test_doubly_stochastic():
    assert doubly_stochastic_penalty(torch.eye(3)).item() == 0.0
    weights = torch.tensor([[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]])
    assert doubly_stochastic_penalty(weights).tolist() == [3.0]
    assert doubly_stochastic_penalty(weights, boolean([1, 1, 0])).tolist() == [2.0]


def test_coverage():
    assert coverage_loss(torch.eye(3)).item() == 0.0
    weights = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.0, 0.8]])
    torch.testing.assert_close(coverage_loss(weights).item(), 0.5 + 0.2)


def test_structured_attention_penalty():
    r, s = 3, 5
    assert structured_attention_penalty(torch.eye(r, s)).item() == 0.0
    uniform = torch.full((2, r, s), 1 / s, dtype=torch.float64)
    wanted = r * (r - 1) / s**2 + r * (1 - 1 / s) ** 2
    torch.testing.assert_close(structured_attention_penalty(uniform), torch.full((2,), wanted, dtype=torch.float64))


OF_DISTRIBUTIONS = [
    lambda w: attention_correctness(w, torch.ones(2, 3, dtype=torch.bool)),
    attention_entropy,
    lambda w: alignment_error_rate(w, torch.ones(2, 3, dtype=torch.bool)),
    lambda w: rank_correlation(w, torch.rand(2, 3)),
]


W = torch.rand(2, 3)
PENALTIES = (doubly_stochastic_penalty, coverage_loss, structured_attention_penalty)
OF_WEIGHTS = (*OF_DISTRIBUTIONS, *PENALTIES, lambda w: supervised_attention_loss(w, W))
OF_MASKS = (
    lambda mask: attention_correctness(W, mask),
    lambda mask: attention_entropy(W, mask),
    lambda mask: rank_correlation(W, W, mask),
    lambda mask: doubly_stochastic_penalty(W, mask),
)


test_bad_input = refused(
    *(
        (lambda of=of: of(torch.tensor([[0.5, -0.5, 1.0], [0.0, 0.0, 0.0]])), "none negative")
        for of in OF_DISTRIBUTIONS
    ),
    *((lambda of=of: of([[0.5, 0.5, 0.0]]), TypeError, r"^weights: expected a tensor, got list") for of in OF_WEIGHTS),
    *((lambda of=of: of(W.long()), TypeError, r"^weights: expected a floating-point tensor") for of in OF_WEIGHTS),
    *((lambda of=of: of(W[0]), r"^weights: expected shape \(..., length, width\), got \(3,\)") for of in PENALTIES),
    *((lambda of=of: of(torch.ones(2, 3)), TypeError, "boolean") for of in OF_MASKS),
    *((lambda of=of: of(torch.ones(2, 4, dtype=torch.bool)), "broadcasts") for of in OF_MASKS),
    (lambda: alignment_error_rate(W, W > 0, torch.zeros(3, 3).bool()), "possible"),
    (lambda: rank_correlation(W, [0.5]), TypeError, r"^human: expected a tensor, got list"),
    (lambda: supervised_attention_loss(W, [0.5]), TypeError, r"^gold: expected a tensor, got list"),
    (lambda: supervised_attention_loss(W, W, kind="l1"), "kind"),
    (lambda: supervised_attention_loss(W, W[:1]), "gold"),
)
