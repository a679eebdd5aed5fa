import itertools

import torch
from torch import nn

from dual_attention.functional import masked_mean
from dual_attention.mechanisms import (
    Dot,
    GeneralAttention,
    GRUUpdate,
    LinearUpdate,
    MultiHead,
    MultiHop,
    Product,
    recipes,
    replace,
    residual,
)
from tests.support.refusals import refused
from tests.support.tensors import close, float64, normal

from .space import longer_by_two

B, L, S, D = 2, 3, 5, 4
Q, K = torch.randn(B, L, D), torch.randn(B, S, D)


def test_hops_are_calls_in_a_row():
    q, k = normal(B, L, D), normal(B, S, D)
    mask = torch.rand(B, S) < 0.7
    attention = float64(GeneralAttention(Product(D, D, 3)))
    output = MultiHop(attention, 3)(q, k, padding_mask=mask, need_weights=True)
    asked, context = q, None
    for hop in range(3):
        called = attention(asked, k, padding_mask=mask, need_weights=True)
        close(output.weights[hop], called.weights)
        context = called.context
        asked = residual(asked, context)
    close(output.query, asked)
    close(output.context, context)


def test_memory_network_with_embeddings_of_each_hop():
    q = normal(B, 1, D)
    memories = [normal(B, S, D) for _ in range(4)]
    # adjacent tying: the keys of a hop are the values of the one before
    output = recipes.memory_network(3)(q, memories[:3], memories[1:], need_weights=True)
    u = q
    for a, c in itertools.pairwise(memories):
        u = u + (u @ a.transpose(1, 2)).softmax(-1) @ c
    close(output.query, u)
    assert output.weights.shape == (3, B, 1, S)


def test_own_attention_for_each_hop():
    attentions = [float64(GeneralAttention(Product(D, D, 3))) for _ in range(2)]
    hops = MultiHop(attentions)
    q, k = normal(B, L, D), normal(B, S, D)
    first = attentions[0](q, k).context + q
    close(hops(q, k).query, first + attentions[1](first, k).context)
    assert len(list(hops.parameters())) == 6
    listed = MultiHop(nn.ModuleList(attentions))
    assert listed.hops == 2 and listed.state_dict().keys() == hops.state_dict().keys()
    close(listed(q, k).query, hops(q, k).query)
    heads = MultiHop(MultiHead(GeneralAttention(Dot()), D, 2).double(), 2)
    assert heads(q, k, need_weights=True).weights.shape == (2, B, 2, L, S)


def test_updates():
    q, o = normal(B, L, D), normal(B, L, 6)
    gru = GRUUpdate(D, 6).double()
    close(gru(q, o)[1, 2], gru.cell(o[1, 2], q[1, 2]))
    linear = LinearUpdate(D).double()
    close(linear(q, q), q @ linear.linear.weight.T + q)
    hops = MultiHop(float64(GeneralAttention(Dot())), 2, update=float64(LinearUpdate(D)))
    assert {name for name, _ in hops.named_parameters()} == {"update.linear.weight"}
    attention = GeneralAttention(Dot())
    unlike = MultiHop(attention, 2, update=gru)
    assert unlike(q, normal(B, S, D), normal(B, S, 6)).query.shape == q.shape


def test_feedback_is_the_surveys_form():
    attention = float64(GeneralAttention(Product(D + D, D, 3)))
    q, k = normal(B, L, D), normal(B, S, D)
    mask = torch.rand(B, S) < 0.7
    output = MultiHop(attention, 2, feedback=True)(q, k, padding_mask=mask)
    mean = masked_mean(k, mask)[:, None].expand(-1, L, -1)
    first = attention(torch.cat([q, mean], -1), k, padding_mask=mask).context
    second = attention(torch.cat([q + first, first], -1), k, padding_mask=mask).context
    close(output.query, q + first + second)
    of_all, hops = mask[:1], MultiHop(attention, 2, feedback=True)
    close(hops(q, k, padding_mask=of_all).query, hops(q, k, padding_mask=of_all.expand(B, S)).query)


def test_padding_and_empty_memories():
    hops = MultiHop(float64(GeneralAttention(Product(D, D, 3))), 3)
    q, k = normal(B, L, D), normal(B, S, D)
    mask = torch.rand(B, S) < 0.7
    mask[0] = False
    output = hops(q, k, padding_mask=mask)
    close(output.query[0], q[0])
    close(hops(q, longer_by_two(k), padding_mask=longer_by_two(mask)).query, output.query)
    close(hops(q, k[:, :0]).query, q)


test_bad_input = refused(
    *((lambda hops=hops: MultiHop(GeneralAttention(Dot()), *hops), "hops") for hops in ((0,), (-1,), (None,))),
    *((lambda each=each: MultiHop(each, None), "hops") for each in ([], nn.ModuleList())),
    *((lambda each=each: MultiHop(each([GeneralAttention(Dot())]), 2), "hops") for each in (list, nn.ModuleList)),
    (lambda: MultiHop(GeneralAttention(Dot()), 3)(Q, [K, K]), "key: expected one tensor, or one for each of 3 hops"),
    (lambda: MultiHop(GeneralAttention(Dot()), 2, update=replace)(Q, K, torch.randn(B, S, D + 1)), "update"),
    (lambda: MultiHop(GeneralAttention(Product(D + D, D, 3)), 2, feedback=True)(Q, K, padding_mask=K[:1, :1, 0] > 0),
     r"^padding_mask: expected shape \(2, 5\), got \(1, 1\)"),
)  # fmt: skip
