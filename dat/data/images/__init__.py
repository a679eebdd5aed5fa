"""Labelled images to classify: CIFAR from its official archives or the hub, and handwritten digits from packages."""

from .cifar import cifar_images
from .digits import DIGIT_SOURCES, digit_images
from .hub import hub_images
from .sets import IMAGE_SETS, ImageSet, ImageSetName, LabelledImages
from .splits import load_images, split_images

__all__ = [
    "DIGIT_SOURCES",
    "IMAGE_SETS",
    "ImageSet",
    "ImageSetName",
    "LabelledImages",
    "cifar_images",
    "digit_images",
    "hub_images",
    "load_images",
    "split_images",
]
