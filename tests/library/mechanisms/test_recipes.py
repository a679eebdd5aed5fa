"""Named mechanisms: what each is made of, and that each says where it comes from."""

import inspect

import pytest
import torch

from dual_attention.functional import directional_mask, structured_attention_penalty
from dual_attention.mechanisms import (
    Additive,
    AlternatingCoAttention,
    DifferentialAttention,
    Elementwise,
    GeneralAttention,
    Hard,
    InteractiveCoAttention,
    MultiHead,
    MultiHop,
    ParallelCoAttention,
    recipes,
)
from tests.support.tensors import close, float64, normal

from .space import longer_by_two

B, L, S, D = 2, 3, 5, 8


ARGUMENTS = {
    "d": D, "d_q": D, "d_k": D, "d_model": D, "n_heads": 2, "hops": 2, "half_width": 2, "max_length": 9, "length": L,
    "n_slots": 2, "d_w": 3, "d_a": 3, "r": 2,
}  # fmt: skip


def make(name):
    recipe = getattr(recipes, name)
    required = [p.name for p in inspect.signature(recipe).parameters.values() if p.default is inspect.Parameter.empty]
    return float64(recipe(*(ARGUMENTS[p] for p in required)))


@pytest.mark.parametrize("name", recipes.__all__)
def test_every_recipe_runs_and_cites(name):
    mechanism = make(name)
    x, y = normal(B, L, D), normal(B, S, D)
    alone = name.endswith("self_attention") and name != "structured_self_attention"
    if alone or "token" in name or "synthesizer" in name:
        y = x
    padding = torch.ones(B, y.shape[1], dtype=torch.bool)
    padding[1, 2:] = False
    symbols = {"value": y} if name in ("relational_heads", "relational_cross_heads") else {}
    output = mechanism(x, y, **symbols, padding_mask=padding, need_weights=True)
    again = mechanism(x, y, **symbols, padding_mask=padding)
    context = output.query if isinstance(mechanism, MultiHop) else output.context
    close(again.query if isinstance(mechanism, MultiHop) else again.context, context)
    assert context.shape[-1] == D and context.isfinite().all()
    if y is not x:
        longer = longer_by_two(y)
        symbols = {"value": longer} if symbols else {}
        padded = mechanism(x, longer, **symbols, padding_mask=longer_by_two(padding))
        close(padded.query if isinstance(mechanism, MultiHop) else padded.context, context)
    assert any(year in (inspect.getdoc(getattr(recipes, name)) or "") for year in ("20", "u * w"))


def test_structured_self_attention_is_learned_queries_on_mapped_keys():
    m = make("structured_self_attention")
    y = normal(B, S, D)
    output = m(None, y, need_weights=True)
    mapped = torch.tanh(y @ m.score.weight_k.T)
    close(output.weights, (m.score.weight @ mapped.transpose(1, 2)).softmax(-1))
    close(output.context, output.weights @ y)
    assert structured_attention_penalty(output.weights).shape == (B,)


def test_source2token_is_as_many_query_less_scores_as_features():
    m = make("source2token")
    y = normal(B, S, D)
    weights = m(None, y, need_weights=True).weights
    scores = torch.tanh(y @ m.score.weight_k.T + m.score.bias) @ m.score.weight.T + m.score.out_bias
    close(weights, scores.softmax(1)[:, None])
    close(m(None, y).context, (weights * y[:, None]).sum(2))


def test_hard_attention_learns_by_reinforce():
    m = recipes.hard_attention(D, D)
    output = m(torch.randn(B, L, D), torch.randn(B, S, D), need_weights=True)
    assert torch.equal(output.weights.sum(-1), torch.ones(B, L)) and output.log_prob.requires_grad
    m.eval()
    assert torch.equal(m(torch.ones(B, L, D), torch.ones(B, S, D)).context, torch.ones(B, L, D))


@pytest.mark.parametrize(
    "build",
    [
        lambda align: MultiHop(GeneralAttention(Additive(D, D), align), 2),
        lambda align: MultiHop(MultiHead(GeneralAttention(Additive(D // 2, D // 2), align), D, 2), 2),
        lambda align: DifferentialAttention(D, 2, align=align),
        lambda align: AlternatingCoAttention(D, D, align=align),
        lambda align: InteractiveCoAttention(D, D, align=align),
        lambda align: ParallelCoAttention(D, D, align=align),
    ],
)
def test_architectures_give_the_log_probability_of_all_draws(build):
    model, draws = build(Hard()).double(), []
    for part in model.modules():
        if isinstance(part, Hard):
            part.register_forward_hook(lambda module, args, output: draws.append(output))
    output = model(normal(B, L, D), normal(B, S, D))
    for name in ("log_prob", "entropy"):
        close(getattr(output, name).reshape(B, -1).sum(1), sum(getattr(x, name).reshape(B, -1).sum(1) for x in draws))
    assert output.log_prob.requires_grad and draws


def test_local_recipes_are_general_attention_in_windows():
    for name in ("luong_local_m", "luong_local_p"):
        m = make(name)
        output = m(normal(B, L, D), normal(B, S, D), need_weights=True)
        assert ((output.weights > 0).sum(-1) <= 5).all() and output.selection is not None


def test_reinforced_self_attention():
    m = recipes.reinforced_self_attention(D).double()
    x = normal(B, 6, D)
    output = m(x, attn_mask=directional_mask(6, "forward"), need_weights=True)
    hidden = ~(output.selection.mask & directional_mask(6, "forward"))
    assert (output.weights[hidden] == 0).all() and output.selection.log_prob.shape == (B,)
    with torch.no_grad():
        for sampler in (m.select.keys, m.select.queries):
            sampler.logit.bias.fill_(99.0)
    m.eval()
    everything = recipes.token2token(D).double()
    everything.score.load_state_dict(m.score.state_dict())
    mask = directional_mask(6, "forward")
    close(m(x, attn_mask=mask).context, everything(x, attn_mask=mask).context)


def test_synthesizers_score_places_and_ignore_what_stands_there():
    x, other = normal(B, S, D), normal(B, S, D)
    padding = torch.tensor([[True] * S, [True] * 2 + [False] * (S - 2)])
    random = float64(recipes.random_synthesizer(S))
    weights = random(None, x, padding_mask=padding, need_weights=True).weights
    close(random(None, other, padding_mask=padding, need_weights=True).weights, weights)
    close(weights[0], random.score.weight.T.softmax(-1))
    close(weights[1, :, :2], random.score.weight.T[:, :2].softmax(-1))
    dense = float64(recipes.dense_synthesizer(D, 9))
    linear = dense.query[0]
    wanted = (torch.relu(linear(x)) @ dense.score.weight[:S].T).softmax(-1)
    close(dense(None, x, need_weights=True).weights, wanted)
    close(dense(None, x, other, need_weights=True).weights, wanted)
    assert random.score.weight.requires_grad and not list(random.query.parameters())


def test_memory_networks_start_linear():
    start = recipes.memory_network(2, Elementwise("identity"))
    q, m = normal(B, 1, D), normal(B, S, D)
    o = q + q @ m.transpose(1, 2) @ m
    close(start(q, m).query, o + o @ m.transpose(1, 2) @ m)
