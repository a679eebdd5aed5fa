"""Directional self-attention, its fusion gate, and its reinforced form among drawn objects."""

import pytest
import torch
from torch import nn

from dual_attention import mechanisms
from dual_attention.functional import masked_softmax, reinforce_loss
from tests.support.refusals import refused
from tests.support.tensors import close, float64, normal

from .space import longer_by_two

B, N, D = 2, 3, 5


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
def test_directional(direction):
    m = float64(mechanisms.DirectionalSelfAttention(D, direction))
    h = normal(B, N, D)
    padding = torch.tensor([[True] * N, [True, True, False]])
    output = m(h, padding_mask=padding, need_weights=True)
    assert output.weights.shape == (B, N, N, D)
    assert (output.weights.diagonal(dim1=1, dim2=2) == 0).all() and (output.weights[1, :, 2] == 0).all()
    if direction == "forward":
        assert (output.weights[:, 0] == 0).all() and (output.weights.triu().sum() >= 0)
        close(output.context[:, 0], m.fusion(torch.zeros(B, D).double(), h[:, 0]))
    context = m.attention(h, attn_mask=~torch.eye(N, dtype=torch.bool), padding_mask=padding).context
    if direction == "both":
        close(output.context, m.fusion(context, h))
    assert output.context.isfinite().all()


@pytest.mark.parametrize("padded", [False, True])
def test_reinforced_self_attention_formula(padded):
    """Drawn queries attend to drawn keys in each direction, others receive a mean; the gate fuses both."""
    m = float64(mechanisms.ReinforcedSelfAttention(D)).train()
    h = normal(B, N, D)
    padding = torch.tensor([[True] * N, [True, True, False]]) if padded else None
    real = torch.ones(B, N, dtype=torch.bool) if padding is None else padding
    torch.manual_seed(3)
    z_k, of_keys = m.keys(h, padding)
    z_q, of_queries = m.queries(h, padding)
    torch.manual_seed(3)
    output = m(h, padding_mask=padding, need_weights=True)
    close(output.selection.log_prob, of_keys + of_queries)
    fraction = (z_k.sum(-1) * z_q.sum(-1)).double() / real.sum(-1) ** 2
    close(output.selection.fraction.double(), fraction, atol=1e-6)
    wanted = []
    for part, order in zip(m.directed, (torch.lt, torch.gt), strict=True):
        allowed = order(torch.arange(N)[None, :], torch.arange(N)[:, None]) & real[:, None]
        pairs = allowed & z_k[:, None] & z_q[:, :, None]
        score = part.attention.score(h, h)
        weights = masked_softmax(score, pairs[..., None], dim=-2)
        mean = allowed.double() @ h / allowed.sum(-1, keepdim=True).clamp_min(1)
        context = torch.where(z_q[..., None], (weights * h[:, None]).sum(2), mean)
        wanted.append(part.fusion(context, h))
    close(output.output, torch.cat(wanted, -1))
    assert output.output.shape == (B, N, 2 * D) and len(output.weights) == 2


def test_reinforced_self_attention_of_everything_is_directional():
    m = float64(mechanisms.ReinforcedSelfAttention(D, ("backward",)))
    h, padding = normal(B, N, D).requires_grad_(), torch.tensor([[True] * N, [True, False, False]])
    output = m(h, padding_mask=padding, select_all=True)
    close(output.output, m.directed[0](h, padding_mask=padding).context)
    assert (output.selection.log_prob == 0).all() and (output.selection.fraction == 1).all()
    real = m(longer_by_two(h), padding_mask=longer_by_two(padding)).output[:, :N][padding]
    close(real, m(h, padding_mask=padding).output[padding])
    (gradient,) = torch.autograd.grad(m(h, padding_mask=padding).output[padding].sum(), h)
    assert gradient.isfinite().all() and (gradient[~padding] == 0).all()
    assert m(h[:, :0]).output.shape == (B, 0, D)


def test_the_samplers_of_reinforced_self_attention_learn():
    m = mechanisms.ReinforcedSelfAttention(D).double()
    h = normal(B, N, D)
    output = m(h)
    loss = output.output.square().mean((1, 2)) + 0.1 * output.selection.fraction
    reinforce_loss(loss, output.selection.log_prob, baseline=0.5).mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in m.parameters())


def test_fusion_gate():
    gate = mechanisms.FusionGate(D).double()
    c, h = normal(B, N, D), normal(B, N, D)
    nn.init.zeros_(gate.gate.weight)
    close(gate(c, h), (c + h) / 2)
    nn.init.constant_(gate.gate.bias, 99.0)
    close(gate(c, h), h)


test_bad_input = refused(
    (lambda: mechanisms.ReinforcedSelfAttention(D, ()), "directions: expected a positive number"),
    (lambda: mechanisms.DirectionalSelfAttention(D, "up"), "direction"),
)


def test_bounded_scores_without_a_bound_are_additive():
    near, far = (
        float64(mechanisms.recipes.token2token(D, 1e6)),
        mechanisms.Additive(D, D, D, d_out=D, activation=lambda x: x).double(),
    )
    with torch.no_grad():
        for name in ("weight_q", "weight_k", "bias"):
            getattr(far, name).copy_(getattr(near.score, name))
        far.weight.copy_(torch.eye(D))
        far.out_bias.zero_()
    h = normal(B, N, D)
    close(near(h).context, mechanisms.GeneralAttention(far)(h).context, atol=1e-9)
