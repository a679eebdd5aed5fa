"""Images as batches: normalised, and augmented where they are trained on; and the loss of a batch.

Shapes: B images of a batch, K classes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...data.images.augmentation import Augmentation, drawn_from
from ...training.problem import Batch, ImageExamples, LossFunction
from ...training.seeding import derive_seed

TOP = 5
"""k of top-k accuracy: a label counts as found if its score is among the k largest."""


class NormalisedImages(ImageExamples):
    """Labelled images, in batches as float32 with mean 0 and deviation 1.

    Args:
        images, labels, device: as :class:`~dat.training.problem.ImageExamples`.
        mean, std: of each channel, for pixels in 0..1.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(images, labels, device)
        self.mean, self.std = (torch.tensor(part, device=device)[:, None, None] for part in (mean, std))

    def batch(self, indices: Tensor) -> Batch:
        images, labels = super().batch(indices)
        return self.normalised(images), labels

    def normalised(self, images: Tensor) -> Tensor:
        """Images in 0..1 with mean 0 and deviation 1."""
        return (images - self.mean) / self.std


class AugmentedImages(ImageExamples):
    """Images to train on, augmented anew in each batch.

    What is drawn depends on the seed and on the images of the batch in their order: a resumed run draws the same,
    and so do runs of other models with the same seed.

    Args:
        source: the images.
        augmentation: of batches.
        seed: of what it draws.
    """

    def __init__(self, source: NormalisedImages, augmentation: Augmentation, seed: int) -> None:
        super().__init__(*source.tensors, device=source.tensors[0].device)
        self.source, self.augmentation, self.seed = source, augmentation, seed

    def batch(self, indices: Tensor) -> Batch:
        """Images and labels; of mixed ones also the labels of the partners, and the share of the own image."""
        images, labels = super().batch(indices)
        with drawn_from(derive_seed(self.seed, "augmentation", *indices.tolist())):
            images = self.source.normalised(self.augmentation.change(images))
            return self.augmentation.mix(images, labels) if self.augmentation.mixes else (images, labels)


def image_loss(autocast: torch.dtype | None = None) -> LossFunction:
    """Cross-entropy of images, or of both labels of mixed ones by their shares; also the accuracy, top-1 and top-5.

    Args:
        autocast: precision of matrix products, if it is another than that of the weights.
    """

    def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        images, labels, *mixed = batch
        with torch.autocast(images.device.type, dtype=autocast, enabled=autocast is not None):
            scores = model(images)
        values = _values(scores.float(), labels)
        if mixed:
            partners, share = mixed
            values = share * values + (1 - share) * _values(scores.float(), partners)
        value, accuracy, top = values.mean(1)
        return value, {"accuracy": accuracy.detach(), "top5": top.detach()}

    return loss


def _values(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy, and whether the label is the first or among the first :data:`TOP`: ``(3, B)``."""
    entropy = nn.functional.cross_entropy(scores, labels, reduction="none")
    found = scores.detach().topk(min(TOP, scores.shape[1])).indices == labels[:, None]
    return torch.stack((entropy, found[:, 0].to(entropy.dtype), found.any(1).to(entropy.dtype)))
