"""What each alignment must reduce to: soft, sparse, hard, elementwise, local, reinforced."""

import math

import pytest
import torch
from torch import nn

from dual_attention.functional import (
    bernoulli_subset,
    entmax,
    hard_alignment,
    local_window,
    log_gaussian,
    masked_activation,
    masked_softmax,
    monotonic_centre,
    predicted_position,
    reinforce_loss,
    sigmoid_alignment,
    sparsemax,
    uniform_alignment,
)
from tests.support.refusals import refused

from .attention_space import B, S, close, scores_and_mask

# Soft


def test_temperature():
    scores = torch.tensor([[0.0, 1.0, 3.0], [2.0, 0.0, 2.0]], dtype=torch.float64)
    cold = masked_softmax(scores, temperature=1e-2)
    close(cold, torch.tensor([[0.0, 0.0, 1.0], [0.5, 0.0, 0.5]], dtype=torch.float64))
    close(masked_softmax(scores, temperature=1e6), torch.full_like(scores, 1 / 3), atol=1e-5)
    close(masked_softmax(scores, temperature=0.5), (2 * scores).softmax(-1))


def test_uniform():
    scores, mask = scores_and_mask()
    mask[..., 1, :] = True
    weights = uniform_alignment(scores, mask)
    close(weights[:, 1], torch.full((B, S), 1 / S, dtype=torch.float64))
    close(weights, mask.double() / mask.sum(-1, keepdim=True).clamp_min(1))


# Sparse


def test_sparsemax_identities():
    t = torch.linspace(-3, 3, 25, dtype=torch.float64)
    two = sparsemax(torch.stack([t, torch.zeros_like(t)], -1))
    close(two[:, 0], ((t + 1) / 2).clamp(0, 1))
    simplex = torch.rand(9, 6, dtype=torch.float64)
    simplex = simplex / simplex.sum(-1, keepdim=True)
    close(sparsemax(simplex), simplex)
    scores = torch.randn(9, 6, dtype=torch.float64)
    close(sparsemax(scores + 7.5), sparsemax(scores))
    top = scores.topk(2, dim=-1).values
    gap = float((top[:, 0] - top[:, 1]).min())
    hard = hard_alignment(scores, estimator="argmax").weights
    assert torch.equal(sparsemax(scores, temperature=gap / 2), hard)


def test_entmax_identities():
    scores, mask = scores_and_mask(9, 6)
    close(entmax(scores, mask, alpha=torch.tensor(2.0)), sparsemax(scores, mask))
    close(entmax(scores, mask, alpha=2), sparsemax(scores, mask))
    close(entmax(scores, mask, alpha=1), masked_softmax(scores, mask))
    close(entmax(scores, mask, alpha=1.0001), masked_softmax(scores, mask), atol=1e-4)
    close(entmax(scores, mask, alpha=1.5), entmax(scores, mask, alpha=torch.tensor(1.5)))


def test_entmax_satisfies_its_equation_and_is_the_maximum():
    scores = torch.randn(5, 6, dtype=torch.float64)
    for alpha in (1.25, 1.5, 3.0):
        weights = entmax(scores, alpha=alpha)

        def objective(p, alpha=alpha):
            return (p * scores).sum(-1) + (p - p**alpha).sum(-1) / (alpha * (alpha - 1))

        for _ in range(20):
            other = torch.rand(5, 6, dtype=torch.float64)
            other = 0.9 * weights + 0.1 * other / other.sum(-1, keepdim=True)
            assert (objective(weights) >= objective(other)).all()


def test_alpha_can_be_learned():
    scores, mask = scores_and_mask()
    alpha = torch.tensor([1.2, 1.7], dtype=torch.float64).view(2, 1, 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, a: entmax(x, mask, alpha=a), (scores.requires_grad_(), alpha))
    close(entmax(scores, mask, alpha=alpha)[1], entmax(scores[1], mask[1], alpha=1.7))
    swapped = entmax(scores.transpose(1, 2), mask.transpose(1, 2), alpha=alpha, dim=1).transpose(1, 2)
    close(swapped, entmax(scores, mask, alpha=alpha))


