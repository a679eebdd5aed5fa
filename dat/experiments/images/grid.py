"""Grids of image classification, and those for everyone: a look within minutes, and the paper's Tables 1, 3 and 4."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from ...data.images import IMAGE_SETS, ImageSetName
from ...data.images.augmentation import AugmentationName
from ...data.images.folders import pictures_origin
from ...data.images.splits import check_image_counts
from ...sweeps.grid import AT_THEIR_END, Cell, GridConfig, crossed
from ...training.configs import LoopConfig, PrecisionMachineConfig, check_names
from .config import ImageConfig, ImageDataConfig, ImageModelConfig, ImageOptimConfig, ImageSources
from .presets import PRESETS


@dataclass(frozen=True)
class ImageGrid(GridConfig):
    """Every model on every set of images at every training-set size, from several seeds."""

    out: str = "runs/reproduce-images"
    seeds: int = 3
    datasets: tuple[ImageSetName, ...] = ("digits",)
    """Images."""
    sizes: tuple[int, ...] | None = None
    """Training-set sizes; null takes 250 and 1000, and of a folder all pictures that are not kept apart."""
    models: tuple[str, ...] = ("ViT-digits", "ViDAT-digits")
    """Models, by the names of presets."""
    data: ImageSources = field(default_factory=lambda: ImageSources(augmentation="shift"))
    """Source of images, number kept apart, and augmentation."""
    optim: ImageOptimConfig = field(default_factory=ImageOptimConfig)
    """Optimiser."""
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(epochs=40, batch_size=32, **AT_THEIR_END))
    """Length of training and batch sizes. Cells are not evaluated before their end and write no checkpoints."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of matrix products: float32, or bfloat16 by autocast."""

    presets: ClassVar[Mapping[str, ImageModelConfig]] = PRESETS

    def __post_init__(self) -> None:
        if (only := self.data.dataset) is not None:
            object.__setattr__(self, "datasets", (only,))
            object.__setattr__(self, "data", replace(self.data, dataset=None))
        super().__post_init__()
        check_names("datasets", self.datasets, get_args(ImageSetName))
        for dataset in self.datasets:
            self.data.check_source(dataset)
        there = Path(self.data.folder or "").is_dir()  # a grid can be listed without its pictures
        if self.sizes is None:
            whole = self.datasets == ("folder",) and there
            sizes = (self.data.left("folder"),) if whole else (250, 1000)
            object.__setattr__(self, "sizes", sizes)
        for dataset in self.datasets:
            if dataset != "folder" or there:
                counts = max(self.sizes or ()), self.data.n_val, self.data.tested(dataset)
                check_image_counts(dataset, self.data.about(dataset), *counts)

    def points(self) -> list[dict[str, Any]]:
        benchmarks = [f"{dataset}-{self.data.augmentation}" for dataset in self.datasets]
        return crossed(benchmark=benchmarks, n_train=self.sizes or (), model=self.models)

    def origin(self) -> dict[str, Any]:
        if self.datasets != ("folder",):
            return {}
        return {"pictures_digest": pictures_origin(self.data.folder)["digest"]}

    def run_config(self, cell: Cell) -> ImageConfig:
        dataset = cell["benchmark"].partition("-")[0]
        data = ImageDataConfig(**{**asdict(self.data), "dataset": dataset, "n_train": cell["n_train"]})
        machine = PrecisionMachineConfig(precision=self.precision)
        return ImageConfig(**self.common_keys(cell, data=data, machine=machine))


EPOCHS, BATCH = 100, 128
STEPS = -(-IMAGE_SETS["cifar10"].train // BATCH)
"""Steps of an epoch of CIFAR, in which the last, smaller batch is kept."""


def paper_grid(name: str, augmentation: AugmentationName) -> ImageGrid:
    """Ten trials of the models of a table on both sets, on a GPU.

    The published schedule: Adam, five epochs of warm-up, then the larger part of a cosine, epoch by epoch.
    """
    return ImageGrid(
        out=f"runs/images-{name}",
        seeds=10,
        workers=1,
        device="cuda",
        datasets=("cifar10", "cifar100"),
        sizes=(IMAGE_SETS["cifar10"].train,),
        models=("ViT", "ViDAT", "ViDAT-asym"),
        data=ImageSources(folder="cifar", augmentation=augmentation),
        optim=ImageOptimConfig(
            lr=1e-3,
            weight_decay=5e-5,
            warmup_steps=5 * STEPS,
            min_lr=1e-5,
            cosine_length=EPOCHS * STEPS,
            change_every=STEPS,
        ),
        loop=LoopConfig(epochs=EPOCHS, batch_size=BATCH, **AT_THEIR_END),
        precision="bfloat16",
    )


SCALES = {
    "tiny": ImageGrid(out="runs/images-tiny"),
    "tables-1-and-3": paper_grid("tables-1-and-3", "cutmix"),
    "table-4": paper_grid("table-4", "autoaugment"),
}
