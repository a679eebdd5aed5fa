"""Ablations of the study's DAT: each changes one thing, and each is in one grid."""

from __future__ import annotations

import torch

from dat.experiments.language.ablations import ABLATED, ALL_FEATURES, BASE, RANKED
from dat.experiments.language.shipped import GRIDS, RATES_64, STUDY

ABOUT = {
    "rca": {"ra_type"},
    "heads": {"n_heads_sa", "n_heads_ra", "rel_proj_dim"},
    "symmetry": {"symmetric_rels"},
    "rank": {"n_relations", "rel_proj_dim"},
    "symbols": {"symbols", "trainable_symbols", "update_symbols_each_layer"},
    "activation": {"rel_activation"},
}


def test_an_ablation_changes_nothing_but_what_it_is_about():
    for grid, about in ABOUT.items():
        for name in GRIDS[grid].models:
            model = ABLATED[name]
            changed = {key for key, value in vars(model).items() if value != vars(BASE)[key]}
            assert model.name == name and changed - {"name"} and changed <= {"name", *about}
            tokens = torch.randint(20, (2, 9), generator=torch.Generator().manual_seed(0))
            assert model.language_config(20).build().loss(tokens[:, :-1], tokens[:, 1:]) > 0
    assert sorted(name for grid in ABOUT for name in GRIDS[grid].models) == sorted(ABLATED)  # each in one


def test_relations_of_all_heads_and_ranks_have_equal_features():
    base = BASE.language_config(20).build().layers.blocks[0].dual_attn.relational_attention
    assert base.n_relations * base.rel_proj_dim == ALL_FEATURES
    assert all(model.n_relations * model.rel_proj_dim == ALL_FEATURES for model in RANKED)
    for name in GRIDS["heads"].models:
        heads = ABLATED[name].language_config(20).build().layers.blocks[0].dual_attn.relational_attention
        assert (heads.n_relations, heads.rel_proj_dim) == (base.n_relations, base.rel_proj_dim)


def test_the_grids_are_those_of_the_study_with_five_seeds():
    for name in ABOUT:
        grid = GRIDS[name]
        assert (grid.data, grid.optim, grid.loop, grid.steps) == (STUDY.data, STUDY.optim, STUDY.loop, STUDY.steps)
        assert (grid.first_seed, grid.seeds) == (0, 5)
        assert set(grid.lr_of.values()) == {RATES_64["DAT"]} and list(grid.lr_of) == list(grid.models)