X, FAR, BELOW = torch.randn(2, 3), torch.ones(2, 3, device="meta"), (0.99, 0.0, math.nan, math.inf)


test_bad_input = refused(
    *((lambda a=a: entmax(X, alpha=a), r"^alpha: expected") for a in BELOW),
    *((lambda a=a: entmax(X, alpha=torch.tensor(a)), r"^alpha: expected finite numbers above 1, got") for a in BELOW),
    *(
        (lambda a=a: entmax(X, alpha=nn.Parameter(torch.tensor([[1.5], [a]]))), r"^alpha: expected .* above 1, got")
        for a in BELOW
    ),
    (lambda: entmax(X, alpha=torch.tensor(1.0)), r"^alpha: expected finite numbers above 1, got 1"),
    (lambda: entmax(X, alpha=None), TypeError, r"^alpha: expected a number, got None"),
    (lambda: reinforce_loss(X[:, 0], X[:1]), "log_prob"),
    (lambda: reinforce_loss(X[:, 0], X, entropy_weight=1.0), "entropy"),
    (lambda: hard_alignment(X, estimator="hard"), "estimator: expected one of reinforce"),
    (lambda: hard_alignment(X, estimator="gumbel", tau=0.0), "tau"),
    (lambda: local_window(torch.arange(6), torch.arange(6), -1), "half_width"),
    (lambda: log_gaussian(X, torch.arange(3), 0.0), "sigma"),
    (lambda: masked_softmax(X, FAR.bool()), "mask: expected a tensor on cpu as scores, got one on meta"),
    (lambda: masked_softmax(X, bias=FAR), "bias: expected a tensor on cpu as scores, got one on meta"),
    (lambda: bernoulli_subset(X, FAR.bool()), "mask: expected a tensor on cpu as logits, got one on meta"),
)


@pytest.mark.parametrize("size", [1.0, 5.0])
@pytest.mark.parametrize("alpha", [1 + 1e-9, 1 + 1e-7, 1.0001, 1.01, 1.25, 1.5, 2.5, 4.0])
def test_float32_keeps_its_digits_at_every_alpha(alpha, size):
    scores = size * torch.randn(64, 32, generator=torch.Generator().manual_seed(0))
    weights = entmax(scores, alpha=alpha)
    # A large alpha makes much of the last digit of a score.
    close(weights.double(), entmax(scores.double(), alpha=alpha), atol=1e-6 if alpha < 4 else 1e-2)
    if alpha < 1.001:
        close(weights, torch.softmax(scores, -1), atol=10 * (alpha - 1) + 1e-6)
    learned = torch.tensor(max(alpha, 1 + 2e-7))
    close(entmax(scores, alpha=learned), entmax(scores, alpha=learned.item()), atol=1e-6 if alpha < 4 else 1e-2)


def test_long_rows_in_float32():
    scores = 4 * torch.randn(3, 5000)
    for function in (sparsemax, entmax):
        close(function(scores), function(scores.double()).float(), atol=1e-6)


# Hard


def test_one_hot_and_argmax():
    scores, mask = scores_and_mask()
    for estimator in ("reinforce", "st", "gumbel_st", "argmax"):
        weights = hard_alignment(scores.requires_grad_(), mask, estimator=estimator).weights.detach()
        assert ((weights == 0) | (weights == 1)).all()
        assert torch.equal(weights.sum(-1), mask.any(-1).double())
    best = scores.masked_fill(~mask, -torch.inf).argmax(-1, keepdim=True)
    wanted = torch.zeros_like(scores).scatter(-1, best, 1.0) * mask.any(-1, keepdim=True)
    assert torch.equal(hard_alignment(scores, mask, estimator="argmax").weights, wanted.detach())
    tie = hard_alignment(torch.tensor([1.0, 2.0, 2.0]), estimator="argmax").weights
    assert tie.tolist() == [0.0, 1.0, 0.0]


