import pytest
import torch
from torch import nn

from dual_attention.attention import Attention
from dual_attention.language_models import TransformerLM
from dual_attention.mechanisms import Dot, GeneralAttention, MultiHead
from tests.support.refusals import refused
from tests.support.tensors import float64, normal


@pytest.mark.parametrize("need_weights", [False, True])
def test_is_torchs_multi_head_attention(need_weights):
    ours, theirs = float64(Attention(12, 3)), nn.MultiheadAttention(12, 3, bias=False, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.wq.weight, ours.wk.weight, ours.wv.weight]))
        theirs.out_proj.weight.copy_(ours.wo.weight)
    x, y = normal(2, 4, 12), normal(2, 6, 12)
    wanted, wanted_weights = theirs(x, y, y, average_attn_weights=False)
    out, weights = ours(x, y, y, need_weights=need_weights)
    torch.testing.assert_close(out, wanted)
    if need_weights:
        torch.testing.assert_close(weights, wanted_weights)
    else:
        assert weights is None


@pytest.mark.parametrize("need_weights", [False, True])
def test_grouped_heads_are_repeated_heads(need_weights):
    grouped, full = float64(Attention(12, 6, n_kv_heads=2)), float64(Attention(12, 6))
    state = dict(grouped.state_dict())
    for name in ("wk.weight", "wv.weight"):
        state[name] = state[name].unflatten(0, (2, 2)).repeat_interleave(3, dim=0).flatten(0, 1)
    full.load_state_dict(state)
    x = normal(2, 5, 12)
    torch.testing.assert_close(grouped(x, x, x, need_weights=need_weights)[0], full(x, x, x)[0])


def test_scale_follows_the_key_width():
    layer = float64(Attention(8, 2, key_dim=16))
    x = normal(1, 3, 8)
    q, k = layer.wq(x).unflatten(-1, (2, 16)), layer.wk(x).unflatten(-1, (2, 16))
    wanted = torch.softmax(torch.einsum("bnhd,bmhd->bhnm", q, k) / 4.0, dim=-1)
    torch.testing.assert_close(layer(x, x, x, need_weights=True).weights, wanted)
    torch.testing.assert_close(layer(x, x, x).output, layer(x, x, x, need_weights=True).output)


@pytest.mark.parametrize("gate", ["identity", "sigmoid"])
def test_the_output_gate_is_that_of_the_toolbox(gate):
    ours, theirs = float64(Attention(12, 3, output_gate=gate)), MultiHead(GeneralAttention(Dot()), 12, 3, gate=gate)
    state = {name: weight for name, weight in ours.state_dict().items() if not name.startswith("wv")}
    theirs.load_state_dict({**state, "features.wv.weight": ours.wv.weight})
    x, y = normal(2, 4, 12), normal(2, 6, 12)
    torch.testing.assert_close(ours(x, y, y).output, theirs.double()(x, y).context)


@torch.no_grad()
def test_a_gated_model_decodes_as_it_reads():
    model = float64(
        TransformerLM(11, 8, 2, 2, 16, 0.0, "gelu", True, 12, block_kwargs={"attn_kwargs": {"output_gate": "identity"}})
    ).eval()
    tokens = torch.randint(11, (2, 6))
    cache = model.new_cache()
    parts = [model(tokens[:, i : i + 1], cache=cache).logits for i in range(6)]
    torch.testing.assert_close(torch.cat([part[:, -1:] for part in parts], 1)[:, -1:], model(tokens).logits[:, -1:])


def test_all_masks_and_a_bias_together():
    layer = float64(Attention(8, 2))
    x = normal(2, 4, 8)
    attn_mask, padding = torch.rand(2, 2, 4, 4) < 0.8, torch.tensor([[True] * 4, [True, True, True, False]])
    bias = normal(4, 4)
    arguments = {"attn_mask": attn_mask, "padding_mask": padding, "is_causal": True, "attn_bias": bias}
    out, weights = layer(x, x, x, **arguments, need_weights=True)
    allowed = attn_mask & padding[:, None, None] & torch.ones(4, 4, dtype=torch.bool).tril()
    assert ((weights > 0) == allowed).all()
    torch.testing.assert_close(layer(x, x, x, **arguments).output, out)


def test_a_query_with_nothing_to_attend_receives_the_output_bias_alone():
    layer = float64(Attention(8, 2, add_bias_out=True))
    x, mask = normal(1, 3, 8), torch.tensor([[True, True, True], [False, False, False], [True, False, False]])
    torch.testing.assert_close(layer(x, x, x, attn_mask=mask).output[0, 1], layer.wo.bias)


def test_shaw_positions_by_hand():
    layer = float64(Attention(8, 2, shaw_max_rel_pos=1, shaw_values=True))
    x = normal(1, 3, 8)
    q, k, v = (w(x).unflatten(-1, (2, 4)) for w in (layer.wq, layer.wk, layer.wv))
    out = torch.zeros(3, 2, 4, dtype=torch.float64)
    for head in range(2):
        for i in range(3):
            offsets = [max(-1, min(1, j - i)) + 1 for j in range(3)]
            keys = [k[0, j, head] + layer.rel_pos_keys.rel_pos_embeddings[offsets[j]] for j in range(3)]
            values = [v[0, j, head] + layer.rel_pos_values.rel_pos_embeddings[offsets[j]] for j in range(3)]
            weights = torch.softmax(torch.stack([q[0, i, head] @ key / 2.0 for key in keys]), dim=0)
            out[i, head] = sum(weight * value for weight, value in zip(weights, values, strict=True))
    torch.testing.assert_close(layer(x, x, x).output[0], layer.wo(out.flatten(1)))


test_what_is_refused = refused(
    (lambda: Attention(10, 4), "d_model: 10 is not divisible"),
    (lambda: Attention(8, 4, n_kv_heads=3), "n_kv_heads: .*got 3"),
    (lambda: Attention(8, 4, n_kv_heads=0), "n_kv_heads: .*got 0"),
    (lambda: Attention(8, 4, total_n_heads=2), "total_n_heads: .*got 2"),
    (lambda: Attention(8, 2, shaw_values=True), "shaw_max_rel_pos"),
    (lambda: Attention(8, 2, shaw_max_rel_pos=-1), "max_rel_pos: .*got -1"),
    (lambda: Attention(8, 2)(torch.zeros(2, 3, 8), torch.zeros(4, 3, 8), torch.zeros(4, 3, 8)),
     r"key: .*got \(4, 3, 8\)"),
    (lambda: Attention(8, 2)(torch.zeros(2, 3, 8), torch.zeros(2, 3, 8), torch.zeros(2, 4, 8)),
     "value: expected 3 senders"),
)  # fmt: skip
