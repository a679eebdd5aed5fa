"""Image classification as an experiment: its runs, and accuracy beside Tables 1, 3 and 4."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from dual_attention._base.files import read_json_object
from dual_attention._base.words import counted

from ...data.images import LabelledImages, find_pictures, split_images
from ...data.images.augmentation import Augmentation
from ...data.images.folders import MEAN, STD, PictureFolder, pictures_origin
from ...sweeps.durations import EVALUATION_SHARE
from ...sweeps.experiment import Cost, SweptExperiment
from ...sweeps.table import PERCENT, Axis, CurvesFigure, ResultTable
from ...training.device import check_memory, prepare_device
from ...training.experiment import ORIGIN, Prepared, count_parameters
from ...training.loop import Trainer
from ...training.problem import Problem
from ...training.seeding import derive_seed
from ..base_width import scaled_from_base
from ..vision_model import export_vision_model
from .config import ImageConfig, ImageDataConfig
from .examples import AugmentedImages, NormalisedImages, image_loss
from .grid import SCALES, ImageGrid
from .model import build_image_model, empty_image_model
from .presets import COLOURS, LABELS, LOOKS, PRESETS, VIDAT
from .published import published_accuracy

USES = {"train": "train", "val": "validate", "test": "test"}
"""Use of the pictures of a split, in words."""


class ImageClassification(SweptExperiment[ImageConfig, Prepared]):
    """Tables 1, 3 and 4 of arXiv 2405.16727."""

    name = "images"
    title = "image classification"
    about: ClassVar = {
        "train": "Train one model to classify images, in a new run folder. Without options: a small ViDAT on 1,797 "
        "handwritten digits that come with scikit-learn (the extra digits), a minute. CIFAR is taken from an official "
        "archive in --data.folder, and pictures of yours from one with a folder for each class: --data.dataset folder.",
        "reproduce": "Accuracy of Vision Transformers and ViDATs. The defaults are small models on handwritten "
        "digits, a few minutes; --scale tables-1-and-3 and --scale table-4 are the published grids on CIFAR, for a "
        "GPU.",
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
        digests=("pictures",),
        run_in_words="{model} on {benchmark}, {n_train:,} images, seed {seed}".format_map,
        **PERCENT,
        caption="Accuracy in percent after the last epoch",
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
        origin = pictures_origin(data.folder) if data.dataset == "folder" else None
        begun = None if run is None else origin_of(run)
        if begun is not None and begun != origin:
            raise ValueError(f"{run}: the pictures are not those that the run began with, see {ORIGIN} there")
        about = data.about(data.dataset)
        model = empty_image_model(config.model, about)
        check_memory("model", "its weights", 4 * count_parameters(model), device)
        check_memory("data", "its images", math.prod(about.shape) * (about.train + about.test))
        counts = {"n_train": data.trained, "n_val": data.n_val, "n_test": data.tested(data.dataset)}
        splits = split_images(data.dataset, **counts, seed=config.data_seed, folder=data.folder, size=data.image_size)
        read = about_folder(data.folder, splits) if data.dataset == "folder" else ""
        chance = 1 / about.classes
        return Prepared(image_problem(config, splits, device), device, origin=origin, chance=chance, about=read)

    def empty_model(self, config: ImageConfig) -> nn.Module:
        return empty_image_model(config.model, config.data.about(config.data.dataset))

    def model_of_run(self, config: ImageConfig, run: Path) -> nn.Module:
        """As the base class; the pictures of a folder may be gone."""
        if config.data.dataset != "folder" or (origin := origin_of(run)) is None:
            return self.empty_model(config)
        about = PictureFolder(tuple(origin["classes"]), {}, None, 0).image_set(config.data.image_size)
        model: Any = empty_image_model(config.model, about)
        model.class_names = tuple(origin["classes"])
        return model

    def export(self, config: ImageConfig, model: nn.Module, folder: Path, **saving: Any) -> None:
        keys, shape = config.model, config.data.shape(config.data.dataset)
        looks: dict[str, Any] = {"mean": MEAN, "std": STD, "cut": True, "names": getattr(model, "class_names", ())}
        if config.data.dataset != "folder":
            about = config.data.about(config.data.dataset)
            looks = {"mean": about.mean, "std": about.std}
        export_vision_model(model, keys, shape, folder, **looks, **saving)

    def summary(
        self, config: ImageConfig, prepared: Prepared, trainer: Trainer, final: Mapping[str, float]
    ) -> dict[str, Any]:
        told = {} if prepared.origin is None else {"pictures_digest": prepared.origin["digest"]}
        return {**super().summary(config, prepared, trainer, final), **told}

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


def origin_of(run: Path) -> dict[str, Any] | None:
    """The pictures that a run began with; None of sets that do not change, and in runs of earlier versions."""
    return read_json_object(run / ORIGIN) if (run / ORIGIN).is_file() else None


def about_folder(folder: str | None, splits: Mapping[str, LabelledImages]) -> str:
    """A line on the pictures of a folder, for people."""
    found = find_pictures(folder)
    sizes = ", ".join(f"{len(part.images):,} to {USES[name]} on" for name in USES if (part := splits.get(name)))
    left_out = f"; left out: {counted(found.left_out, 'other file')}" if found.left_out else ""
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
