"""The general module: the fused path, blocks, dropout and draws, queries, values and what it refuses."""

import importlib
import re

import pytest
import torch
import torch.nn.functional as F

from dual_attention.functional import causal_mask, directional_mask
from dual_attention.functional.reference import attention_weights
from dual_attention.mechanisms import (
    Additive,
    Align,
    ConstantQuery,
    Dot,
    General,
    GeneralAttention,
    Hard,
    KeyOnly,
    LearnedQuery,
    Message,
    MonotonicWindow,
    PairwiseMessage,
    PredictiveWindow,
    Relation,
    RelationalMessage,
    Score,
    Select,
    Selection,
    SelfQuery,
    SharedValues,
    SimplicialAttention,
    Softmax,
)
from tests.support.combinations import sampled
from tests.support.refusals import refused
from tests.support.tensors import close, float64, normal

from .space import ALIGNMENTS, SCORES, WIDTH, build

general_module = importlib.import_module("dual_attention.mechanisms.general")

B, L, S = 2, 5, 6


# The fused path


@pytest.mark.parametrize("part", ["score", "align", "message.relation.score"])
def test_hooks_of_parts_act_with_and_without_weights(part):
    attention, x = GeneralAttention(Dot(), message=RelationalMessage(Relation(WIDTH, 2), 3)), torch.randn(B, L, WIDTH)
    before = attention(x).context

    def twice(module, args, output):
        return output._replace(weights=2 * output.weights) if isinstance(output, tuple) else 2 * output

    attention.get_submodule(part).register_forward_hook(twice)
    after = attention(x).context
    close(after, attention(x, need_weights=True).context, atol=1e-5)
    assert not torch.allclose(before, after, atol=1e-3)


def test_scores_of_float32_stay_finite_under_float16_autocast():
    x, pairs = 40 * torch.randn(B, L, 64), SimplicialAttention(64, 2)
    torch.nn.init.normal_(pairs.wk.weight)
    with torch.autocast("cpu", torch.float16):
        assert GeneralAttention(Dot(scale=1.0))(x, need_weights=True).weights.isfinite().all()
        assert attention_weights(x, x, scale=1.0).isfinite().all()
        assert pairs(x).context.isfinite().all()


@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("length", [1, L])
@pytest.mark.parametrize("kind", ["none", "boolean", "causal", "empty row", "bias"])
def test_scaled_dot_product_attention(lead, length, kind):
    q, k, v = normal(*lead, length, WIDTH), normal(*lead, L, WIDTH), normal(*lead, L, 3)
    mask = bias = None
    if kind == "boolean":
        mask = torch.rand(*lead, length, L) < 0.5
        mask[..., 0] = True
    elif kind == "causal":
        mask = causal_mask(L)[:length]
    elif kind == "empty row":
        mask = torch.ones(*lead, length, L, dtype=torch.bool)
        mask[..., 0, :] = False
    elif kind == "bias":
        bias = normal(length, L)
    attention = GeneralAttention(Dot())
    wanted = F.scaled_dot_product_attention(q, k, v, attn_mask=bias if mask is None else mask)
    for need_weights in (False, True):
        got = attention(q, k, v, attn_mask=mask, attn_bias=bias, need_weights=need_weights)
        close(got.context, wanted)
    close(got.weights @ v, wanted)
    cold = GeneralAttention(Dot(scale=0.7), Softmax(temperature=0.35))
    wanted = F.scaled_dot_product_attention(q, k, v, scale=2.0)
    close(cold(q, k, v).context, wanted)
    close(cold(q, k, v, need_weights=True).context, wanted)


def test_the_fused_path_is_taken_and_has_the_same_gradients(monkeypatch):
    attention = GeneralAttention(Dot())
    inputs = [normal(2, 3, L, WIDTH).requires_grad_() for _ in range(3)]
    mask = torch.rand(2, 3, L, L) < 0.6
    mask[0, 0, 0] = False
    cotangent = normal(2, 3, L, WIDTH)
    slow = torch.autograd.grad(attention(*inputs, attn_mask=mask, need_weights=True).context, inputs, cotangent)
    monkeypatch.setattr(GeneralAttention, "_block", None)
    fast = torch.autograd.grad(attention(*inputs, attn_mask=mask).context, inputs, cotangent)
    torch.testing.assert_close(fast, slow, atol=1e-12, rtol=0)


