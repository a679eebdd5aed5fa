"""Models over slots, and runs on images without a grid."""

from dataclasses import replace
from typing import get_args, get_type_hints

import pytest
import torch

from dat.cli.main import main
from dat.experiments.relational_games.baseline_config import OCRAConfig, SlotAbstractorConfig, SlotsConfig
from dat.experiments.relational_games.config import GamesDataConfig, GamesModelConfig, RelationalGamesConfig
from dat.experiments.relational_games.experiment import RelationalGames
from dat.experiments.relational_games.image_games import loss_of
from dat.experiments.relational_games.model import build_games_model
from dat.experiments.relational_games.presets import PRESETS
from tests.support.refusals import refused

SMALL = SlotsConfig(n_slots=3, strides=(4, 2))


@pytest.mark.parametrize("init", ["random", "learned"])
@pytest.mark.parametrize("architecture", get_args(get_type_hints(GamesModelConfig)["architecture"]))
def test_every_architecture_relates_slots(architecture, init):
    config = GamesModelConfig(architecture=architecture, front_end="slots", slots=replace(SMALL, init=init))
    model = build_games_model(config, 2, seed=0, image_shape=(3, 40, 40))
    images = torch.rand(2, 3, 40, 40)
    scores = model(images)
    assert scores.shape == (2, 2)
    scores.square().sum().backward()
    unused = {name.partition(".")[0] for name, p in model.named_parameters() if p.requires_grad and p.grad is None}
    assert unused == {"decoder"}  # which paints while training
    wide, images = model.double().eval(), images.double()
    torch.testing.assert_close(wide(images)[1:], wide(images[1:]))


@pytest.mark.parametrize("architecture", get_args(get_type_hints(GamesModelConfig)["architecture"]))
def test_images_of_another_size(architecture):
    config = GamesModelConfig(architecture=architecture, front_end="slots", slots=SMALL)
    model = build_games_model(config, 2, seed=0, image_shape=(3, 40, 40))
    with pytest.raises(ValueError, match=r"x: expected shape \(batch, 3, 40, 40\), got \(2, 3, 36, 36\)"):
        model(torch.rand(2, 3, 36, 36))


def test_a_model_sees_slots_in_place_of_patches():
    model = build_games_model(replace(PRESETS["slots-dat-0+2-sym"], slots=SMALL), 2, seed=0).eval()
    images = torch.rand(2, 3, 36, 36)
    tokens = model.model.to_patch_embedding[1:](model.slots(images).slots)
    seen = []
    model.model.dropout.register_forward_hook(lambda module, given, output: seen.append(output))
    model(images)
    torch.testing.assert_close(seen[0][:, 1:], tokens + model.model.pos_embedding[:, 1:])


def test_a_run_without_a_grid(tmp_path):
    sizes = {"n_train": 8, "n_val": 4, "n_test": 4, "n_heldout": 4}
    model = replace(PRESETS["slot-abstractor"], slots=SMALL)
    config = RelationalGamesConfig(task="same", data=GamesDataConfig(canvas=40, **sizes), model=model)
    experiment = RelationalGames()
    prepared = experiment.prepare(config, cache=tmp_path)
    images, _ = prepared.problem.train.batch(torch.arange(8))
    assert images.shape == (8, 3, 40, 40)
    assert experiment.identity(config)["canvas"] == 40
    assert "canvas" not in experiment.identity(replace(config, data=GamesDataConfig(**sizes)))


def test_what_slots_paint_counts_in_training_only():
    batch = torch.rand(3, 3, 36, 36), torch.tensor([0, 1, 1])
    losses = []
    for weight in (0.0, 2.5):
        slots = replace(SMALL, reconstruction=weight)
        config = RelationalGamesConfig(model=replace(PRESETS["slot-abstractor"], slots=slots, dropout_rate=0.0))
        model = build_games_model(config.model, 2, seed=0)
        assert (model.decoder is not None) == bool(weight)
        trained, metrics = loss_of(config)(model.train(), batch)
        evaluated, plain = loss_of(config)(model.eval(), batch)
        assert set(plain) == {"accuracy"}
        error = metrics.get("reconstruction", torch.zeros(()))
        torch.testing.assert_close(trained, evaluated + weight * error)
        losses.append(error)
    painted = model(batch[0], need_weights=True).painted.images
    torch.testing.assert_close(losses[1], (painted - batch[0]).square().mean())
    trained.backward()
    assert all(p.grad is not None for p in model.parameters())


test_bad_input = refused(
    (lambda: SlotsConfig(reconstruction=-1.0), r"model\.slots\.reconstruction: expected zero or a positive number"),
    (lambda: SlotsConfig(n_slots=0), r"model\.slots\.n_slots: expected an integer of at least 1"),
    (lambda: SlotsConfig(strides=()), r"model\.slots\.strides: expected 1 to 16 strides, each from 1 to 8, got \(\)"),
    (lambda: SlotAbstractorConfig(n_heads=0), r"model\.slot_abstractor\.n_heads"),
    (lambda: OCRAConfig(n_heads=0), r"model\.ocra\.n_heads"),
    (lambda: GamesModelConfig(slots=SMALL), r"model\.slots: expected null with model\.front_end=patches"),
    (lambda: GamesModelConfig(architecture="ocra"), r"model\.front_end: expected slots with .*=ocra, got 'patches'"),
    (lambda: GamesModelConfig(architecture="ocra", front_end="slots", ocra=OCRAConfig(n_heads=3)),
     r"model\.d_model: expected a multiple of the 3 heads"),
    (lambda: GamesDataConfig(canvas=40, official_folder="x"), r"data\.canvas: expected null with"),
    (lambda: RelationalGamesConfig(data=GamesDataConfig(canvas=20)), r"data\.canvas: expected 29 \("),
    (lambda: RelationalGamesConfig(task="between", data=GamesDataConfig(canvas=40)),
     r"data\.canvas: expected null, or one of the tasks same, .*, got 40 with 'between'"),
)  # fmt: skip


def test_the_command_refuses_a_small_canvas_in_one_line(capsys):
    assert main(["train", "relational-games", "--task", "same", "--data.canvas", "12"]) == 2
    assert capsys.readouterr().err.startswith("dat: error: data.canvas: expected 29 (")
