"""Tensors on another device than the parameters are named, before anything is computed."""

import pytest
import torch

from dual_attention import mechanisms
from dual_attention.mechanisms import recipes

B, N, D = 2, 4, 6
X = torch.randn(B, N, D)
MASK = torch.ones(B, N, dtype=torch.bool)
CASES = {
    "sampler": (mechanisms.SubsetSampler(D), {"x": X, "padding_mask": MASK}),
    "additive": (recipes.additive_attention(D, D), {"query": X, "key": X, "padding_mask": MASK}),
    "without parameters": (recipes.scaled_dot_product_attention(), {"query": X, "key": X}),
    "heads": (recipes.self_attention(D, 2), {"query": X, "padding_mask": MASK}),
    "differential": (mechanisms.DifferentialAttention(D, 1), {"query": X, "padding_mask": MASK}),
    "simplicial": (mechanisms.SimplicialAttention(D, 1), {"query": X, "padding_mask": MASK}),
    "latent": (mechanisms.LatentAttention(D, 2, 3), {"query": X, "padding_mask": MASK}),
    "parallel": (mechanisms.ParallelCoAttention(D, D, 3), {"x1": X, "x2": X, "mask1": MASK, "mask2": MASK}),
    "interactive": (mechanisms.InteractiveCoAttention(D, D), {"x1": X, "x2": X, "mask1": MASK}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_tensor_on_another_device_is_named(name):
    layer, given = CASES[name]
    layer(**given)
    for other in list(given)[given.keys() == {"query", "key"} :]:
        with pytest.raises(ValueError, match=rf"^{other}: expected a tensor on cpu as \w+, got one on meta"):
            layer(**{**given, other: given[other].to("meta")})


@pytest.mark.parametrize("name", CASES)
def test_shapes_follow_on_the_meta_device(name):
    layer, given = CASES[name]
    layer.to("meta")(**{argument: x.to("meta") for argument, x in given.items()})
