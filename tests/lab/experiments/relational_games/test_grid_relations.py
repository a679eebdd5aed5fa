"""Reading relations off a model, and how well they detect equal objects."""

import pytest
import torch

from dat.data.relational_games import generate_images
from dat.experiments.relational_games.grid_relations import cell_relations, equality_aucs, object_pairs
from dat.experiments.relational_games.model import build_games_model
from dat.experiments.relational_games.presets import PRESETS


def test_object_pairs_of_occurs():
    images, labels, _ = generate_images("occurs", 40, seed=0)
    both, equal = object_pairs(images)
    objects = [1, 6, 7, 8]
    expected = torch.zeros(9, 9, dtype=torch.bool)
    for i in objects:
        for j in objects:
            expected[i, j] = i != j
    assert (both == expected).all()
    assert torch.equal(equal[:, 1].sum(-1), labels)  # the top object recurs once, or not at all
    assert torch.equal(equal, equal.transpose(1, 2))


def test_relations_are_those_of_the_forward_pass():
    model = build_games_model(PRESETS["dat-0+2-asym"], 2, seed=0)
    images = generate_images("same", 5, seed=0).images
    found = cell_relations(model, images)
    assert model.training  # left as it was
    model.eval()
    inside = []
    for block in model.encoder_blocks:
        layer = block.dual_attn.relational_attention
        forward = layer.forward

        def with_weights(*args, forward=forward, **kwargs):
            output = forward(*args, **{**kwargs, "need_weights": True})
            inside.append(output[2])
            return output

        layer.forward = with_weights
    with torch.no_grad():
        model(images / 255.0)
    assert len(found) == 2 and found[0].shape == (5, 9, 9, 2)
    for ours, theirs in zip(found, inside, strict=True):
        torch.testing.assert_close(ours, theirs[:, 1:, 1:], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found[0], found[0].transpose(1, 2))


def test_a_transformer_has_no_relations():
    model = build_games_model(PRESETS["transformer-128-h2"], 2, seed=0)
    with pytest.raises(ValueError, match="relational attention"):
        cell_relations(model, generate_images("occurs", 2, seed=1).images)


def test_aucs_are_those_of_the_relations_to_one_cell():
    """Even untrained, an inner product of equal projections is larger for equal patches."""
    model = build_games_model(PRESETS["dat-0+2-sym"], 2, seed=0)
    images = generate_images("occurs", 50, seed=1).images
    found = equality_aucs(model, images, 1)
    assert found.shape == (2, 2) and (found > 0.5).all()
    both, equal = (pairs[:, 1] for pairs in object_pairs(images))
    scores = cell_relations(model, images)[1][:, 1, :, 0]
    above = [a > b for a in scores[equal] for b in scores[both & ~equal]]
    assert found[1, 0].item() == pytest.approx(sum(map(float, above)) / len(above))
