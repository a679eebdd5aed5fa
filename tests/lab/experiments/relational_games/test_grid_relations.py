"""Reading relations off a model, and how well they detect equal objects."""

import pytest
import torch

from dat.data.relational_games import generate_images
from dat.experiments.relational_games.grid_relations import (
    Detector,
    auc_of,
    best_detector,
    cell_relations,
    detection,
    draw_relation,
    most_improved,
    object_pairs,
)
from dat.experiments.relational_games.model import build_games_model
from dat.experiments.relational_games.presets import PRESETS
from tests.support.refusals import refused


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


IMAGES = generate_images("occurs", 20, seed=1).images


test_relations_that_there_are_not = refused(
    ("transformer-128-h2", lambda model: cell_relations(model, IMAGES), "relational attention"),
    ("dat-0+2-sym", lambda model: auc_of(model, IMAGES, Detector(0, 9, 1, 0.9), [1]), "none of index 9"),
    by=lambda name, call: call(build_games_model(PRESETS[name], 2, seed=0)),
)


def test_the_most_improved_relation_is_one_that_training_made():
    """Here training exchanges the projections of two relations: the better one is as good as the other was before."""
    untrained, model = (build_games_model(PRESETS["dat-0+2-sym"], 2, seed=0) for _ in range(2))
    images = generate_images("occurs", 200, seed=1).images
    before = detection(untrained, images, [1])[:2]
    weak, strong = sorted((0, 1), key=lambda index: before[index].auc)
    layer = model.encoder_blocks[0].dual_attn.relational_attention
    with torch.no_grad():
        for weight in {id(weight): weight for weight in (layer.wq_rel.weight, layer.wk_rel.weight)}.values():
            weight.copy_(weight.unflatten(0, (2, -1)).flip(0).flatten(0, 1))
    found = most_improved(untrained, model, images, [1])
    after = detection(model, images, [1])
    assert after[weak].auc == pytest.approx(before[strong].auc, abs=1e-3)
    gains = [now.auc - then.auc for now, then in zip(after, detection(untrained, images, [1]), strict=True)]
    assert (found.layer, found.index) == (0, weak) and gains[weak] == max(gains)


def test_detection_and_picture(tmp_path):
    """Even untrained, an inner product of equal projections is larger for equal patches."""
    model = build_games_model(PRESETS["dat-0+2-sym"], 2, seed=0)
    images = generate_images("occurs", 200, seed=1).images
    found = detection(model, images, [1])
    assert [(r.layer, r.index) for r in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(0.5 <= r.auc <= 1 for r in found)
    best = best_detector(model, images, [1])
    assert best.auc == max(r.auc for r in found)
    assert auc_of(model, images, best, [1]) == pytest.approx(best.auc)
    reversed_sign = Detector(best.layer, best.index, -best.sign, best.auc)
    assert auc_of(model, images, reversed_sign, [1]) == pytest.approx(1 - best.auc)
    draw_relation(model, [("a", images[:2]), ("b", images[2:3])], best, tmp_path / "r.png", source=1, title="t")
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
