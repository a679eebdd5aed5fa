"""Relational Games: is a relation between objects present in an image, whatever the objects look like?

The benchmark is due to Shanahan et al. (2020, "An Explicitly Relational Neural Network Architecture",
arXiv 1905.10307) and is used by Altabaa & Lafferty (2024, arXiv 2405.16727). A model is trained on images of
pentominoes and tested on new pentominoes and on two sets of objects it has never seen, hexominoes and stripes.

``generate_images`` draws images, ``make_splits`` draws a whole experiment, ``load_official`` and ``official_splits``
do the same from the official files, and ``contact_sheet`` shows what the images look like. ``tasks.py`` says what each
rule rests on.
"""

from .dataset import GameImages, generate_images
from .objects import OBJECT_SETS
from .official import load_official, official_splits
from .scenes import read_scenes
from .sheet import contact_sheet
from .splits import make_splits
from .tasks import EXTRA_TASKS, TASKS, asked_patterns, class_names, generator_version, num_classes, supported_objects

__all__ = [
    "EXTRA_TASKS",
    "OBJECT_SETS",
    "TASKS",
    "GameImages",
    "asked_patterns",
    "class_names",
    "contact_sheet",
    "generate_images",
    "generator_version",
    "load_official",
    "make_splits",
    "num_classes",
    "official_splits",
    "read_scenes",
    "supported_objects",
]
