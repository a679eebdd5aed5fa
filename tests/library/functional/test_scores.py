"""Scores: their formulas, their identities, and what they refuse."""

import pytest
import torch

from dual_attention.functional import (
    additive_score,
    cosine_score,
    dot_score,
    euclidean_score,
    general_score,
    key_score,
    location_score,
    product_score,
    squared_distance_keys,
    squared_distance_queries,
    trilinear_score,
)
from tests.support.refusals import refused

from .attention_space import HIDDEN, KEY_SCORES, LONGEST, MULTIDIM_SCORES, SCORES, WIDTH, close

L, S = 3, 5


def inputs(*lead, dtype=torch.float64, length=S):
    return torch.randn(*lead, L, WIDTH, dtype=dtype), torch.randn(*lead, length, WIDTH, dtype=dtype)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("lead", [(), (2,), (2, 4), (2, 1, 3)])
def test_leading_axes_are_a_loop(name, lead):
    q, k = inputs(*lead)
    scores = SCORES[name](q, k)
    assert scores.shape == (*lead, L, S)
    for index in torch.cartesian_prod(*(torch.arange(n) for n in lead)).view(-1, len(lead)) if lead else ():
        close(scores[tuple(index)], SCORES[name](q[tuple(index)], k[tuple(index)]))


@pytest.mark.parametrize("name", MULTIDIM_SCORES)
def test_multidimensional_leading_axes_are_a_loop(name):
    q, k = inputs(2, 4)
    scores = MULTIDIM_SCORES[name](q, k)
    assert scores.shape == (2, 4, L, S, WIDTH)
    close(scores[1, 2], MULTIDIM_SCORES[name](q[1, 2], k[1, 2]))


@pytest.mark.parametrize("name", KEY_SCORES)
def test_scores_of_keys_alone(name):
    k = inputs(2, 4)[1]
    scores = KEY_SCORES[name](k)
    assert scores.shape[:2] == (2, 4) and scores.shape[-1] == S
    close(scores[1, 2], KEY_SCORES[name](k[1, 2]))


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("length", [0, 1])
def test_few_keys(name, length):
    q, k = inputs(2, length=length)
    assert SCORES[name](q, k).shape == (2, L, length)
    assert SCORES[name](q[:, :0], k).shape == (2, 0, length)


@pytest.mark.parametrize("table", [SCORES, MULTIDIM_SCORES])
def test_second_and_forward_derivatives(table):
    for score in table.values():
        inputs_of_score = tuple(x.requires_grad_() for x in inputs(2))
        assert torch.autograd.gradcheck(score, inputs_of_score, check_forward_ad=True, fast_mode=True)
        assert torch.autograd.gradgradcheck(score, inputs_of_score, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SCORES)
def test_lower_precision(name, dtype):
    q, k = inputs(2)
    wanted = SCORES[name](q, k)
    got = SCORES[name](q.to(dtype), k.to(dtype))
    tolerance = 1e-4 if dtype == torch.float32 else 0.05 * float(wanted.abs().max())
    torch.testing.assert_close(got.double(), wanted, atol=tolerance, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["cosine", "euclidean", "squared euclidean"])
def test_autocast_narrows_no_products_of_wide_numbers(name, dtype):
    """Far from zero, a squared distance is a small difference of large numbers."""
    q, k = ((9 + x).to(dtype).requires_grad_() for x in inputs(2))
    wanted = SCORES[name](q.float(), k.float())
    with torch.autocast("cpu", torch.bfloat16):
        found = SCORES[name](q, k)
    assert torch.equal(found, wanted) and found.dtype == torch.float32
    assert all(map(torch.equal, *(torch.autograd.grad(x.sin().sum(), (q, k)) for x in (found, wanted))))


# Derivatives at places that padding brings about: zero vectors, and a key equal to the query.


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SCORES)
def test_derivatives_are_finite_at_zero_padding(name, dtype):
    q, k = (x.to(dtype) for x in inputs(2))
    q[0, 0] = k[0, 0] = k[1] = 0.0
    q[1, 1] = k[1, 1] = 1.0
    q.requires_grad_()
    k.requires_grad_()
    scores = SCORES[name](q, k)
    scores.float().sum().backward()
    assert scores.isfinite().all() and q.grad.isfinite().all()
    assert k.grad is None or k.grad.isfinite().all()  # location does not look at keys


# Identities


def test_additive_is_the_score_of_a_concatenation():
    q, k = inputs(2)
    w1, w2, b, w = (torch.randn(*s, dtype=torch.float64) for s in ((4, 3), (4, 3), (4,), (4,)))
    both = torch.cat([q[:, :, None].expand(-1, -1, S, -1), k[:, None].expand(-1, L, -1, -1)], -1)
    wanted = torch.tanh(both @ torch.cat([w1, w2], -1).T + b) @ w
    close(additive_score(q, k, w1, w2, w, bias=b), wanted)


