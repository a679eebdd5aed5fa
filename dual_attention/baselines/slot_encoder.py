"""Objects found in images, without a grid: a convolutional network, positions and Slot Attention.

Shapes: B batch, C channels, K slots, h and w rows and columns of the feature map, d width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .._layers.calls import TypedModule
from .._layers.inputs import check_like, check_members, check_part, check_positive
from .._models.vision import checked_sizes
from ..functional.checks import check_tensor
from ..transformer_blocks import FeedForwardBlock
from .slot_attention import SlotAttention, SlotInit

KERNEL = 5
"""Side of the filters."""


class EncodedSlots(NamedTuple):
    """What :class:`SlotEncoder` finds in images.

    Attributes:
        slots: ``(B, K, d)``.
        features, positions: feature map, and embedded positions, averaged under the weights of each slot, ``(B, K, d)``
            each: what an object looks like apart from where it is (Webb et al. 2023, arXiv 2306.02500).
        shares: of the slots in each position, ``(B, K, h, w)``, which sum to one over the slots.
    """

    slots: Tensor
    features: Tensor
    positions: Tensor
    shares: Tensor


class SlotEncoder(TypedModule):
    """Slots from an image, each for one object, if the training separates them (Locatello et al. 2020, section 3.2).

    Math: F = CNN(image),  p = W (row, column, 1 - row, 1 - column) + b,  s = SlotAttention(MLP(LN(F + p)))

    The network has a convolution of 5 x 5 filters and a ReLU for each stride; the coordinates go from 0 to 1.

    Args:
        image_shape: (channels, width, height).
        n_slots: K; at least as many as objects, and one for the background.
        d_model: d, of the feature map and of the slots.
        strides: of the convolutions; in the paper four of stride 1. Each stride of 2 halves the map.
        n_iterations, init: as :class:`~dual_attention.baselines.SlotAttention`.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        n_slots: int,
        d_model: int,
        *,
        strides: Sequence[int] = (1, 1, 1, 1),
        n_iterations: int = 3,
        init: SlotInit = "random",
    ) -> None:
        super().__init__()
        self.image_shape = checked_sizes("image_shape", image_shape, 3)
        check_positive(d_model=d_model)
        check_members("strides", strides)
        check_positive(strides=len(strides))
        layers: list[nn.Module] = []
        for stride in strides:
            check_positive(strides=stride)
            channels = d_model if layers else self.image_shape[0]
            layers += [nn.Conv2d(channels, d_model, KERNEL, stride, KERNEL // 2), nn.ReLU()]
        self.d_model = d_model
        self.cnn = nn.Sequential(*layers)
        self.embed_positions = nn.Linear(4, d_model)
        self.norm = nn.LayerNorm(d_model)
        self.ff_block = FeedForwardBlock(d_model, d_model, "relu", use_bias=True)
        self.slot_attention = SlotAttention(d_model, n_slots, n_iterations=n_iterations, init=init)

    def forward(self, x: Tensor) -> EncodedSlots:
        """Slots of images ``(B, C, height, width)``, of the model's ``image_shape``."""
        check_tensor("x", x)
        channels, width, height = self.image_shape
        expected = channels, height, width
        if x.dim() != 4 or tuple(x.shape[1:]) != expected:
            raise ValueError(f"x: expected shape (batch, {', '.join(map(str, expected))}), got {tuple(x.shape)}")
        check_like("x", x, self.cnn[0])
        feature_map = self.cnn(x)
        size = feature_map.shape[2:]
        features = feature_map.flatten(2).transpose(1, 2)
        row, column = (torch.linspace(0, 1, n, device=x.device, dtype=x.dtype) for n in size)
        grid = torch.cartesian_prod(row, column)
        positions = self.embed_positions(torch.cat((grid, 1 - grid), dim=1))
        found = self.slot_attention(self.ff_block(self.norm(features + positions)), need_weights=True)
        return EncodedSlots(
            found.slots, found.weights @ features, found.weights @ positions, found.shares.unflatten(2, size)
        )


class VisionSlots(TypedModule):
    """Classifier of images that relates their slots.

    Args:
        slots: finds the objects.
        model: classifier of images of shape (d, K, 1) whose patches are single pixels, each of which is a slot; or
            :class:`~dual_attention.baselines.SlotAbstractor` or :class:`~dual_attention.baselines.OCRA`.
        num_classes: of a linear classifier of what the last two give, averaged over the objects; None for a model that
            classifies itself.
    """

    def __init__(self, slots: SlotEncoder, model: nn.Module, num_classes: int | None = None) -> None:
        super().__init__()
        check_part("slots", slots, SlotEncoder)
        check_part("model", model, nn.Module)
        self.image_channels, self.image_width, self.image_height = slots.image_shape
        self.n_objects = slots.slot_attention.n_slots
        self.slots = slots
        self.model = model
        self.classifier = None
        if num_classes is not None:
            check_positive(num_classes=num_classes)
            self.classifier = nn.Linear(slots.d_model, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores ``(B, num_classes)`` of images ``(B, C, height, width)``, of the slots' ``image_shape``."""
        found = self.slots(x)
        if self.classifier is None:
            return self.model(found.slots.transpose(1, 2)[:, :, None])
        related = self.model(found.features, found.positions)
        return self.classifier(related.mean(1) if related.dim() == 3 else related)