def test_draws_follow_the_softmax():
    scores = torch.tensor([0.3, -1.0, 1.2, 0.0], dtype=torch.float64)
    mask = torch.tensor([True, True, True, False])
    p = masked_softmax(scores, mask)
    n = 20_000
    draws = hard_alignment(scores.expand(n, 4), mask, generator=torch.Generator().manual_seed(1)).weights
    spread = (p * (1 - p) / n).sqrt()
    assert ((draws.mean(0) - p).abs() <= 3 * spread).all()


def test_log_prob_and_entropy():
    scores, mask = scores_and_mask()
    result = hard_alignment(scores.requires_grad_(), mask)
    (gradient,) = torch.autograd.grad((result.log_prob + result.entropy).sum(), scores)
    assert gradient.isfinite().all() and (gradient[~mask] == 0).all()
    scores = scores.detach()
    p = masked_softmax(scores, mask)
    close(result.log_prob.detach().exp() * mask.any(-1), (result.weights * p).sum(-1))
    close(result.entropy.detach(), -torch.xlogy(p, p).sum(-1))
    assert (result.log_prob[:, 0] == 0).all() and (result.entropy[:, 0] == 0).all()
    alone = hard_alignment(torch.randn(1, 3), torch.tensor([[False, True, False]]))
    assert alone.weights.tolist() == [[0.0, 1.0, 0.0]] and alone.log_prob.item() == 0.0
    expected = hard_alignment(scores, mask, estimator="expected")
    assert expected.log_prob is None
    close(expected.weights, p)


def test_draws_for_each_feature_are_independent():
    scores = torch.zeros(1, 50, 200, dtype=torch.float64)
    result = hard_alignment(scores, dim=-2, generator=torch.Generator().manual_seed(0))
    assert result.log_prob.shape == (1, 200) and torch.equal(result.weights.sum(-2), torch.ones(1, 200).double())
    assert len(result.weights.argmax(-2).unique()) > 30


def test_straight_through_has_the_soft_gradient_of_a_linear_loss():
    scores, mask = scores_and_mask()
    cotangent = torch.randn_like(scores)
    gradients = []
    for align in (lambda x: hard_alignment(x, mask, estimator="st").weights, lambda x: masked_softmax(x, mask)):
        x = scores.clone().requires_grad_()
        (align(x) * cotangent).sum().backward()
        gradients.append(x.grad)
    close(*gradients)


def test_cold_gumbel_is_one_hot():
    scores, mask = scores_and_mask()
    generator = torch.Generator()
    relaxed = hard_alignment(scores, mask, estimator="gumbel", tau=1e-4, generator=generator.manual_seed(5)).weights
    drawn = hard_alignment(scores, mask, estimator="reinforce", generator=generator.manual_seed(5)).weights
    close(relaxed, drawn)


def test_gradient_of_the_gumbel_relaxation():
    scores, mask = scores_and_mask()

    def align(x):
        generator = torch.Generator().manual_seed(0)
        return hard_alignment(x, mask, estimator="gumbel", tau=0.7, generator=generator).weights

    assert torch.autograd.gradcheck(align, scores.requires_grad_())


@pytest.mark.parametrize("baseline", [0.0, 1.7])
def test_expected_reinforce_gradient_is_exact(baseline):
    """Over all choices, weighted by their probabilities."""
    scores = torch.randn(4, dtype=torch.float64, requires_grad=True)
    losses = torch.randn(4, dtype=torch.float64)
    p = scores.softmax(-1)
    (exact,) = torch.autograd.grad((p * losses).sum(), scores)
    log_p = scores.log_softmax(-1)
    surrogate = reinforce_loss(losses, log_p[:, None], baseline=baseline)
    (gradient,) = torch.autograd.grad((p.detach() * surrogate).sum(), scores)
    close(gradient, exact)