def test_general_contains_the_dot_products():
    q, k = inputs(2)
    eye = torch.eye(WIDTH, dtype=torch.float64)
    close(general_score(q, k, eye), dot_score(q, k, scale=1.0))
    close(general_score(q, k, eye / WIDTH**0.5), dot_score(q, k))
    w_q, w_k = torch.randn(2, 4, WIDTH, dtype=torch.float64)
    close(general_score(q, k, w_k.T @ w_q), dot_score(q @ w_q.T, k @ w_k.T, scale=1.0))


def test_general_takes_its_weight_as_key_by_query():
    q, k = torch.randn(2, L, 2).double(), torch.randn(2, S, 4).double()
    weight = torch.randn(4, 2).double()
    close(general_score(q, k, weight), torch.einsum("bsk,kq,blq->bls", k, weight, q))


def test_biased_general_adds_what_a_key_is_worth_by_itself():
    q, k = inputs(2)
    weight, bias = torch.randn(WIDTH, WIDTH).double(), torch.randn(WIDTH).double()
    plain = general_score(q, k, weight)
    close(general_score(q, k, weight, query_bias=bias), plain + (k @ bias)[:, None])


def test_activated_general_with_the_identity_is_general_up_to_a_constant():
    q, k = inputs(2)
    weight, bias = torch.randn(WIDTH, WIDTH).double(), torch.tensor(0.7).double()
    activated = general_score(q, k, weight, bias=bias, activation=lambda x: x)
    plain = general_score(q, k, weight)
    close(activated.softmax(-1), plain.softmax(-1))
    assert not torch.allclose(activated.sigmoid(), plain.sigmoid())


def test_squared_distance_and_dot_product():
    q, k = inputs(2)
    squared = euclidean_score(q, k, squared=True)
    close(squared, -torch.cdist(q, k).square())
    norms = k.square().sum(-1)[:, None]
    close((squared / 2).softmax(-1), (dot_score(q, k, scale=1.0) - norms / 2).softmax(-1))
    q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    close((euclidean_score(q, k, squared=True) / 2).softmax(-1), dot_score(q, k, scale=1.0).softmax(-1))
    close(1 + euclidean_score(q, k, squared=True) / 2, cosine_score(q, k))


