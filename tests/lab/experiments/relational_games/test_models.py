"""The models of the comparison: published sizes, and weights that depend on the seed alone."""

from dataclasses import replace
from typing import get_args, get_type_hints

import pytest
import torch

from dat.data.relational_games import make_splits
from dat.experiments.language.config import LanguageConfig
from dat.experiments.relational_games.baseline_config import CoRelNetConfig
from dat.experiments.relational_games.config import TASK_NAMES, GamesDataConfig, GamesModelConfig, RelationalGamesConfig
from dat.experiments.relational_games.experiment import RelationalGames
from dat.experiments.relational_games.model import build_games_model, empty_games_model
from dat.experiments.relational_games.presets import BASELINES, LABELS, ORDER, PRESETS, corelnet
from dat.training.config_io import read_config
from dat.training.configs import OptimConfig
from dat.training.experiment import count_parameters
from dat.training.optim import build_optimizer
from dat.training.problem import classification_loss
from dual_attention.baselines import VisionCoRelNet
from dual_attention.configs import SymbolRetrieval
from tests.support.refusals import refused

pytestmark = pytest.mark.sweep(4)

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
    "abstractor": 469_986,
    "predinet": 376_690,
    "corelnet": 215_522,
    "corelnet-softmax": 215_522,
}


@pytest.mark.parametrize(("name", "expected"), PUBLISHED_PARAMETERS.items())
def test_parameter_counts_are_the_published_ones(name, expected):
    assert count_parameters(empty_games_model(PRESETS[name], "same")) == expected


def test_the_matched_transformer_is_exactly_as_large_as_the_dat():
    names = ("transformer-128-h2-matched", "dat-0+2-sym")
    sizes = {count_parameters(empty_games_model(PRESETS[n], "same")) for n in names}
    assert len(sizes) == 1


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_classifies(name):
    model = build_games_model(PRESETS[name], 4, seed=0)
    logits = model(torch.rand(2, 3, 36, 36))
    assert logits.shape == (2, 4)
    logits.sum().backward()
    missing = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert [name for name in missing if not name.startswith("decoder.")] == []  # which paints in training only
    assert PRESETS[name].name == name


def test_a_frozen_library_stays_as_it_is_drawn():
    model = build_games_model(PRESETS["dat-0+2-sym-symbolic-frozen"], 2, seed=0)
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["symbol_retriever.symbol_library"]


def test_weights_depend_on_the_seed_alone():
    first, again, other = (build_games_model(PRESETS["dat-0+2-sym"], 2, seed=seed) for seed in (0, 0, 1))
    torch.rand(5)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.final_out.weight, other.final_out.weight)


def test_weights_of_a_seed_are_others_for_each_task(tmp_path):
    seeds = {RelationalGamesConfig(task=task, seed=seed).weight_seed for task in TASK_NAMES for seed in range(10)}
    assert len(seeds) == 50
    weights = []
    for task in ("same", "occurs"):
        sizes = {"n_train": 4, "n_val": 1, "n_test": 1, "n_heldout": 1}
        config = RelationalGamesConfig(task=task, data=GamesDataConfig(**sizes))
        model = RelationalGames().prepare(config, cache=tmp_path).problem.model
        weights.append(model.final_out.weight)
    assert not torch.equal(*weights)


def test_large_initialisation_of_wr_is_eight_times_larger():
    large, small = (
        build_games_model(replace(PRESETS["dat-0+2-sym"], wr_init=kind), 2, seed=0).encoder_blocks[0].dual_attn
        for kind in ("large", "published")
    )
    largest = [layer.relational_attention.wr.abs().max().item() for layer in (large, small)]
    assert largest[0] == pytest.approx(2**-0.5, rel=0.05)
    assert largest[1] == pytest.approx(128**-0.5, rel=0.05)


@pytest.mark.parametrize("name", ["dat-0+2-asym", "dat-0+2-sym-squared-distance"])
def test_relations_of_a_size_are_counted_without_values(name):
    sized = replace(PRESETS[name], rel_init_size=0.5)
    ours, wanted = (count_parameters(empty_games_model(preset, "same")) for preset in (sized, PRESETS[name]))
    assert ours == wanted


def test_comparison_and_labels_name_presets():
    assert len(set(ORDER)) == len(ORDER)
    assert set(ORDER) <= set(LABELS) <= set(PRESETS)


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_learn_a_small_task(name):
    """The loss on 12 images of `same` falls well below chance, log 2, in thirty steps of the model at full size."""
    torch.manual_seed(0)
    model = build_games_model(PRESETS[name], 2, seed=0)
    images = make_splits("same", 12, n_val=1, n_test=1, seed=0)["train"]
    batch = images.images.float() / 255, images.labels
    optimizer = build_optimizer(model, OptimConfig())
    losses = []
    for _ in range(30):
        loss, _ = classification_loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 0.6 and losses[-1] < 0.3


