"""Slots and images: objects found by a convolutional network and Slot Attention, classified, and painted again.

Shapes: B batch, C channels, K slots, h and w rows and columns of the feature map, d width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .._layers.calls import TypedBlock, TypedModule
from .._layers.inputs import check_depth, check_kind, check_members, check_positive, check_sequence
from .._models.vision import check_images, checked_sizes
from ..functional.checks import MaybeNone
from ..transformer_blocks import FeedForwardBlock
from .factored import OCRA, SlotAbstractor
from .slot_attention import SlotAttention, SlotInit

KERNEL = 5
"""Side of the filters."""


class EncodedSlots(NamedTuple):
    """Objects that :class:`SlotEncoder` finds in images.

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

    >>> type(SlotEncoder((1, 16, 16), n_slots=4, d_model=32)(torch.randn(2, 1, 16, 16))).__name__
    'EncodedSlots'
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
        check_depth(strides=len(strides))
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
        channels, width, height = self.image_shape
        check_images(x, channels, width, height, self.cnn[0])
        feature_map = self.cnn(x)
        size = feature_map.shape[2:]
        features = feature_map.flatten(2).transpose(1, 2)
        positions = self.embed_positions(_coordinates(size, x))
        found = self.slot_attention(self.ff_block(self.norm(features + positions)), need_weights=True)
        return EncodedSlots(
            found.slots, found.weights @ features, found.weights @ positions, found.shares.unflatten(2, size)
        )


class PaintedSlots(NamedTuple):
    """Output of :class:`SlotDecoder`.

    Attributes:
        images: ``(B, C, height, width)``.
        masks: shares of the slots in each pixel, ``(B, K, height, width)``, which sum to one over the slots.
    """

    images: Tensor
    masks: Tensor


class SlotDecoder(TypedModule):
    """Images from slots, for a loss that makes each slot reconstruct one object (Locatello et al. 2020, section 3.2).

    Math: (c_k, a_k) of a patch = MLP(s_k + W (row, column, 1 - row, 1 - column) + b),  image = sum_k softmax_k(a_k) c_k

    Each slot is broadcast to every patch; an MLP with two hidden layers decodes the patches, as in Seitzer et al. 2023
    (arXiv 2209.14860), instead of the paper's transposed convolutions.

    Args:
        image_shape, d_model: as :class:`SlotEncoder`.
        patch: side of a patch in pixels.

    >>> type(SlotDecoder((1, 16, 16), d_model=32)(torch.randn(2, 4, 32))).__name__
    'PaintedSlots'
    """

    def __init__(self, image_shape: tuple[int, int, int], d_model: int, patch: int = 4) -> None:
        super().__init__()
        self.image_shape = checked_sizes("image_shape", image_shape, 3)
        check_positive(d_model=d_model, patch=patch)
        self.d_model, self.patch = d_model, patch
        self.embed_positions = nn.Linear(4, d_model)
        self.ff_block = FeedForwardBlock(d_model, d_model, "relu", use_bias=True)
        self.paint = nn.Linear(d_model, (self.image_shape[0] + 1) * patch**2)

    def forward(self, slots: Tensor) -> PaintedSlots:
        """``(B, K, d)`` -> images and masks."""
        check_sequence("slots", slots, self.d_model, layer=self.paint)
        channels, width, height = self.image_shape
        size = [-(-side // self.patch) for side in (height, width)]
        places = slots[:, :, None] + self.embed_positions(_coordinates(size, slots))
        patches = self.paint(torch.relu(self.ff_block(places)))
        patches = patches.unflatten(2, size).unflatten(4, (channels + 1, self.patch, self.patch))
        painted = patches.permute(0, 1, 4, 2, 5, 3, 6).flatten(5, 6).flatten(3, 4)[..., :height, :width]
        masks = painted[:, :, -1].softmax(1)
        return PaintedSlots((painted[:, :, :-1] * masks[:, :, None]).sum(1), masks)


def _coordinates(size: Sequence[int], like: Tensor) -> Tensor:
    """Row and column of each position, and their distances from the other end, from 0 to 1: ``(h * w, 4)``."""
    row, column = (torch.linspace(0, 1, n, device=like.device, dtype=like.dtype) for n in size)
    grid = torch.cartesian_prod(row, column)
    return torch.cat((grid, 1 - grid), dim=1)


class SlotScores(NamedTuple):
    """Output of :meth:`VisionSlots.forward` with ``need_weights``.

    Attributes:
        scores: of the classes, ``(B, num_classes)``.
        encoded: output of the encoder.
        painted: output of the decoder; None without one.
    """

    scores: Tensor
    encoded: EncodedSlots
    painted: PaintedSlots | MaybeNone


class VisionSlots(TypedBlock):
    """Classifier of images that relates their slots.

    Args:
        slots: finds the objects.
        model: classifier of images of shape (d, K, 1) whose patches are single pixels, each of which is a slot; or
            :class:`~dual_attention.baselines.SlotAbstractor` or :class:`~dual_attention.baselines.OCRA`.
        num_classes: of a linear classifier of what the last two give, averaged over the objects; None for a model that
            classifies itself.
        decoder: reconstructs the images, for an auxiliary loss.

    >>> slots = SlotEncoder((1, 16, 16), n_slots=4, d_model=32)
    >>> model = VisionSlots(slots, OCRA(d_model=32, n_layers=1, n_heads=2), num_classes=10)
    >>> model(torch.randn(2, 1, 16, 16)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        slots: SlotEncoder,
        model: nn.Module,
        num_classes: int | None = None,
        *,
        decoder: SlotDecoder | None = None,
    ) -> None:
        super().__init__()
        check_kind("slots", slots, SlotEncoder)
        check_kind("model", model, nn.Module)
        if decoder is not None:
            check_kind("decoder", decoder, SlotDecoder)
            theirs, ours = ((part.image_shape, part.d_model) for part in (decoder, slots))
            if theirs != ours:
                raise ValueError(
                    f"decoder: expected (image_shape, d_model) = {ours} as those of the slots, got {theirs}"
                )
        if isinstance(model, (SlotAbstractor, OCRA)) != (num_classes is not None):
            expected = "a number with SlotAbstractor or OCRA, and None with a model that classifies itself"
            raise ValueError(f"num_classes: expected {expected}, got {num_classes} with {type(model).__name__}")
        self.image_channels, self.image_width, self.image_height = slots.image_shape
        self.n_objects = slots.slot_attention.n_slots
        self.slots = slots
        self.model = model
        self.classifier = None
        if num_classes is not None:
            check_positive(num_classes=num_classes)
            self.classifier = nn.Linear(slots.d_model, num_classes)
        self.decoder = decoder

    def forward(self, x: Tensor, *, need_weights: bool = False) -> Tensor | SlotScores:
        """Class scores ``(B, num_classes)`` of images ``(B, C, height, width)``, of the slots' ``image_shape``.

        With ``need_weights`` a :class:`SlotScores`, which also has the slots and, with a decoder, their reconstruction.
        """
        encoded = self.slots(x)
        if self.classifier is None:
            scores = self.model(encoded.slots.transpose(1, 2)[:, :, None])
        else:
            related = self.model(encoded.features, encoded.positions)
            # SlotAbstractor gives a vector for each object, OCRA one for the image.
            scores = self.classifier(related.mean(1) if related.dim() == 3 else related)
        if not need_weights:
            return scores
        return SlotScores(scores, encoded, None if self.decoder is None else self.decoder(encoded.slots))