def test_inner_products_that_are_squared_distances():
    q, k = (x.requires_grad_() for x in inputs(2))
    found, wanted = squared_distance_queries(q) @ squared_distance_keys(k).mT, euclidean_score(q, k, squared=True)
    close(found, wanted)
    cotangent = torch.randn_like(wanted)
    close(*(torch.autograd.grad(x, (q, k), cotangent) for x in (found, wanted)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_squared_distances_of_narrow_numbers_are_those_of_float32(dtype):
    q, k = (x.to(dtype) for x in inputs(2))
    found = squared_distance_queries(q) @ squared_distance_keys(k).mT
    assert found.dtype == torch.float32
    close(found, euclidean_score(q.float(), k.float(), squared=True), atol=1e-4)


def test_cosine_is_the_dot_product_of_unit_vectors():
    q, k = inputs(2)
    unit = [x / x.norm(dim=-1, keepdim=True) for x in (q, k)]
    close(cosine_score(q, k), dot_score(*unit, scale=1.0))
    strength = torch.rand(2, L, 1).double()
    close(cosine_score(q, k, beta=strength), strength * cosine_score(q, k))


def test_the_distance_has_no_gradient_where_key_and_query_meet():
    q = torch.zeros(1, 1, WIDTH, requires_grad=True)
    k = torch.zeros(1, 2, WIDTH, requires_grad=True)
    euclidean_score(q, k).sum().backward()
    assert (q.grad == 0).all() and (k.grad == 0).all()


def test_every_derivative_of_the_distance_is_finite_where_key_and_query_meet():
    q, k = inputs(2)
    k[0, 0] = q[0, 1]
    q.requires_grad_()
    k.requires_grad_()

    def energy(q, k):
        return euclidean_score(q, k).square().sum() + euclidean_score(q, k).sum()

    first = torch.autograd.grad(energy(q, k), (q, k), create_graph=True)
    close(first, torch.func.grad(energy, (0, 1))(q, k))
    products = torch.autograd.grad(sum(x.square().sum() for x in first), (q, k))
    assert all(x.isfinite().all() for x in products)
    tangents = torch.func.jvp(torch.func.grad(energy), (q, k), (torch.ones_like(q), torch.ones_like(k)))
    assert all(x.isfinite().all() for x in tangents)


def test_trilinear_is_the_score_of_a_concatenation():
    q, k = inputs(2)
    weight = torch.randn(3 * WIDTH).double()
    keys, queries = k[:, None].expand(-1, L, -1, -1), q[:, :, None].expand(-1, -1, S, -1)
    close(trilinear_score(q, k, weight), torch.cat([keys, queries, keys * queries], -1) @ weight)


def test_location_ignores_keys_and_masks_places_it_does_not_know():
    q, _ = inputs(2)
    weight = torch.randn(LONGEST, WIDTH).double()
    whole = location_score(q, weight, LONGEST)
    close(whole, q @ weight.T)
    close(location_score(q, weight, 2), whole[..., :2])
    longer = location_score(q, weight, LONGEST + 2)
    close(longer[..., :LONGEST], whole)
    assert (longer[..., LONGEST:] == -torch.inf).all()


def test_product_score_formula():
    q, k = inputs(2)
    w1, w2, w = (torch.randn(*s).double() for s in ((4, 3), (4, 3), (4,)))
    hidden = torch.tanh(q @ w1.T)[:, :, None] * torch.tanh(k @ w2.T)[:, None]
    close(product_score(q, k, w1, w2, w), hidden @ w)


def test_a_fixed_query_is_a_bias_of_the_query_less_score():
    _, k = inputs(2)
    w1, w2, b, w = (torch.randn(*s, dtype=torch.float64) for s in ((4, 3), (4, 3), (4,), (4,)))
    q = torch.randn(3, dtype=torch.float64)
    with_query = additive_score(q.expand(2, 1, 3), k, w1, w2, w, bias=b)
    close(with_query, key_score(k, w2, w[None], bias=b + w1 @ q))


def test_multidimensional_scores_are_scores_for_each_feature():
    q, k = inputs(2)
    w1, w2, w_d, b_d = (torch.randn(*s).double() for s in ((4, 3), (4, 3), (2, 4), (2,)))
    scores = additive_score(q, k, w1, w2, w_d, out_bias=b_d, multidim=True)
    for feature in range(2):
        close(scores[..., feature], additive_score(q, k, w1, w2, w_d[feature]) + b_d[feature])
    of_keys = key_score(k, w2, w_d, out_bias=b_d, multidim=True)
    rows = key_score(k, w2, w_d, out_bias=b_d)
    close(of_keys, rows.transpose(-2, -1)[:, None])
    matrices = torch.randn(2, WIDTH, WIDTH).double()
    tensor = general_score(q, k, matrices, multidim=True)
    close(tensor[..., 1], general_score(q, k, matrices[1]))


X, W, MATRICES = torch.zeros(2, 3, 3), torch.zeros(HIDDEN, 3), torch.zeros(4, 3, 3)


test_bad_input = refused(
    *((lambda of=SCORES[name]: of(torch.zeros(2, 3, 3), torch.zeros(2, 5, 4)), r"one width.*\(2, 3, 3\).*\(2, 5, 4\)")
      for name in ("dot", "cosine", "euclidean", "squared euclidean", "trilinear")),
    *((lambda of=SCORES[name], q=q: of(torch.zeros(2, 3, q), torch.zeros(2, 5, 7 - q)), "width") for q in (4, 3)
      for name in ("additive", "general", "biased general", "activated general", "product")),
    (lambda: trilinear_score(X, X, torch.zeros(6)), "3 d = 9"),
    (lambda: location_score(X, torch.zeros(7, 4), 5), "width"),
    (lambda: additive_score(X, X, W, W, None), "multidim"),
    (lambda: additive_score(X, X, W, W, torch.zeros(HIDDEN), out_bias=torch.zeros(3)), "multidim"),
    (lambda: general_score(X[0], X[0], MATRICES[0], bias=1.0), TypeError, r"^bias: expected a tensor, got float"),
    *((lambda bad=bad: general_score(X[0], X[0], MATRICES, bias=bad, multidim=True), r"^bias: expected ")
      for bad in (torch.tensor(0.0), torch.zeros(3))),
    *((lambda of=of: of(X[0], torch.zeros(5, 3, device="meta")), "k: expected a tensor on cpu as q, got one on meta")
      for of in (dot_score, cosine_score, euclidean_score)),
)  # fmt: skip


OF_ADDITIVE = {"weight_q": torch.zeros(4, 3), "weight_k": torch.zeros(4, 3), "weight": torch.zeros(4)}
OF_KEYS = {"weight_k": torch.zeros(4, 3), "weight": torch.zeros(2, 4)}
TENSORS = {  # of each score its parameters, and those that may be left out
    additive_score: (OF_ADDITIVE, {"bias": torch.zeros(4)}),
    key_score: (OF_KEYS, {"bias": torch.zeros(4), "out_bias": torch.zeros(2)}),
    general_score: ({"weight": torch.zeros(3, 3)}, {"query_bias": torch.zeros(3)}),
    product_score: (OF_ADDITIVE, {}),
}


@pytest.mark.parametrize("name", [(score, name) for score, parts in TENSORS.items() for name in parts[0] | parts[1]])
def test_wrong_parameters_are_named(name):
    (score, wrong), (needed, more) = name, TENSORS[name[0]]
    x = {"k": torch.zeros(5, 3)} if score is key_score else {"q": torch.zeros(2, 3), "k": torch.zeros(5, 3)}
    given = x | needed | more
    score(**given)
    with pytest.raises(TypeError, match=f"^{wrong}: expected a tensor, got list"):
        score(**given | {wrong: [0.0]})
    for bad in (torch.tensor(0.0), torch.zeros(9)):
        with pytest.raises(ValueError, match=f"^{wrong}: "):
            score(**given | {wrong: bad})
    with pytest.raises(ValueError, match=r"^k: expected"):
        score(**given | {"k": torch.zeros(5, 2)})
