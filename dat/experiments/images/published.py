"""The published accuracies on CIFAR (arXiv 2405.16727), by the names of our sets and presets.

Tables 1 and 3 are of crops and CutMix, Table 4 of AutoAugment. Where ten trials were published, they are a mean and its
standard error, of one decimal; the deviation of the trials is thus known roughly only. The others are means in logs of
the authors.
"""

from math import sqrt

from ...data.images import IMAGE_SETS
from ...sweeps.published import Published

TRIALS = 10

ACCURACIES: dict[tuple[str, str], tuple[float, float | None]] = {
    ("cifar10-cutmix", "ViT"): (86.4, 0.1),
    ("cifar10-cutmix", "ViDAT"): (89.7, 0.1),
    ("cifar10-cutmix", "ViDAT-asym"): (89.5, 0.1),
    ("cifar10-cutmix", "ViDAT-ungrouped"): (88.5, 0.4),
    ("cifar10-autoaugment", "ViT"): (89.5, 0.1),
    ("cifar10-autoaugment", "ViDAT"): (91.7, 0.1),
    ("cifar10-autoaugment", "ViDAT-asym"): (91.7, None),
    ("cifar10-autoaugment", "ViDAT-ungrouped"): (91.7, None),
    ("cifar100-cutmix", "ViT"): (68.8, 0.2),
    ("cifar100-cutmix", "ViDAT"): (70.5, 0.1),
    ("cifar100-cutmix", "ViDAT-asym"): (70.5, 0.1),
    ("cifar100-cutmix", "ViDAT-ungrouped"): (70.1, None),
    ("cifar100-autoaugment", "ViT"): (68.2, 0.1),
    ("cifar100-autoaugment", "ViDAT"): (70.9, 0.1),
    ("cifar100-autoaugment", "ViDAT-asym"): (71.2, None),
    ("cifar100-autoaugment", "ViDAT-ungrouped"): (71.2, None),
}
"""Top-1 accuracy in percent on the test images, and its standard error where it is known."""


def published_accuracy(benchmark: str, model: str) -> list[Published]:
    """The published point of a model, at all training images of its set; empty if there is none."""
    if (benchmark, model) not in ACCURACIES:
        return []
    mean, error = ACCURACIES[benchmark, model]
    size = next(about.train for name, about in IMAGE_SETS.items() if benchmark.startswith(f"{name}-"))
    if error is None or model == "ViDAT-ungrouped":  # whose number of trials is not known
        return [Published(point=size, mean=mean)]
    return [Published(point=size, mean=mean, trials=TRIALS, sd=error * sqrt(TRIALS))]
