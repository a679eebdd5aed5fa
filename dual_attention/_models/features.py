"""Outputs of single blocks of an image model as features, by timm's names. B batch, d width of the model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from torch import Tensor, nn

FeatureFormat = Literal["NCHW", "NLC"]


def taken_blocks(n_blocks: int, indices: int | Iterable[int] | None) -> list[int]:
    """Numbers of blocks, by depth: those of ``indices``, negative ones counted from the last; so many last ones; all.

    ``ValueError`` if there is none, one without a block, or one twice.
    """
    wanted = n_blocks if indices is None else indices
    numbers = list(range(n_blocks))[-wanted:] if isinstance(wanted, int) else list(wanted)
    few = isinstance(wanted, int) and not 1 <= wanted <= n_blocks
    if few or not numbers or not all(isinstance(n, int) and -n_blocks <= n < n_blocks for n in numbers):
        raise ValueError(f"indices: expected some of {n_blocks} blocks, or how many of the last, got {indices!r}")
    taken = sorted({number % n_blocks for number in numbers})
    if len(taken) < len(numbers):
        raise ValueError(f"indices: expected each block once, got {indices!r}")
    return taken


class FeatureInfo:
    """Description of features: an entry a block of the model, and the numbers of those that are put out."""

    def __init__(self, info: Sequence[dict[str, Any]], out_indices: Sequence[int]) -> None:
        self.info = list(info)
        self.out_indices = tuple(out_indices)

    def channels(self) -> list[int]:
        """Width of each feature, d."""
        return [self.info[number]["num_chs"] for number in self.out_indices]

    def reduction(self) -> list[int]:
        """Pixels of the image along the longer side of a pixel of each feature."""
        return [self.info[number]["reduction"] for number in self.out_indices]

    def module_name(self) -> list[str]:
        """Name of the block that each feature is the output of."""
        return [self.info[number]["module"] for number in self.out_indices]


class VisionFeatures(nn.Module):
    """An image model that puts out the features that its ``forward_intermediates`` lists.

    Args:
        model: a model with ``forward_intermediates`` and ``feature_info``.
        indices: numbers of blocks.
        norm, output_fmt: as :meth:`.vision.VisionModel.forward_intermediates`.
    """

    def __init__(
        self, model: Any, indices: Sequence[int], *, norm: bool = False, output_fmt: FeatureFormat = "NCHW"
    ) -> None:
        super().__init__()
        self.model = model
        self.feature_info = FeatureInfo(model.feature_info, indices)
        self.norm = norm
        self.output_fmt: FeatureFormat = output_fmt

    def forward(self, x: Tensor) -> list[Tensor]:
        """Features of images ``(B, C, height, width)``, each ``(B, d, rows, columns)`` or, ``"NLC"``, ``(B, L, d)``."""
        return self.model.forward_intermediates(
            x, self.feature_info.out_indices, norm=self.norm, output_fmt=self.output_fmt, intermediates_only=True
        )
