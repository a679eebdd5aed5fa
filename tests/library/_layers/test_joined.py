"""Weights of both kinds of head as one tensor; the kinds called by themselves, without it, are the yardstick."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from dual_attention.dual_attention import DualAttention, DualAttentionOutput
from dual_attention.model_analysis.interventions import Ablate, Target, intervene
from tests.support.tensors import float64, normal

TYPES = ["relational_attention", "rca", "disrca"]


def made(**options):
    return float64(DualAttention(12, 2, 4, **options)), normal(2, 5, 12), normal(2, 5, 12)


def joined(layer, x, s):
    output = layer(x, s, is_causal=True, need_weights=True)
    return output.output, output.weights


def apart(layer, x, s):
    """Output and weights of each kind."""
    sensory = layer.self_attention(x, x, x, is_causal=True, need_weights=True)
    relational = layer.relational_attention(x, s, is_causal=True, need_weights=True)
    return torch.cat([sensory[0], relational[0]], dim=-1), (sensory[1], relational[1])


@pytest.mark.parametrize("ra_type", TYPES)
def test_gradients_pass_through_them(ra_type):
    layer, x, s = made(ra_type=ra_type)
    parameters = list(layer.parameters())
    (output, weights), (wanted, kinds) = joined(layer, x, s), apart(layer, x, s)
    assert torch.equal(weights, torch.cat(kinds, dim=1))
    cotangent = torch.randn_like(output)
    of_weights, *ours = torch.autograd.grad(output, [weights, *parameters], cotangent)
    first, second, *theirs = torch.autograd.grad(wanted, [*kinds, *parameters], cotangent)
    assert of_weights.any() and torch.equal(of_weights, torch.cat([first, second], dim=1))
    assert all(map(torch.equal, ours, theirs))


def test_they_keep_the_gradient_of_a_loss_on_output_and_weights():
    layer, x, s = made()
    (output, weights), (wanted, kinds) = joined(layer, x, s), apart(layer, x, s)
    weights.retain_grad()
    (output.sin().sum() + weights.pow(3).sum()).backward()
    ours = [parameter.grad for parameter in layer.parameters()]
    layer.zero_grad()
    loss = wanted.sin().sum() + sum(kind.pow(3).sum() for kind in kinds)
    of_kinds = torch.autograd.grad(loss, kinds, retain_graph=True)
    loss.backward()
    torch.testing.assert_close(weights.grad, torch.cat(of_kinds, dim=1))
    torch.testing.assert_close(ours, [parameter.grad for parameter in layer.parameters()])


def test_a_changed_gradient_goes_on_to_what_is_before():
    layer, x, s = made()
    output, weights = joined(layer, x, s)
    weights.register_hook(torch.zeros_like)
    query, value = torch.autograd.grad(output.sum(), [layer.self_attention.wq.weight, layer.self_attention.wv.weight])
    assert not query.any() and value.any()


def test_second_derivatives():
    layer, x, s = made()
    found = []
    for output, weights in (joined(layer, x, s), apart(layer, x, s)):
        kinds = weights if isinstance(weights, tuple) else (weights,)
        first = torch.autograd.grad(output.sin().sum(), kinds, create_graph=True)
        found.append(torch.autograd.grad(sum(grad.pow(2).sum() for grad in first), list(layer.parameters())))
    torch.testing.assert_close(*found)


def test_recomputed_in_the_backward_pass():
    layer, x, s = made()
    found = []
    for call in (lambda: joined(layer, x, s), lambda: checkpoint(joined, layer, x, s, use_reentrant=False)):
        found.append(torch.autograd.grad(call()[0].sin().sum(), list(layer.parameters())))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("frozen", ["self_attention", "relational_attention"])
def test_weights_of_one_kind_that_need_no_gradient(frozen):
    layer, x, s = made()
    for name, parameter in layer.get_submodule(frozen).named_parameters():
        parameter.requires_grad_(name.split(".")[0] not in ("wq", "wk", "wq_attn", "wk_attn"))
    trained = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    (output, weights), (wanted, kinds) = joined(layer, x, s), apart(layer, x, s)
    assert torch.equal(weights, torch.cat(kinds, dim=1)) and [kind.requires_grad for kind in kinds].count(False) == 1
    ours, theirs = (torch.autograd.grad(result.sin().sum(), trained) for result in (output, wanted))
    assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("trained", [True, False])
def test_an_output_that_depends_on_no_weights(trained):
    """With ablated heads only the output projection matters; if it is frozen, the output has no gradient."""
    layer, x, s = made()
    for heads in (layer.self_attention, layer.relational_attention):
        heads.wo.weight.requires_grad_(trained)
    wanted = [x.requires_grad_(), *(parameter for parameter in layer.parameters() if parameter.requires_grad)]
    found = []
    for need_weights in (False, True):
        with intervene(layer, Ablate(Target("head"))):
            output = layer(x, s, need_weights=need_weights)
        assert output.output.requires_grad == trained
        loss = (x + output.output).sin().sum()
        found.append(torch.autograd.grad(loss, wanted, retain_graph=True, allow_unused=True, materialize_grads=True))
    assert all(map(torch.equal, *found))
    of_weights = torch.autograd.grad(loss, output.weights, allow_unused=not trained, create_graph=True)
    assert not of_weights[0].any() if trained else of_weights == (None,)


def test_where_autograd_takes_no_derivatives():
    layer, x, s = made()
    with torch.no_grad():
        wanted = joined(layer, x, s)[1]
    compiled = torch.compile(joined, backend="eager", fullgraph=True)(layer, x, s)
    assert torch.equal(compiled[1], wanted)
    compiled[0].sum().backward()

    def loss(x):
        return joined(layer, x, s)[0].sin().sum()

    (gradient,) = torch.autograd.grad(loss(x.requires_grad_()), x)
    torch.testing.assert_close(torch.func.grad(loss)(x.detach()), gradient)


def test_one_kind_is_given_as_it_is():
    weights = torch.rand(1, 2, 3, 3)
    assert DualAttentionOutput(weights).weights is None
    assert DualAttentionOutput(weights, weights).weights is weights
    assert DualAttentionOutput(weights, None, (weights, weights)).weights is weights


@pytest.mark.parametrize("differentiable", [False, True])
def test_views_of_another_tensor_are_joined_in_their_order(differentiable):
    first, second = torch.rand(1, 4, 3, 3, requires_grad=differentiable).clone().split(2, dim=1)
    assert torch.equal(DualAttentionOutput(first, second, (first,)).weights, torch.cat([second, first], dim=1))
