"""Scores and alignments as modules: their parameters, heads, and what they refuse."""

import math

import pytest
import torch

from dual_attention import mechanisms
from tests.support.refusals import refused
from tests.support.tensors import close, float64, normal

from .space import ALIGNMENTS, SCORES, WIDTH

B, H, L, S = 2, 3, 4, 5


@pytest.mark.parametrize("name", SCORES)
def test_heads_have_parameters_of_their_own(name):
    heads, one = float64(SCORES[name](H)), SCORES[name](None).double()
    q, k = normal(B, H, L, WIDTH), normal(B, H, S, WIDTH)
    scores = heads(q, k)
    for h in range(H):
        one.load_state_dict({key: x[h].view_as(one.state_dict()[key]) for key, x in heads.state_dict().items()})
        close(scores[:, h], one(q[:, h], k[:, h]))


def test_initialisation():
    score = mechanisms.Additive(30, 40, 20, d_out=50, heads=H)
    for weight, (fan_out, fan_in) in ((score.weight_q, (20, 30)), (score.weight_k, (20, 40)), (score.weight, (50, 20))):
        bound = math.sqrt(6 / (fan_in + fan_out))
        assert weight.shape == (H, fan_out, fan_in)
        assert weight.abs().max() <= bound and weight.abs().max() > 0.9 * bound
        assert not torch.equal(weight[0], weight[1])
    assert (score.bias == 0).all() and (score.out_bias == 0).all()
    assert mechanisms.Additive(3, 3, bias=False).bias is None and mechanisms.KeyOnly(3, bias=False).bias is None
    assert mechanisms.KeyOnly(3, 0).weight_k is None


@pytest.mark.parametrize("kind", [mechanisms.Cosine, mechanisms.Euclidean])
@pytest.mark.parametrize("beta", [0.01, 1.0, 20.0])
def test_a_learned_strength_begins_where_it_is_told(kind, beta):
    close(kind(beta=beta, learned=True).double().strength(), torch.tensor(beta).double(), atol=1e-5 * beta)
    assert kind(beta=beta).strength() == beta and not list(kind(beta=beta).parameters())


def test_learned_alpha():
    align = mechanisms.Entmax(1.3, learned=True).double()
    scores = normal(B, L, S)
    close(align(scores).weights, mechanisms.Entmax(1.3)(scores).weights, atol=1e-6)
    align(scores).weights.square().sum().backward()
    assert align.raw_alpha.grad.abs() > 0
    of_heads = mechanisms.Entmax(1.3, learned=True, heads=H).double()
    features = normal(B, H, L, S, 2)
    close(of_heads(features, dim=-2).weights[..., 1], of_heads(features[..., 1]).weights)


def test_a_learned_alpha_of_1_is_softmax():
    scores = torch.randn(B, L, S)
    for align in (mechanisms.Entmax(1.001, learned=True).bfloat16(), mechanisms.Entmax(learned=True)):
        torch.nn.init.constant_(align.raw_alpha, -99.0)  # 1 + sigmoid rounds to 1
        close(weights := align(scores).weights, scores.softmax(-1), atol=1e-5)
        weights.square().sum().backward()
        assert align.raw_alpha.grad.isfinite()


@pytest.mark.parametrize("name", ALIGNMENTS)
def test_bias_and_mask(name):
    align = ALIGNMENTS[name]().double().eval()
    scores, bias = normal(B, L, S), normal(L, S)
    bias[0] = -torch.inf
    mask = torch.rand(B, L, S) < 0.7
    got = align(scores, mask, bias=bias).weights
    assert (got[:, 0] == 0).all() and got.isfinite().all()
    if "cool" not in name:
        close(got, align(scores + bias, mask).weights)


test_widths_and_settings_that_make_no_sense = refused(
    (lambda: mechanisms.Additive(0, 3), "expected"),
    (lambda: mechanisms.Additive(3, 3, d_out=0), "expected"),
    (lambda: mechanisms.General(3, 0), "expected"),
    (lambda: mechanisms.Location(3, 0), "expected"),
    (lambda: mechanisms.KeyOnly(3, -1), "expected"),
    (lambda: mechanisms.KeyOnly(3, n_queries=0), "expected"),
    (lambda: mechanisms.General(3, 3, heads=0), "expected"),
    (lambda: mechanisms.BoundedAdditive(3, 3, bound=0.0), "expected"),
    (lambda: mechanisms.Cosine(0.0), "expected"),
    (lambda: mechanisms.Euclidean(beta=-1.0), "expected"),
    (lambda: mechanisms.SubsetSampler(0), "expected"),
    (lambda: mechanisms.Softmax(temperature=0.0), "expected"),
    (lambda: mechanisms.Hard(tau=0.0), "expected"),
    (lambda: mechanisms.KeyOnly(3, n_queries=2, d_out=3), "n_queries"),
    *((lambda alpha=alpha: mechanisms.Entmax(alpha), "alpha: expected at least 1") for alpha in (0.5, math.nan)),
    *((lambda alpha=alpha: mechanisms.Entmax(alpha, learned=True), "strictly between 1 and 2")
      for alpha in (1.0, 2.0, 2.5)),
    (lambda: mechanisms.Hard("gumble"), "estimator"),
    (lambda: mechanisms.Hard(evaluation="mean"), "evaluation"),
    (lambda: mechanisms.SubsetSampler(3, evaluation="mean"), "evaluation"),
    (lambda: mechanisms.Elementwise("sine"), "activation"),
    *((base, TypeError, f"abstract class {base.__name__}") for base in (
        mechanisms.Score, mechanisms.Align, mechanisms.Select, mechanisms.Message, mechanisms.Messages
      )),
)  # fmt: skip


@pytest.mark.parametrize("name", SCORES)
def test_widths_that_a_score_cannot_take(name):
    score = SCORES[name](None)
    takes_query = score.n_queries is None
    query = torch.zeros(B, L, WIDTH + 1) if takes_query else None
    key = torch.zeros(B, S, WIDTH if takes_query else WIDTH + 1)
    with pytest.raises(ValueError, match="width"):
        score(query, key)
    if takes_query:
        with pytest.raises(ValueError, match="compares keys with a query, got None"):
            score(None, key)


def test_descriptions():
    assert repr(mechanisms.Additive(3, 4, 5, heads=2)) == "Additive(d_w=5, heads=2)"
    assert repr(mechanisms.Entmax(1.2, learned=True)) == "Entmax(alpha=1.2, learned=True)"
    assert repr(mechanisms.Hard("st")) == "Hard(estimator='st', evaluation='argmax')"
    assert repr(mechanisms.Sigmoid()) == "Sigmoid(shift=-log n)"
