"""Grids of image classification for everyone: a look within minutes, and the paper's Tables 1, 3 and 4."""

from ...data.images import IMAGE_SETS
from ...data.images.augmentation import AugmentationName
from ...training.configs import LoopConfig
from .config import ImageOptimConfig, ImageSources
from .grid import ImageGrid

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
        loop=LoopConfig(epochs=EPOCHS, batch_size=BATCH, eval_every=0, checkpoint_every=0),
        precision="bfloat16",
    )


SCALES = {
    "tiny": ImageGrid(out="runs/images-tiny"),
    "tables-1-and-3": paper_grid("tables-1-and-3", "cutmix"),
    "table-4": paper_grid("table-4", "autoaugment"),
}