def test_published_baselines_are_as_they_were_run():
    names = ("corelnet", "predinet", "abstractor")
    corelnet, predinet, abstractor = (build_games_model(PRESETS[name], 2, seed=0) for name in names)
    assert corelnet.corelnet.activation == "identity" and corelnet.corelnet.symmetric_rels
    assert (predinet.predinet.n_heads, predinet.predinet.n_relations, predinet.predinet.key_dim) == (16, 8, 8)
    assert predinet.predinet.position_dim == 1
    assert abstractor.abstractor.residual == "objects" and len(abstractor.abstractor.blocks) == 2
    assert build_games_model(PRESETS["corelnet-softmax"], 2, seed=0).corelnet.activation == "softmax"
    assert build_games_model(PRESETS["abstractor-symbol-stream"], 2, seed=0).abstractor.residual == "symbols"


def test_the_esbn_is_about_as_large_as_the_dat():
    sizes = [count_parameters(empty_games_model(PRESETS[name], "same")) for name in ("esbn", "dat-0+2-sym")]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.05)


@pytest.mark.parametrize("ra_type", get_args(get_type_hints(GamesModelConfig)["ra_type"]))
@pytest.mark.parametrize("symbols", get_args(SymbolRetrieval))
def test_every_symbol_mechanism_classifies(symbols, ra_type):
    config = replace(PRESETS["dat-1+1-sym"], symbols=symbols, ra_type=ra_type)
    model = build_games_model(config, 2, seed=0)
    logits = model(torch.rand(3, 3, 36, 36))
    assert logits.shape == (3, 2)
    logits.sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_neighbours_of_relational_symbolic_attention():
    config = replace(PRESETS["dat-0+2-sym"], symbols="rel_sym_attn", symbol_neighbours=3, symbol_heads=2, n_symbols=5)
    retriever = build_games_model(config, 2, seed=0).symbol_retriever
    assert retriever.offsets() == [-3, -2, -1, 1, 2, 3]
    assert retriever.rel_n_heads == retriever.symbolic_attention.n_heads == 2
    assert retriever.symbolic_attention.n_symbols == 5


@pytest.mark.parametrize("symbols", ["positional_symbols", "symbolic_attention", "rel_sym_attn"])
def test_symbols_of_abstractors(symbols):
    config = replace(PRESETS["abstractor"], symbols=symbols, n_symbols=5)
    model = build_games_model(config, 2, seed=0)
    retriever = model.abstractor.symbol_retriever
    if symbols == "positional_symbols":
        assert retriever.symbol_library.weight.shape[0] == 9
    else:
        assert getattr(retriever, "symbolic_attention", retriever).n_symbols == 5
    assert model(torch.rand(3, 3, 36, 36)).shape == (3, 2)


def test_a_pooled_corelnet_without_objects_sees_relations_only():
    images = torch.rand(3, 3, 36, 36, generator=torch.Generator().manual_seed(0))
    model = build_games_model(corelnet("", CoRelNetConfig(readout="pooled")), 2, seed=0).eval()
    objects = model.objects(images)
    assert model.describe is None
    torch.testing.assert_close(model.summary(objects), model.corelnet.relations(objects))
    kept = build_games_model(corelnet("", CoRelNetConfig(readout="pooled", object_features=9)), 2, seed=0).eval()
    assert kept.summary(objects).shape == (3, 9, 18)


test_names_that_there_are_not = refused(
    (lambda: RelationalGames().preset_config("resnet"), r"preset: expected one of .*dat-0\+2-sym.*got 'resnet'"),
    (lambda: VisionCoRelNet((3, 36, 36), (12, 12), 2, 8, readout="mean"), "readout: .* or 'pooled', got 'mean'"),
)


@pytest.mark.parametrize(
    ("kind", "key", "value"), [(RelationalGamesConfig, "toolbox", "{of: sender}"), (LanguageConfig, "heads", "latent")]
)
def test_heads_of_studies_are_named_as_gone(tmp_path, kind, key, value):
    file = tmp_path / "config.yaml"
    file.write_text(f"experiment: {kind().experiment}\nmodel: {{{key}: null}}\n")
    assert read_config(kind, file) == kind()
    file.write_text(f"experiment: {kind().experiment}\nmodel: {{{key}: {value}}}\n")
    with pytest.raises(ValueError, match=rf"model\.{key}: expected none, got .*; this key is gone, commit \w+"):
        read_config(kind, file)
