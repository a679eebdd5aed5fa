"""The models of the comparison: published sizes, and weights that depend on the seed alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dual_attention.training.relational_games.config import ModelConfig
from dual_attention.training.relational_games.model import build_model, count_parameters
from dual_attention.training.relational_games.presets import COMPARISON, LABELS, PRESETS, preset

PUBLISHED_PARAMETERS = {
    "transformer-128-h2": 386_914,
    "transformer-128-h8": 386_914,
    "transformer-144-h2": 481_250,
    "transformer-144-h8": 481_250,
    "dat-0+2-sym": 421_474,
    "dat-1+1-sym": 404_706,
    "dat-0+2-asym": 454_242,
    "dat-1+1-asym": 437_474,
    "rca-0+2": 388_194,
    "rca-1+1": 371_810,
    "dat-0+4-sym": 421_986,
    "dat-0+8-sym": 423_010,
    "dat-2+2-sym": 404_834,
    "dat-4+4-sym": 405_090,
    "dat-0+2-sym-symbolic": 439_010,
    "dat-0+2-sym-relative": 422_882,
    "dat-0+2-nr8-sym-small-wr": 423_010,
    "dat-0+2-nr8-asym-small-wr": 455_778,
    "dat-0+2-nr8-sym-symbolic-small-wr": 440_546,
    "dat-0+2-nr8-asym-symbolic-small-wr": 473_314,
    "dat-0+8-nr16-sym-small-wr": 425_058,
}


@pytest.mark.parametrize(("name", "expected"), PUBLISHED_PARAMETERS.items())
def test_parameter_counts_are_the_published_ones(name, expected):
    assert count_parameters(build_model(preset(name), 2, seed=0)) == expected


def test_the_matched_transformer_is_exactly_as_large_as_the_dat():
    sizes = {count_parameters(build_model(preset(n), 2, seed=0)) for n in ("transformer-128-h2-matched", "dat-0+2-sym")}
    assert len(sizes) == 1


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_classifies(name):
    model = build_model(preset(name), 4, seed=0)
    logits = model(torch.rand(2, 3, 36, 36))
    assert logits.shape == (2, 4)
    logits.sum().backward()
    missing = [n for n, p in model.named_parameters() if p.grad is None]
    assert missing == []
    assert preset(name).name == name


def test_weights_depend_on_the_seed_alone():
    first, again, other = (build_model(preset("dat-0+2-sym"), 2, seed=seed) for seed in (0, 0, 1))
    torch.rand(5)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.final_out.weight, other.final_out.weight)


def test_large_initialisation_of_wr_is_eight_times_larger():
    large, small = (
        build_model(replace(preset("dat-0+2-sym"), wr_init=kind), 2, seed=0).encoder_blocks[0].dual_attn
        for kind in ("large", "published")
    )
    largest = [layer.relational_attention.wr.abs().max().item() for layer in (large, small)]
    assert largest[0] == pytest.approx(2**-0.5, rel=0.05)
    assert largest[1] == pytest.approx(128**-0.5, rel=0.05)


def test_comparison_and_labels_name_presets():
    assert set(COMPARISON) <= set(PRESETS)
    assert set(LABELS) - set(PRESETS) == {"corelnet", "predinet", "abstractor"}


def test_unknown_preset():
    with pytest.raises(ValueError, match=r"preset: expected one of .*dat-0\+2-sym.*received 'resnet'"):
        preset("resnet")


def test_relative_symbols_need_relational_attention():
    config = ModelConfig(ra_type="rca", symbols="position_relative")
    with pytest.raises(ValueError, match="position_relative needs ra_type relational_attention"):
        build_model(config, 2, seed=0)