def test_the_type_of_the_context_is_that_of_the_values():
    q, k, v = torch.randn(B, L, WIDTH), torch.randn(B, S, WIDTH), torch.randn(B, S, 3)
    wanted = GeneralAttention(Dot())(q, k, v).context
    for need_weights in (False, True):
        got = GeneralAttention(Dot())(q, k, v.half(), need_weights=need_weights).context
        assert got.dtype == torch.float16
        close(got.float(), wanted, atol=1e-2)


def test_causal_flag():
    x = normal(B, L, WIDTH)
    attention = GeneralAttention(Dot())
    close(attention(x, is_causal=True).context, F.scaled_dot_product_attention(x, x, x, is_causal=True))
    weights = attention(x, is_causal=True, attn_mask=directional_mask(L), need_weights=True).weights
    assert (weights.triu() == 0).all() and (weights[:, 1:].sum(-1) > 0.99).all()


# Blocks


@sampled(50, score=[name for name in SCORES if "keys" not in name], align=ALIGNMENTS)
def test_blocks_are_the_whole(score, align):
    attention = build(score, align, None)
    x, y, v = (normal(B, n, WIDTH).requires_grad_() for n in (L, S, S))
    mask = torch.rand(B, L, S) < 0.7
    bias = normal(L, S)
    inputs = [x, y, v, *attention.parameters()]
    cotangent = normal(B, L, WIDTH)
    results = []
    for block in (L, 2):
        attention.block = block
        output = attention(x, y, v, attn_mask=mask, attn_bias=bias, need_weights=True)
        gradients = torch.autograd.grad(output.context, inputs, cotangent, allow_unused=True)
        results.append([output.context, output.weights, output.log_prob, output.entropy, *gradients])
    for a, b in zip(*results, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            close(a, b)


def test_long_sequences_go_by_blocks(monkeypatch):
    seen = []
    block = GeneralAttention._block

    def watch(self, inputs, rows, need_weights):
        seen.append((rows.start, rows.stop))
        return block(self, inputs, rows, need_weights)

    attention = float64(GeneralAttention(General(WIDTH, WIDTH)))
    x = normal(1, 10, WIDTH)
    whole = attention(x).context
    monkeypatch.setattr(GeneralAttention, "_block", watch)
    monkeypatch.setattr(general_module, "LARGEST_DENSE", 50)
    monkeypatch.setattr(general_module, "BLOCK", 4)
    close(attention(x).context, whole)
    assert seen == [(0, 4), (4, 8), (8, 10)]


def test_blocks_under_dropout_and_draws_have_gradients():
    attention = GeneralAttention(General(WIDTH, WIDTH), Hard("st"), dropout=0.3, block=2).double()
    x = normal(B, L, WIDTH).requires_grad_()
    output = attention(x)
    output.context.sum().backward()
    assert x.grad.isfinite().all() and output.log_prob.shape == (B, L) and (output.log_prob < 0).all()


# Dropout, draws


def test_weights_are_returned_before_dropout():
    attention = GeneralAttention(Dot(scale=1.0), dropout=0.5).double()
    x = normal(B, L, WIDTH)
    output = attention(x, need_weights=True)
    close(output.weights.sum(-1), torch.ones(B, L).double())
    assert not torch.allclose(output.context, output.weights @ x)
    attention.eval()
    close(attention(x, need_weights=True).context, output.weights @ x)


def test_draws_in_training_and_not_in_evaluation():
    attention = GeneralAttention(Dot(scale=0.1), Hard("reinforce"))
    x = torch.randn(1, 50, WIDTH)
    first, second = attention(x, need_weights=True), attention(x, need_weights=True)
    assert not torch.equal(first.weights, second.weights)
    assert first.log_prob.shape == (1, 50) and first.entropy.shape == (1, 50)
    attention.eval()
    assert torch.equal(attention(x).context, attention(x).context)
    expected = GeneralAttention(Dot(scale=0.1), Hard("reinforce", evaluation="expected")).eval()
    close(expected(x).context, GeneralAttention(Dot(scale=0.1))(x).context, atol=1e-6)


# Queries


def test_learned_constant_and_own_queries():
    x = normal(B, S, WIDTH)
    learned = float64(GeneralAttention(Dot(), query=LearnedQuery(3, WIDTH)))
    output = learned(None, x, need_weights=True)
    assert output.weights.shape == (B, 3, S)
    constant = float64(GeneralAttention(Dot(), query=ConstantQuery(learned.query.queries.data)))
    close(constant(None, x).context, output.context)
    assert not list(constant.parameters()) and "query.queries" in constant.state_dict()
    plain = GeneralAttention(Dot())
    close(plain(learned.query.queries.expand(B, -1, -1), x).context, output.context)
    projected = float64(GeneralAttention(Dot(), query=SelfQuery(WIDTH, WIDTH)))
    close(projected(None, x).context, plain(projected.query.projection(x), x).context)
    close(float64(GeneralAttention(Dot(), query=SelfQuery(WIDTH)))(x).context, plain(x).context)


def test_pairwise_values():
    x, pairs = normal(B, L, WIDTH), normal(B, L, L, 3)
    attention = GeneralAttention(Dot(), message=PairwiseMessage())
    output = attention(x, x, pairs, need_weights=True)
    close(output.context, (output.weights[..., None] * pairs).sum(-2))
    close(attention(x, x, pairs).context, output.context)


# What is refused


test_bad_masks = pytest.mark.parametrize("need", [False, True])(refused(
    ({"attn_mask": torch.ones(L, L)}, TypeError, "boolean"),
    ({"padding_mask": torch.ones(B, L)}, TypeError, "boolean"),
    ({"attn_bias": torch.ones(L, L, dtype=torch.bool)}, TypeError, "floating-point"),
    ({"key": torch.zeros(B, S, WIDTH), "is_causal": True}, "is_causal"),
    *(({"attn_mask": torch.ones(s) > 0}, "attn_mask") for s in ((L,), (L, L + 1), (3, L, L), (1, B, L, L))),
    *(({"padding_mask": torch.ones(s) > 0}, "padding_mask") for s in ((L,), (B, L + 1), (B, 1), (3, L), (1, B, L))),
    by=lambda masks, *, need: GeneralAttention(Dot())(torch.randn(B, L, WIDTH), **masks, need_weights=need),
))  # fmt: skip


test_bad_input = refused(
    (lambda dot, x: dot(), "key"),
    (lambda dot, x: dot(None, x), "query: Dot"),
    (lambda dot, x: dot(x.long()), "floating-point"),
    (lambda dot, x: dot(x, torch.randn(B, S, 3)), r"one width.*\(2, 5, 4\).*\(2, 6, 3\)"),
    (lambda dot, x: dot(x, torch.randn(3, S, WIDTH)), "do not broadcast"),
    (lambda dot, x: dot(x, x, x[:, :2]), "value"),
    (lambda dot, x: dot(x, x, 3), TypeError, "value"),
    (lambda dot, x: GeneralAttention(Dot(), query=LearnedQuery(2, WIDTH))(x, x.clone()), "makes it of the keys"),
    (lambda dot, x: GeneralAttention(Dot(), message=PairwiseMessage())(x, x, torch.zeros(B, 3, L, 3)), "pairwise"),
    (lambda dot, x: GeneralAttention(Dot(), Hard("st", generator=torch.Generator()), block=2)(x), "generator"),
    (lambda dot, x: GeneralAttention("dot"), TypeError, "score: expected a Score"),
    (lambda dot, x: GeneralAttention(Dot(), torch.nn.Softmax(-1)), TypeError, "align: expected a Align"),
    (lambda dot, x: GeneralAttention(Dot(), select=torch.nn.Identity()), TypeError, "select: expected a Select"),
    (lambda dot, x: GeneralAttention(Dot(), message=torch.nn.Identity()), TypeError, "message"),
    (lambda dot, x: GeneralAttention(Dot(), block=0), "block"),
    (lambda dot, x: GeneralAttention(Dot(), dropout=1.0), "dropout"),
    (lambda dot, x: GeneralAttention(KeyOnly(WIDTH), query=LearnedQuery(2, WIDTH)), "KeyOnly takes no query"),
    (lambda dot, x: GeneralAttention(KeyOnly(WIDTH), select=MonotonicWindow(1)), "select"),
    (lambda dot, x: ConstantQuery(torch.zeros(3)), "shape"),
    (lambda dot, x: LearnedQuery(0, 2), "expected"),
    (lambda dot, x: MonotonicWindow(-1), "expected"),
    (lambda dot, x: PredictiveWindow(2, -1), "expected"),
    (lambda dot, x: GeneralAttention(Additive(8, 8), select=BareMask())(torch.randn(2, 9, 8)), TypeError,
     r"select: expected BareMask to give a Selection\(mask\), got Tensor"),
    (lambda dot, x: GeneralAttention(Additive(8, 8), message=BareValues())(torch.randn(2, 9, 8)), TypeError,
     r"message: expected BareValues to give messages such as SharedValues\(v.*, got Tensor"),
    by=lambda call: call(GeneralAttention(Dot()), torch.randn(B, L, WIDTH)),
)  # fmt: skip


def test_a_query_with_fewer_axes_than_the_key_is_refused():
    """Its first axis would be taken for queries, each for all examples, whatever it was meant to be."""
    attention, q, k = GeneralAttention(Dot()), torch.randn(3, 16), torch.randn(3, 7, 16)
    for key in (k, k[:, None]):
        with pytest.raises(ValueError, match=r"^query: expected as many axes .*q\[:, None\] is one query for each"):
            attention(q, key)
    one_each, shared = attention(q[:, None], k).context, attention(q[None], k).context
    assert one_each.shape == (3, 1, 16) and shared.shape == (3, 3, 16)
    torch.testing.assert_close(one_each[:, 0], torch.stack([shared[i, i] for i in range(3)]))


class Forgetful(Score):
    """A user's score that forgot the pairs."""

    def forward(self, query, key):
        return (query * key).sum(-1)


class Summed(Align):
    """A user's alignment that lost the keys, and gives weights alone."""

    def forward(self, scores, mask=None, *, bias=None, dim=-1):
        return scores.softmax(dim).sum(dim)


class Everything(Select):
    """A user's selection that mistakes keys for pairs."""

    def forward(self, query, key, padding_mask=None):
        return Selection(torch.ones(key.shape[:-1], dtype=torch.bool))


class Pooled(Message):
    """A user's message that lost the queries."""

    def forward(self, query, key, value=None):
        class Values(SharedValues):
            def receive(self, weights, rows, **options):
                return super().receive(weights, rows, **options).sum(-2)

        return Values(key)


class BareMask(Select):
    """A user's selection that is no more than a mask."""

    def forward(self, query, key, padding_mask=None):
        return Everything()(query, key).mask


class BareValues(Message):
    """A user's message that is no more than values."""

    def forward(self, query, key, value=None):
        return key


@pytest.mark.parametrize("batch", [2, 9])  # as many examples as objects, too
@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"score": Forgetful()}, "score: expected Forgetful to give (..., L, S) = ({0}, 9, 9), got ({0}, 9)"),
        ({"align": Summed()}, "align: expected Summed to give the shape of the scores = ({0}, 9, 9), got ({0}, 9)"),
        ({"select": Everything()}, "select, mask: expected Everything to give (..., L, S) = ({0}, 9, 9), got ({0}, 9)"),
        ({"message": Pooled()}, "message: expected Pooled to give (..., L, d_v) = ({0}, 9, any), got ({0}, 8)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_a_part_of_ones_own_makes_has_its_shape(parts, message, batch):
    attention = GeneralAttention(**{"score": Additive(8, 8), **parts})
    with pytest.raises(ValueError, match=re.escape(message.format(batch))):
        attention(torch.randn(batch, 9, 8))
    if "score" in parts:
        with pytest.raises(ValueError, match="score: expected Forgetful to give"):
            Relation(8, 2, score=Forgetful())(torch.randn(batch, 9, 8))
