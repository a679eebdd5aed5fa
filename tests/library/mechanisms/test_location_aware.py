"""Attention that sees where it looked before: its formula, laws, steps and reductions."""

import pytest
import torch
import torch.nn.functional as F

from dual_attention import mechanisms
from dual_attention.functional import location_features, masked_softmax
from tests.support.refusals import refused
from tests.support.tensors import close, float64, normal

from .space import longer_by_two

B, L, S, DQ, DK, DV = 3, 4, 6, 3, 5, 2


def make(**options):
    return float64(mechanisms.LocationAwareAttention(DQ, DK, **{"n_filters": 4, "kernel_size": 3, **options}))


def inputs():
    mask = torch.rand(B, S) < 0.7
    mask[0], mask[1:, 0] = False, True
    return normal(B, L, DQ), normal(B, S, DK), normal(B, S, DV), mask


def test_features_are_a_convolution_of_the_weights():
    weights, kernel = normal(2, 3, S), normal(4, 3)
    features = location_features(weights, kernel)
    assert features.shape == (2, 3, S, 4)
    padded = F.pad(weights, (1, 1))
    close(features, sum(padded[..., i : i + S, None] * kernel[:, i] for i in range(3)))
    assert location_features(weights[..., :0], kernel).shape == (2, 3, 0, 4)


@pytest.mark.parametrize("cumulative", [False, True])
def test_formula(cumulative):
    """e_ts = <w, tanh(W q_t + V k_s + U f_s + b)>, step by step."""
    attention = make(cumulative=cumulative)
    q, k, v, mask = inputs()
    score = attention.attention.score
    of_keys, of_features = score.weight_k.split([DK, 4], dim=1)
    seen, contexts = torch.zeros(B, S).double(), []
    for t in range(L):
        f = F.conv1d(seen[:, None], attention.kernel[:, None], padding=1).transpose(1, 2)
        hidden = (q[:, t] @ score.weight_q.T)[:, None] + k @ of_keys.T + f @ of_features.T + score.bias
        weights = masked_softmax(torch.tanh(hidden) @ score.weight, mask)
        contexts.append((weights[..., None] * v).sum(1))
        seen = seen + weights if cumulative else weights
    output = attention(q, k, v, padding_mask=mask, need_weights=True)
    close(output.context, torch.stack(contexts, 1))
    close(output.seen, seen)
    close(output.weights.sum(1) if cumulative else output.weights[:, -1], seen)
    assert attention(q, k, v, padding_mask=mask).weights is None


@pytest.mark.parametrize("cumulative", [False, True])
def test_one_query_at_a_time_is_all_at_once(cumulative):
    attention = make(cumulative=cumulative)
    q, k, v, mask = inputs()
    whole = attention(q, k, v, padding_mask=mask, need_weights=True)
    seen, contexts = None, []
    for part in q.split([2, 1, 1], dim=1):
        output = attention(part, k, v, padding_mask=mask, seen=seen)
        seen = output.seen
        contexts.append(output.context)
    close(torch.cat(contexts, 1), whole.context)
    close(seen, whole.seen)


@pytest.mark.parametrize(
    "align", [mechanisms.Softmax, mechanisms.Sparsemax, mechanisms.Entmax, lambda: mechanisms.Softmax(temperature=0.5)]
)
@pytest.mark.parametrize("score", [mechanisms.Additive, mechanisms.General])
def test_laws_of_masks(score, align):
    attention = make(score=score, align=align())
    q, k, v, mask = inputs()
    tensors = [x.requires_grad_() for x in (q, k, v)]
    output = attention(q, k, v, padding_mask=mask, need_weights=True)
    assert (output.context[0] == 0).all() and (output.weights[~mask[:, None].expand(-1, L, -1)] == 0).all()
    for gradient in torch.autograd.grad(output.context.square().sum(), tensors):
        assert gradient.isfinite().all()
        assert gradient.shape[1] == L or (gradient[~mask] == 0).all()
    longer = attention(q, longer_by_two(k), longer_by_two(v), padding_mask=longer_by_two(mask))
    close(longer.context, output.context)
    close(attention(q[1:2], k[1:2], v[1:2], padding_mask=mask[1:2]).context, output.context[1:2])
    nothing = attention(q, k[:, :0], v[:, :0], need_weights=True)
    assert nothing.context.shape == (B, L, DV) and (nothing.context == 0).all() and nothing.weights.shape == (B, L, 0)
    unasked = attention(q[:, :0], k, v, need_weights=True)
    assert unasked.context.shape == (B, 0, DV) and unasked.weights.shape == (B, 0, S) and not unasked.seen.any()


def test_gradients_and_state():
    attention = make(cumulative=True)
    q, k, v, _ = inputs()
    q, k, v = (x[:2, :3].clone().requires_grad_() for x in (q, k, v))
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert torch.autograd.gradcheck(lambda *x: attention(*x, padding_mask=mask).context, (q, k, v))
    again = make(cumulative=True)
    again.load_state_dict(attention.state_dict(), strict=True)
    close(again(q, k, v).context, attention(q, k, v).context)
    assert "n_filters=4, kernel_size=3, cumulative=True" in repr(again)


def test_draws_are_reported():
    attention = make(align=mechanisms.Hard()).train()
    q, k, _, mask = inputs()
    output = attention(q, k, padding_mask=mask)
    assert output.log_prob.shape == output.entropy.shape == (B, L) and output.context.shape == (B, L, DK)


test_bad_input = refused(
    (lambda: location_features(normal(2, 3, S), normal(4, 2)), "kernel: expected shape"),
    (lambda: location_features(normal(2, 3, S), normal(3)), "kernel: expected shape"),
    (lambda: make(kernel_size=4), "kernel_size: expected an odd number"),
    (lambda: make(n_filters=0), "n_filters: expected a positive number"),
    (lambda: make(score=lambda q, k: mechanisms.KeyOnly(k)), "score: expected one number"),
    (lambda: make(score=lambda q, k: mechanisms.Additive(q, k, d_out=2)), "score: expected one number"),
    (lambda: make(score=lambda q, k: mechanisms.Cosine())(*inputs()[:3]), "one width"),
    (lambda: make()(normal(B, L, 4), normal(B, S, DK)), "query: expected shape"),
    (lambda: make()(normal(B, L, DQ), normal(S, DK)), "key: expected shape"),
    (lambda: make()(*inputs()[:3], seen=normal(B, 2)), "seen: expected shape"),
    (lambda: make()(*inputs()[:3], padding_mask=torch.ones(B, S)), TypeError, "padding_mask: .*boolean"),
)
