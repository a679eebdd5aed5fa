"""The control of an intervention: as large a change, in another direction."""

import pytest
import torch

from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.interventions import (
    Ablate,
    Patch,
    Rotated,
    Scale,
    Steer,
    Target,
    intervene,
    load_interventions,
    save_interventions,
)
from dual_attention.model_analysis.interventions.rotated import random_rotations
from tests.support.language import lm, tokens
from tests.support.refusals import refused

QUANTITY = {"head": "head_output", "relation": "relations", "symbol": "symbol_values"}


def passing(model, x, mediator, interventions=()):
    """What passes the tap of a mediator in the first relational layer."""
    quantity = QUANTITY[mediator]
    with torch.no_grad(), intervene(model, interventions), capture(model, quantity, layers=0) as maps:
        model(x)
    return maps["blocks.0"].relational.get(quantity)


@pytest.mark.parametrize("how", ["zero", "mean"])
@pytest.mark.parametrize("mediator", ["head", "relation", "symbol"])
def test_changes_have_the_same_lengths_and_angles_and_other_directions(mediator, how):
    model, x = lm("symbolic_attention"), tokens(2, 9)
    change = Ablate(Target(mediator, layers=0), how, strength=0.5)
    before = passing(model, x, mediator)
    ours = passing(model, x, mediator, change) - before
    theirs = passing(model, x, mediator, Rotated(change, seed=3)) - before
    if mediator == "relation":
        ours, theirs = (part.flatten(0, 2)[None, None] for part in (ours, theirs))
    assert not torch.allclose(ours, theirs, atol=1e-3)
    torch.testing.assert_close(ours @ ours.mT, theirs @ theirs.mT, rtol=1e-5, atol=1e-8)


def test_a_change_of_one_relation_becomes_one_of_all():
    model, x = lm("symbolic_attention"), tokens(1, 9)
    before = passing(model, x, "relation")
    after = passing(model, x, "relation", Rotated(Scale(Target("relation", layers=0, relations=1), 3.0)))
    change = after - before  # (B, N, M, R)
    torch.testing.assert_close(change.norm(dim=-1), 2 * before[..., 1].abs())
    direction = random_rotations(1, before.shape[-1], 0)[0][:, 1].to(before)
    torch.testing.assert_close(change, 2 * before[..., 1:2] * direction)
    assert bool((change.abs().amax((0, 1, 2)) > 1e-6).all())


def test_other_heads_stay_as_they_are():
    model, x = lm("symbolic_attention"), tokens(1, 9)
    before = passing(model, x, "head")
    after = passing(model, x, "head", Rotated(Ablate(Target("head", layers=0, heads={"relational": [1]}))))
    assert torch.equal(before[:, 0], after[:, 0]) and not torch.equal(before[:, 1], after[:, 1])


def test_rotations_are_orthogonal_and_evenly_distributed():
    found = random_rotations(4000, 3, seed=0)
    torch.testing.assert_close(found @ found.mT, torch.eye(3, dtype=torch.float64).expand(4000, 3, 3))
    # Each entry has mean 0 and variance 1 / 3; without the signs of R the diagonal would not.
    assert float(found.mean(0).abs().max()) < 4 / (3 * 4000) ** 0.5
    torch.testing.assert_close(found.var(0), torch.full((3, 3), 1 / 3, dtype=torch.float64), rtol=0.1, atol=0)
    assert not torch.equal(found, random_rotations(4000, 3, seed=1))


def test_in_files(tmp_path):
    given = [Rotated(Ablate(Target("head", layers=0), "mean"), seed=4), Rotated(Steer(Target("relation"), 2.0))]
    save_interventions(tmp_path / "file.json", given)
    assert load_interventions(tmp_path / "file.json") == given


test_wrong_ones = refused(
    (lambda: Rotated("zero"), TypeError, "change: expected an intervention, got str"),
    (lambda: Rotated(Patch(Target("head"))), "change: expected an ablation, scaling or steering"),
    (lambda: Rotated(Ablate(Target("selection"))), "change: expected an ablation"),
    (lambda: Rotated(Ablate(Target("head")), seed=-1), "seed: expected a number from 0"),
)