def test_reinforce_loss_terms():
    loss, log_prob, entropy = torch.randn(3), torch.randn(3, 2), torch.rand(3, 2)
    got = reinforce_loss(loss, log_prob, baseline=0.5, weight=0.1, entropy=entropy, entropy_weight=0.01)
    close(got, loss + 0.1 * (loss - 0.5) * log_prob.sum(-1) - 0.01 * entropy.sum(-1), atol=1e-6)


# Elementwise


def test_sigmoid():
    mask = torch.tensor([[True] * 4, [True, False, True, False], [False] * 4])
    weights = sigmoid_alignment(torch.zeros(3, 4, dtype=torch.float64), mask)
    close(weights.sum(-1), torch.tensor([4 / 5, 2 / 3, 0.0], dtype=torch.float64))
    scores = torch.randn(3, 4, dtype=torch.float64)
    close(sigmoid_alignment(scores, mask, shift=0.0), masked_activation(scores, mask))


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_an_activation_infinite_at_the_fill_does_no_harm():
    scores = torch.rand(2, 3, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, False, True], [False] * 3])
    with torch.autograd.detect_anomaly(check_nan=True):
        weights = masked_activation(scores, mask, torch.sqrt)
        weights.sum().backward()
    assert (weights[~mask] == 0).all() and scores.grad.isfinite().all() and (scores.grad[~mask] == 0).all()


# Local


def test_monotonic_centres_stop_at_the_last_key():
    lengths = torch.tensor([5, 2, 0])
    assert monotonic_centre(4, lengths).tolist() == [[0, 1, 2, 3], [0, 1, 1, 1], [0, 0, 0, 0]]
    assert monotonic_centre(3, lengths, offset=2).tolist() == [[2, 3, 4], [1, 1, 1], [0, 0, 0]]


def test_predicted_positions():
    logits = torch.tensor([[-200.0, 0.0, 200.0]])
    position, centre = predicted_position(logits, torch.tensor([5]))
    assert centre.tolist() == [[0, 2, 4]]  # saturated at n, the last key
    close(position, torch.tensor([[0.0, 2.5, 5.0]]), atol=0)
    _, nothing = predicted_position(logits, torch.tensor([0]))
    assert nothing.tolist() == [[0, 0, 0]]


def test_windows_are_cut_at_the_ends():
    window = local_window(torch.tensor([0, 3, 5]), torch.arange(6), 1)
    assert window.int().tolist() == [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 1, 1]]
    assert torch.equal(local_window(torch.arange(6), torch.arange(6), 5), torch.ones(6, 6, dtype=torch.bool))
    assert torch.equal(local_window(torch.arange(6), torch.arange(6), 0), torch.eye(6, dtype=torch.bool))


def test_renormalised_gaussian_is_a_bias_of_the_softmax():
    scores = torch.randn(2, 3, 6, dtype=torch.float64)
    position, centre = predicted_position(torch.randn(2, 3, dtype=torch.float64), torch.tensor([6, 4]))
    window = local_window(centre, torch.arange(6), 2)
    gain = log_gaussian(position, torch.arange(6), 1.0)
    after = masked_softmax(scores, window) * gain.exp()
    assert (after.sum(-1) < 1).all()
    close(masked_softmax(scores, window, bias=gain), after / after.sum(-1, keepdim=True))


# Reinforced


def test_subset_log_likelihood():
    logits = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(3, 5) < 0.6
    z, log_prob = bernoulli_subset(logits, mask, generator=torch.Generator().manual_seed(0))
    bernoulli = torch.distributions.Bernoulli(logits=logits)
    close(log_prob, (bernoulli.log_prob(z.double()) * mask).sum(-1))
    assert not z[~mask].any() and log_prob.requires_grad
    chosen, _ = bernoulli_subset(logits, sample=False)
    assert torch.equal(chosen, torch.sigmoid(logits) >= 0.5)
    draws = torch.stack([bernoulli_subset(logits)[0] for _ in range(2000)]).double().mean(0)
    close(draws, torch.sigmoid(logits.detach()), atol=0.05)
