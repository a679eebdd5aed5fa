"""Labelled images to classify: CIFAR, handwritten digits from packages, and folders of pictures."""

from .digits import DIGIT_SOURCES, digit_images
from .folders import find_pictures, folder_images
from .sets import IMAGE_SETS, ImageSet, ImageSetName, LabelledImages
from .splits import image_set, load_images, split_images

__all__ = [
    "DIGIT_SOURCES",
    "IMAGE_SETS",
    "ImageSet",
    "ImageSetName",
    "LabelledImages",
    "digit_images",
    "find_pictures",
    "folder_images",
    "image_set",
    "load_images",
    "split_images",
]
