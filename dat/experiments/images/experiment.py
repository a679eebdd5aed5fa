"""Image classification as an experiment: its runs, and accuracy beside Tables 1, 3 and 4."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from dual_attention._words import counted

from ...data.images import LabelledImages, find_pictures, split_images
from ...data.images.augmentation import Augmentation
from ...sweeps.durations import EVALUATION_SHARE
from ...sweeps.experiment import Cost, SweptExperiment
from ...sweeps.table import Axis, CurvesFigure, ResultTable
from ...training.device import check_memory, prepare_device
from ...training.experiment import Prepared, count_parameters
from ...training.problem import Problem
from ...training.seeding import derive_seed
from ..base_width import scaled_from_base
from ..vision_model import export_vision_model, vision_symbols
from .config import ImageConfig, ImageDataConfig
from .examples import AugmentedImages, NormalisedImages, image_loss
from .grid import ImageGrid
from .model import build_image_model, empty_image_model
from .presets import COLOURS, LABELS, LOOKS, PRESETS, VIDAT
from .published import published_accuracy
from .scales import SCALES

USES = {"train": "train", "val": "validate", "test": "test"}
"""What pictures of a split are for, in words."""


class ImageClassification(SweptExperiment[ImageConfig, Prepared]):
    """Tables 1, 3 and 4 of arXiv 2405.16727."""

    name = "images"
    title = "image classification"
    about: ClassVar = {
        "train": "Train one model to classify images, in a new run folder. Without options: a small ViDAT on 1,797 "
        "handwritten digits that come with scikit-learn, a minute. CIFAR is taken from an official archive in "
        "--data.folder, and pictures of yours from one with a folder for each class: --data.dataset folder.",
        "reproduce": "Accuracy of Vision Transformers and ViDATs. The defaults are small models on handwritten "
        "digits, a few minutes; --scale tables-1-and-3 and --scale table-4 are the published grids on CIFAR, for a "
        "GPU. Cells that are done are skipped, so the same command continues after Ctrl-C. Writes results.csv, "
        "comparison.md (beside the published numbers) and figures/ into the folder.",
        "plot": "Table and figure from the results of one or several grids, finished or not.",
    }
    Config = ImageConfig
    Grid = ImageGrid
    presets = PRESETS
    scales = SCALES
    table = ResultTable(
        metrics=("accuracy", "top5", "loss"),
        shares=("accuracy", "top5"),
        set_title="images",
        set_names={"val": "validation", "test": "test"},
        counted="images",
        axes=(
            Axis("benchmark", "data.benchmark", "images", "images"),
            Axis("model", "model.name", "model", "models", order=tuple(LOOKS), labels=LABELS),
            Axis("n_train", "data.trained", "training-set size", "training images", number=True, prefix="n"),
        ),
        measures={"test": "test images, top-1", "test_top5": "test images, top-5"},
        tabled={"test_loss": "cross-entropy: test images"},
        provenance={"epochs": 0, "n_test": 0},
        run_in_words="{model} on {benchmark}, {n_train:,} images, seed {seed}".format_map,
        scale=100.0,
        unit=" %",
        caption="Accuracy in percent after the last epoch",
        y_title="accuracy (%)",
        colours=COLOURS,
        figures={"accuracy.png": CurvesFigure("Image classification", ("test",))},
        published=lambda measure, panel, curve: published_accuracy(panel, curve) if measure == "test" else [],
    )

    def identity(self, config: ImageConfig) -> dict[str, Any]:
        """The axes, the length of training and the number of test images."""
        made = {"epochs": config.loop.epochs, "n_test": config.data.tested(config.data.dataset)}
        return super().identity(config) | made

    def prepare(self, config: ImageConfig, *, cache: Path, run: Path | None = None) -> Prepared:
        device, data = prepare_device(config.machine), config.data
        about = data.about(data.dataset)
        model = empty_image_model(config.model, about)
        check_memory("model", "its weights", 4 * count_parameters(model), device)
        check_memory("data", "its images", math.prod(about.shape) * (about.train + about.test))
        splits = split_images(
            data.dataset,
            n_train=data.trained,
            n_val=data.n_val,
            n_test=data.tested(data.dataset),
            seed=config.data_seed,
            folder=data.folder,
            from_hub=data.from_hub,
            size=data.image_size,
        )
        read = about_folder(data.folder, splits) if data.dataset == "folder" else ""
        return Prepared(image_problem(config, splits, device), device, chance=1 / about.classes, about=read)

    def empty_model(self, config: ImageConfig) -> nn.Module:
        return empty_image_model(config.model, config.data.about(config.data.dataset))

    def export(self, config: ImageConfig, model: nn.Module, folder: Path, **saving: Any) -> None:
        about, keys = config.data.about(config.data.dataset), config.model
        symbols, looks = vision_symbols(keys, about.shape), {"mean": about.mean, "std": about.std}
        export_vision_model(model, keys, symbols, about.shape, folder, **looks, **saving)

    def preset_config(self, name: str) -> ImageConfig:
        """The default run of a preset; those of the paper are of CIFAR-10."""
        config = super().preset_config(name)
        if config.model.d_model != VIDAT.d_model:
            return config
        return replace(config, data=ImageDataConfig(dataset="cifar10", folder="cifar"))

    def headline(self, result: Mapping[str, Any]) -> str:
        return f"{result['benchmark']}, {result['n_train']:,} images: {result['model']}"

    def cost(self, config: ImageConfig) -> Cost:
        data = config.data
        evaluated = (data.n_val + data.tested(data.dataset)) * (1 + len(config.loop.measure_at))
        work = config.loop.epochs * data.trained + EVALUATION_SHARE * evaluated
        return Cost(work, lambda: timed_images(config))


def about_folder(folder: str | None, splits: Mapping[str, LabelledImages]) -> str:
    """A line on the pictures of a folder, for people."""
    found = find_pictures(folder)
    sizes = ", ".join(f"{len(part.images):,} to {USES[name]} on" for name in USES if (part := splits.get(name)))
    left_out = f"; left out: {counted(found.left_out, 'file')} that are no pictures" if found.left_out else ""
    return f"pictures: {counted(len(found.classes), 'class', 'classes')}, {sizes}{left_out}"


def timed_images(config: ImageConfig) -> Problem:
    """A batch of noise."""
    about, size = config.data.about(config.data.dataset), config.loop.batch_size
    images = torch.randint(256, (size, *about.shape), dtype=torch.uint8)
    labels = torch.randint(about.classes, (size,))
    return image_problem(config, {"train": LabelledImages(images, labels)}, torch.device("cpu"))


def image_problem(config: ImageConfig, splits: Mapping[str, LabelledImages], device: torch.device) -> Problem:
    """Model, splits and loss of a run."""
    about = config.data.about(config.data.dataset)
    augmentation = Augmentation(config.data.augmentation, about.shape)
    model = build_image_model(config.model, about, seed=config.seed)
    factors = scaled_from_base(config, model, lambda keys: empty_image_model(keys, about))
    sets = {name: NormalisedImages(*found, about.mean, about.std, device) for name, found in splits.items()}
    train = AugmentedImages(sets.pop("train"), augmentation, derive_seed(config.seed, "augmentation"))
    loss = image_loss(config.machine.autocast)
    return Problem(model=model.to(device), train=train, loss=loss, evaluation=sets, factors=factors)
