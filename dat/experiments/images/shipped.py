"""Configurations of image classification that come with the repository."""

from __future__ import annotations

from typing import Any

from ...data.images import IMAGE_SETS
from ...sweeps.analysis import AnalysisConfig
from ...training.configs import LoopConfig, PrecisionMachineConfig
from .config import ImageConfig, ImageDataConfig, ImageOptimConfig, ImageSources
from .grid import ImageGrid
from .presets import PRESETS

PAPER = ("ViT", "ViDAT", "ViDAT-asym")
"""The rows of Tables 1, 3 and 4."""
EPOCHS, BATCH = 100, 128
STEPS = -(-IMAGE_SETS["cifar10"].train // BATCH)
"""Steps of an epoch of CIFAR, in which the last, smaller batch is kept."""
FOLDER = "cifar"
"""Folder with the archives, beside which the command is run."""


def paper_optim() -> ImageOptimConfig:
    """The published schedule: Adam, five epochs of warm-up, then the larger part of a cosine, epoch by epoch."""
    return ImageOptimConfig(
        lr=1e-3,
        weight_decay=5e-5,
        warmup_steps=5 * STEPS,
        min_lr=1e-5,
        cosine_length=EPOCHS * STEPS,
        change_every=STEPS,
    )


def paper_config(model: str, augmentation: Any) -> ImageConfig:
    """A run of a model of the paper on CIFAR-10."""
    return ImageConfig(
        data=ImageDataConfig(dataset="cifar10", folder=FOLDER, augmentation=augmentation),
        model=PRESETS[model],
        optim=paper_optim(),
        loop=LoopConfig(epochs=EPOCHS, batch_size=BATCH),
        machine=PrecisionMachineConfig(precision="bfloat16"),
    )


def paper_grid(name: str, augmentation: Any) -> ImageGrid:
    """Ten trials of the models of a table on both sets, on a GPU."""
    return ImageGrid(
        out=f"runs/images-{name}",
        seeds=10,
        workers=1,
        device="cuda",
        datasets=("cifar10", "cifar100"),
        sizes=(IMAGE_SETS["cifar10"].train,),
        models=PAPER,
        data=ImageSources(folder=FOLDER, augmentation=augmentation),
        optim=paper_optim(),
        loop=LoopConfig(epochs=EPOCHS, batch_size=BATCH, eval_every=0, checkpoint_every=0),
        precision="bfloat16",
    )


GRIDS = {
    # Whether everything runs: minutes.
    "tiny": ImageGrid(out="runs/images-tiny"),
    # T against DAT on handwritten digits, from ten seeds; announced in experiments/images/README.md.
    "digits": ImageGrid(out="runs/images-digits", seeds=10, sizes=(250, 500, 1000)),
    "tables-1-and-3": paper_grid("tables-1-and-3", "cutmix"),
    "table-4": paper_grid("table-4", "autoaugment"),
}

ANALYSES = {
    # As announced in experiments/images/README.md.
    "digits": AnalysisConfig(
        question="Do relational heads classify handwritten digits better, at equal parameters?",
        announced="experiments/images/README.md, Announced: ViT against ViDAT on digits",
        grid="digits",
        measure="test",
        reference="ViT-digits",
        arms=("ViDAT-digits",),
        panels=("digits-shift",),
        points=(250, 500, 1000),
        seeds=10,
        bound=1.0,
        equivalence_alpha=0.025,
    ),
}

SHIPPED: dict[str, Any] = {
    **{
        f"configs/{model}.yaml": ImageConfig(
            data=ImageDataConfig(n_val=180, augmentation="shift"), model=PRESETS[model]
        )
        for model in ("ViT-digits", "ViDAT-digits", "ViDAT-digits-asym")
    },
    **{f"configs/{model}.yaml": paper_config(model, "cutmix") for model in (*PAPER, "ViDAT-ungrouped")},
    **{f"configs/{model}-autoaugment.yaml": paper_config(model, "autoaugment") for model in PAPER},
    **{f"grids/{name}.yaml": grid for name, grid in GRIDS.items()},
    **{f"analyses/{name}.yaml": analysis for name, analysis in ANALYSES.items()},
}
"""A run of each model, the grids of the tables, and the announced analysis."""
