import pytest
import torch

from dual_attention.dual_attention import DualAttention
from dual_attention.positional_encoding import RotaryPositionalEncoding
from tests.support.refusals import refused
from tests.support.tensors import float64, normal

TYPES = ["relational_attention", "rca", "disrca"]


@pytest.mark.parametrize("ra_type", TYPES)
def test_is_the_two_kinds_of_head_side_by_side(ra_type):
    layer = float64(DualAttention(12, 2, 4, ra_type=ra_type))
    x, s = normal(2, 5, 12), normal(2, 5, 12)
    out, sa_weights, ra_maps = layer(x, s, is_causal=True, need_weights=True)
    sensory = layer.self_attention(x, x, x, is_causal=True, need_weights=True)
    relational = layer.relational_attention(x, s, is_causal=True, need_weights=True)
    torch.testing.assert_close(out, torch.cat([sensory[0], relational[0]], dim=-1))
    assert out.shape == (2, 5, 12) and sensory[0].shape == (2, 5, 4)
    assert torch.equal(sa_weights, sensory[1])
    assert len(ra_maps) == (1 if ra_type == "rca" else 2)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(ra_maps, relational[1:], strict=True))


@pytest.mark.parametrize("ra_type", TYPES)
@pytest.mark.parametrize("heads", [(2, 4), (3, 3)])
def test_heads_that_write_everywhere_are_added(ra_type, heads):
    """As if one projection followed the heads of both kinds; with a cache, too."""
    everywhere = {"out_dim": 12}
    layer = float64(DualAttention(12, *heads, ra_type=ra_type, sa_kwargs=everywhere, ra_kwargs=everywhere))
    sensory, relational = layer.self_attention, layer.relational_attention
    x, s = normal(2, 5, 12), normal(2, 5, 12)
    seen = {}
    for name, kind in (("sensory", sensory), ("relational", relational)):
        kind.wo.register_forward_pre_hook(lambda _, args, name=name: seen.__setitem__(name, args[0]))
    out, sa_weights, ra_maps = layer(x, s, is_causal=True, need_weights=True)
    projection = torch.cat([sensory.wo.weight, relational.wo.weight], dim=1)
    torch.testing.assert_close(out, torch.cat([seen["sensory"], seen["relational"]], dim=2) @ projection.T)
    assert sa_weights.shape[1] == heads[0] and ra_maps[0].shape[1] == heads[1]
    cache = layer.new_cache()
    with torch.no_grad():
        parts = [layer(x[:, at], s[:, at], is_causal=True, cache=cache).output for at in (slice(3), slice(3, 5))]
    torch.testing.assert_close(torch.cat(parts, dim=1), out)


def test_maps_are_none_unless_asked_for():
    layer = DualAttention(8, 1, 1)
    x = torch.randn(2, 3, 8)
    out, *maps = layer(x, x)
    assert out.shape == (2, 3, 8) and maps == [None, None]


@pytest.mark.parametrize("heads", [(0, 2), (2, 0)])
def test_one_kind_alone(heads):
    layer = float64(DualAttention(8, *heads))
    x = normal(2, 3, 8)
    out, sa_weights, ra_maps = layer(x, x, need_weights=True)
    assert out.shape == (2, 3, 8)
    assert (sa_weights is None, ra_maps is None) == (heads[0] == 0, heads[1] == 0)
    assert not any(name.startswith("self_attention" if heads[0] == 0 else "relational") for name in layer.state_dict())


def test_without_relational_heads_symbols_are_not_needed():
    layer = DualAttention(8, 2, 0)
    x = torch.randn(2, 3, 8)
    assert torch.equal(layer(x, None).output, layer.self_attention(x, x, x).output)


@pytest.mark.parametrize("ra_type", TYPES)
def test_shared_attention_parameters_are_one(ra_type):
    layer = float64(DualAttention(8, 2, 2, share_attn_params=True, ra_type=ra_type))
    x, s = normal(1, 4, 8), normal(1, 4, 8)
    _, sa_weights, ra_maps = layer(x, s, need_weights=True)
    torch.testing.assert_close(sa_weights, ra_maps[0])
    separate = DualAttention(8, 2, 2, ra_type=ra_type)
    shared_numbers = 2 * 8 * 8 // 2  # queries and keys of two heads of width 4
    assert sum(p.numel() for p in separate.parameters()) - sum(p.numel() for p in layer.parameters()) == shared_numbers


def test_rope_reaches_both_kinds():
    layer, x = float64(DualAttention(8, 1, 1)), normal(2, 6, 8)
    cos, sin = RotaryPositionalEncoding(4, 6).tables(6)
    turned = layer(x, x, freqs_cos=cos, freqs_sin=sin).output
    assert (turned != layer(x, x).output).any(dim=(0, 1)).all()


test_bad_constructions_are_refused = refused(
    ({"n_heads_sa": 0, "n_heads_ra": 0}, "n_heads_sa, n_heads_ra"),
    ({"n_heads_sa": -1, "n_heads_ra": 2}, "n_heads_sa: expected zero or more, got -1"),
    ({"n_heads_sa": 1, "n_heads_ra": 1, "ra_kwargs": {"out_dim": 8}},
     "sa_kwargs, ra_kwargs: expected outputs as wide together as d_model=8, .* got 4 and 8"),
    ({"n_heads_sa": 1, "n_heads_ra": 1, "ra_kwargs": {"out_dim": 0}}, "out_dim: expected a positive number, got 0"),
    ({"n_heads_sa": 1, "n_heads_ra": 1, "ra_type": "ra"}, "ra_type: .*'ra'"),
    ({"n_heads_sa": 1, "n_heads_ra": 2}, "d_model: 8 is not divisible"),
    ({"n_heads_sa": 1, "n_heads_ra": 3, "share_attn_params": True}, "share_attn_params"),
    ({"n_heads_sa": 2, "n_heads_ra": 0, "share_attn_params": True}, "share_attn_params: needs both kinds of head"),
    (dict(n_heads_sa=2, n_heads_ra=2, share_attn_params=True, sa_kwargs={"n_kv_heads": 1}), "share_attn_params: .*key"),
    by=lambda arguments: DualAttention(8, **arguments),
)  # fmt: skip


def test_arguments_of_the_caller_are_not_changed():
    sa_kwargs, ra_kwargs = {"n_kv_heads": 1}, {"n_relations": 3}
    DualAttention(8, 2, 2, sa_kwargs=sa_kwargs, ra_kwargs=ra_kwargs)
    assert sa_kwargs == {"n_kv_heads": 1} and ra_kwargs == {"n_relations": 3}
