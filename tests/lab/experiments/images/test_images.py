"""Image classification: the paper's models, batches and losses, and runs through the command line."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.nn.functional import cross_entropy

from dat.cli.main import main
from dat.data.images import IMAGE_SETS, load_images
from dat.data.images.augmentation import Augmentation
from dat.experiments.images.config import ImageConfig, ImageDataConfig
from dat.experiments.images.examples import AugmentedImages, NormalisedImages, image_loss
from dat.experiments.images.experiment import ImageClassification
from dat.experiments.images.grid import BATCH, EPOCHS, SCALES, STEPS
from dat.experiments.images.model import empty_image_model
from dat.experiments.images.presets import LOOKS, PRESETS
from dat.experiments.images.published import ACCURACIES, published_accuracy
from dat.sweeps.durations import timing_problem
from dat.sweeps.grid import cells
from dat.training.config_io import build_parser, parse_config
from dat.training.experiment import count_parameters
from dat.training.optim import learning_rate
from tests.lab.cli.commands import QUIET, printed, refusal
from tests.support.cifar_archives import make_official
from tests.support.processes import fork_workers
from tests.support.runs import stopping

IMAGES = ImageClassification()
RECIPE = Path(__file__).parents[4] / "examples" / "cifar.yaml"
SMALL = ["--data.n_train=24", "--data.n_val=8", "--data.n_test=16", "--loop.epochs=2", "--loop.batch_size=8"]
NARROW = ["--model.n_layers=1", "--model.d_model=16", "--model.rel_proj_dim=null", "--model.patch_size=[4,4]"]

PARAMETERS = {
    ("ViT", "cifar10"): 7_149_034,
    ("ViT", "cifar100"): 7_183_684,
    ("ViDAT", "cifar10"): 6_025_834,
    ("ViDAT", "cifar100"): 6_060_484,
    ("ViDAT-asym", "cifar10"): 6_615_658,
    ("ViDAT-asym", "cifar100"): 6_650_308,
    ("ViDAT-ungrouped", "cifar10"): 7_205_482,
    ("ViDAT-ungrouped", "cifar100"): 7_240_132,
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("preset", "dataset"), PARAMETERS)
def test_the_published_parameter_counts(preset, dataset):
    """Published as 7.1M and 7.2M, 6.0M and 6.1M, 6.6M and 6.7M."""
    assert count_parameters(empty_image_model(PRESETS[preset], IMAGE_SETS[dataset])) == PARAMETERS[preset, dataset]


def test_small_models_are_matched():
    models = (empty_image_model(PRESETS[f"{name}-digits"], IMAGE_SETS["digits"]) for name in ("ViT", "ViDAT"))
    plain, dual = map(count_parameters, models)
    assert abs(plain - dual) < 0.01 * dual
    assert set(LOOKS) == set(PRESETS)


def test_every_row_of_the_tables_has_a_preset_a_grid_and_a_number():
    for grid in (SCALES["tables-1-and-3"], SCALES["table-4"]):
        for point in grid.points():
            assert (point["benchmark"], point["model"]) in ACCURACIES
    assert published_accuracy("cifar100-cutmix", "ViT")[0].mean == 68.8
    assert published_accuracy("cifar10-autoaugment", "ViDAT-asym")[0].trials is None
    assert not published_accuracy("digits-shift", "ViDAT")


def test_the_published_schedule():
    """By epochs: 0, then up to 1e-3 in the sixth, and down to 1.9e-5 in the last."""
    optim, total = SCALES["table-4"].optim, EPOCHS * STEPS
    rates = [learning_rate(optim, step, total) for step in range(total)]
    assert STEPS == 391 and BATCH == 128
    assert all(len(set(rates[e * STEPS : (e + 1) * STEPS])) == 1 for e in range(EPOCHS))
    by_epoch = rates[::STEPS]
    assert by_epoch[:6] == pytest.approx([0, 2e-4, 4e-4, 6e-4, 8e-4, 1e-3], abs=1e-6)
    assert by_epoch[-1] == pytest.approx(1.877e-5, rel=1e-3) and by_epoch[5:] == sorted(by_epoch[5:], reverse=True)


def test_the_recipe_is_a_run_of_the_grid():
    parser, grid = build_parser(ImageConfig, prog="", description=""), SCALES["tables-1-and-3"]
    recipe = parse_config(parser, ImageConfig, ["--config", str(RECIPE)])[0]
    config = next(grid.config(cell) for cell in cells(IMAGES, grid) if cell["model"] == "ViDAT")
    assert (config.model, config.optim, config.data.augmentation) == (recipe.model, recipe.optim, "cutmix")
    assert config.data.trained == recipe.data.trained and recipe.data.augmentation == "cutmix"
    assert config.loop == replace(recipe.loop, eval_every=0, checkpoint_every=0)


def test_images_are_normalised():
    images = torch.randint(256, (6, 3, 4, 4), dtype=torch.uint8)
    examples = NormalisedImages(images, torch.arange(6), (0.5, 0.25, 0.0), (0.5, 0.5, 1.0))
    found, labels = examples.batch(torch.tensor([4, 1]))
    wanted = (images[[4, 1]] / 255 - torch.tensor([0.5, 0.25, 0.0])[:, None, None]) / torch.tensor([0.5, 0.5, 1.0])[
        :, None, None
    ]
    torch.testing.assert_close(found, wanted)
    assert labels.tolist() == [4, 1]


def test_augmentation_follows_from_seed_and_indices():
    images = NormalisedImages(torch.randint(256, (9, 1, 8, 8), dtype=torch.uint8), torch.arange(9), (0.5,), (0.5,))
    first, other = (AugmentedImages(images, Augmentation("shift", (1, 8, 8)), seed) for seed in (0, 1))
    indices = torch.tensor([3, 1, 4])
    torch.rand(3)
    assert first.batch(indices)[0].equal(first.batch(indices)[0])
    assert not first.batch(indices)[0].equal(other.batch(indices)[0])
    assert not first.batch(indices)[0].equal(first.batch(indices.flip(0))[0].flip(0))


def test_the_loss_of_mixed_images():
    scores, labels, partners = torch.randn(5, 8), torch.arange(5), torch.arange(5).flip(0)
    value, numbers = image_loss()(lambda images: scores, (scores, labels))
    torch.testing.assert_close(value, cross_entropy(scores, labels))
    ranks = (scores > scores.gather(1, labels[:, None])).sum(1)
    assert float(numbers["accuracy"]) == pytest.approx(float((ranks == 0).float().mean()))
    assert float(numbers["top5"]) == pytest.approx(float((ranks < 5).float().mean()))
    share = torch.full((5,), 0.3)
    mixed, _ = image_loss()(lambda images: scores, (scores, labels, partners, share))
    torch.testing.assert_close(mixed, 0.3 * value + 0.7 * cross_entropy(scores, partners))


def test_products_in_bfloat16():
    layer = torch.nn.Linear(8, 4)
    batch = torch.randn(5, 8), torch.arange(5) % 4
    exact, rounded = (image_loss(dtype)(layer, batch)[0] for dtype in (None, torch.bfloat16))
    assert rounded.dtype == torch.float32 and 0 < abs(exact - rounded) < 0.1


def test_a_run_is_trained_resumed_and_evaluated(capsys):
    words = ["train", "images", "--data.augmentation=mixup-cutmix", *SMALL, *QUIET, *NARROW]
    assert main([*words, "--output.name=whole"]) == 0
    with stopping(4):
        assert main([*words, "--output.name=parts"]) == 130
    torch.manual_seed(99)
    assert main(["train", "images", "--resume", "runs/parts"]) == 0
    assert Path("runs/parts/model.safetensors").read_bytes() == Path("runs/whole/model.safetensors").read_bytes()
    result = json.loads(Path("runs/whole/result.json").read_text())
    assert set(result["accuracy"]) == set(result["top5"]) == {"val", "test"} and result["n_train"] == 24
    numbers = json.loads(printed(capsys, "evaluate", "runs/whole", "--json", "--machine.threads=1"))
    assert numbers["test"] == {"loss": result["loss"]["test"], **numbers["test"]} and numbers["test"]["images"] == 16


def test_a_run_on_an_archive_of_cifar(monkeypatch, capsys):
    """All images of a tiny archive are trained and tested on, as in the tables."""
    load_images.cache_clear()
    make_official(monkeypatch, Path(), "cifar100")
    data = ["--data.dataset=cifar100", "--data.folder=.", "--data.augmentation=cutmix", "--data.n_val=0"]
    assert main(["train", "images", *data, "--loop.epochs=1", *QUIET, *NARROW, "--output.name=run"]) == 0
    result = json.loads(Path("runs/run/result.json").read_text())
    assert (result["benchmark"], result["n_train"], result["n_test"]) == ("cifar100-cutmix", 10, 4)
    assert set(result["accuracy"]) == {"test"}
    load_images.cache_clear()


@pytest.mark.slow
def test_the_tiny_scale_leaves_a_table_and_a_figure(capsys, monkeypatch):
    """The grid of --scale tiny with fewer and shorter runs."""
    fork_workers(monkeypatch)
    assert "12 cells, 0 done, 12 to run" in printed(capsys, "reproduce", "images", "--scale", "tiny", "--dry_run")
    fewer = ["--sizes=[16,24]", "--seeds=1", "--workers=2", "--loop.epochs=1", "--data.n_test=20"]
    assert main(["reproduce", "images", "--scale", "tiny", "--out=grid", "--quiet", *fewer]) == 0
    assert len(Path("grid/results.csv").read_text().splitlines()) == 5
    table = Path("grid/comparison.md").read_text()
    assert "## Test images, top-1" in table and "## Test images, top-5" in table and "ViDAT (d 64)" in table
    assert Path("grid/figures/accuracy.png").stat().st_size > 10_000
    assert main(["reproduce", "images", "--scale", "tiny", "--out=grid", *fewer]) == 0
    assert "4 cells, 4 done, 0 to run" in capsys.readouterr().out


def test_a_grid_on_pictures_of_ones_own(capsys, monkeypatch):
    """A table of both models over a folder of pictures by class, which no published number stands beside."""
    fork_workers(monkeypatch)
    for number in range(12):
        place = Path("pets", ("cat", "dog")[number % 2], f"{number}.png")
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((8, 8), 20 * number).save(place)
    own = ["--data.dataset=folder", "--data.folder=pets", "--data.image_size=8", "--sizes=[8]", "--seeds=1"]
    assert main(["reproduce", "images", "--scale", "tiny", "--out=grid", "--quiet", *own, "--loop.epochs=1"]) == 0
    rows = list(csv.DictReader(Path("grid/results.csv").read_text().splitlines()))
    assert {row["benchmark"] for row in rows} == {"folder-shift"} and len({row["model"] for row in rows}) == 2
    assert "published" not in Path("grid/comparison.md").read_text()


def test_published_numbers_stand_beside_measured_ones(tmp_path):
    head = "benchmark,model,n_train,seed,parameters,test,test_top5,steps,seconds"
    rows = [f"cifar10-cutmix,{m},50000,{s},7149034,{86 + s},99,39100,1" for m in ("ViT", "ViDAT") for s in (0, 1)]
    Path("results.csv").write_text("\n".join([head, *rows]) + "\n")
    assert main(["plot", "images", "results.csv", "--out=out", "--against=ViT"]) == 0
    table = Path("out/comparison.md").read_text()
    assert "| cifar10-cutmix | ViT | 86.5 ± 6.4 (86.4; t 0.2) |" in table and "(89.7; t -6.3)" in table
    assert Path("out/contrasts.md").is_file() and Path("out/accuracy.png").is_file()


def test_runs_made_otherwise_are_not_merged(capsys):
    head = "benchmark,model,n_train,seed,parameters,epochs,n_test,test,test_top5,steps,seconds"
    for epochs in (10, 20):
        Path(f"{epochs}.csv").write_text(f"{head}\ndigits-shift,ViT-digits,250,{epochs},9,{epochs},359,80,99,5,1\n")
    assert "they were not made alike" in refusal(capsys, "plot", "images", "10.csv", "20.csv", "--out=out")


def test_cells_are_the_runs_of_the_tables():
    config = SCALES["table-4"].config(cells(IMAGES, SCALES["table-4"])[0])
    assert (config.model.name, config.data.trained, config.data.n_val) == ("ViT", 50_000, 0)
    assert config.data.augmentation == "autoaugment" and config.data.tested("cifar10") == 10_000
    assert config.machine.precision == "bfloat16" and config.optim.weight_decay == 5e-5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data.dataset=cifar10"], "data.folder: cifar10 needs the folder that holds cifar-10-python.tar.gz, from"),
        (["--data.dataset=cifar100", "--data.folder=none"], "data.folder: expected cifar-100-python.tar.gz in"),
        (["--data.dataset=cifar"], "data.dataset: expected one of 'digits', 'mnist', 'cifar10', 'cifar100'"),
        (["--data.folder=x"], "comes with a package (pictures of yours need --data.dataset folder), got 'x'"),
        (["--data.augmentation=autoaugment"], "data.augmentation: expected another than autoaugment with digits"),
        (["--data.n_train=1700"], "data.n_train: expected from 1 to 1,"),
        (["--model.patch_size=[0,4]"], "model.patch_size: expected integers of at least 1, got [0, 4]"),
        (["--model.patch_size=[3,3]"], "model.patch_size: expected sides that divide the 8 x 8 pixels of digits"),
        (["--model.symbols=rel_sym_attn"], "model.symbols: expected positional_symbols, symbolic_attention"),
        (["--optim.min_lr=1"], "optim.min_lr: expected a number from 0 to optim.lr"),
        (["--optim.change_every=0"], "optim.change_every: expected an integer of at least 1"),
        (
            [*SMALL, *QUIET, *NARROW, "--data.n_val=0", "--loop.stop_patience=2"],
            "loop.stop_patience: expected null without a validation set, got 2",
        ),
        (["--preset=ResNet"], "preset: expected one of ViT, ViDAT"),
    ],
)
def test_wrong_settings(capsys, words, message):
    assert message in refusal(capsys, "train", "images", *words) and not Path("runs").exists()


def test_a_grid_with_too_large_a_size(capsys):
    assert "data.n_train: expected from 1 to 1," in refusal(capsys, "reproduce", "images", "--sizes=[1500]")


def test_images_that_do_not_fit_are_refused(capsys, monkeypatch):
    monkeypatch.setattr("dat.training.device.memory_of", lambda device: 2**24)
    assert "data: its images take" in refusal(capsys, "train", "images", "--data.dataset=cifar10", "--data.folder=x")


def test_colour_images_of_any_preset():
    config = ImageConfig(data=ImageDataConfig(dataset="cifar10", augmentation="cutmix"), model=PRESETS["ViDAT"])
    problem = timing_problem(IMAGES, replace(config, loop=replace(config.loop, batch_size=2)))
    value, numbers = problem.loss(problem.model, problem.train.batch(torch.arange(2)))
    value.backward()
    assert value.isfinite() and set(numbers) == {"accuracy", "top5"}


def test_symbols_reach_across_patches_that_are_not_square():
    """Patches 2 wide and 4 high: four columns and two rows of an image of 8 x 8 pixels."""
    keys = replace(PRESETS["ViDAT-digits"], patch_size=(2, 4), symbols="position_relative_2d")
    model = empty_image_model(keys, IMAGE_SETS["digits"])
    assert model.grid_size == (2, 4)
    assert model.get_submodule("symbol_retriever").max_rel_pos == (1, 3)
