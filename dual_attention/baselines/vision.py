"""The relational architectures as classifiers of images, whose patches are the objects.

As in Figure 7 of arXiv 2405.16727, patches are embedded as in the vision models, without class token and positions.

Shapes: B batch, C channels, height and width of the image in pixels, N patches, d width of the objects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .._layers.calls import TypedModule
from .._layers.inputs import check_choice, check_not_negative, check_positive
from .._layers.options import arguments_of
from .._models.vision import check_images, checked_sizes, patch_embedding, patch_grid
from ..functional.activations import Activation
from .abstractor import Abstractor, AbstractorSymbols
from .corelnet import CoRelNet
from .esbn import ESBN
from .predinet import PrediNet


class ObjectClassifier(TypedModule, ABC):
    """Base of the classifiers: patches are objects, which a relational module summarises for ``classifier``."""

    classifier: nn.Module

    def __init__(
        self, image_shape: tuple[int, int, int], patch_size: tuple[int, int], d_model: int, num_classes: int
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model, num_classes=num_classes)
        self.image_channels, self.image_width, self.image_height = checked_sizes("image_shape", image_shape, 3)
        self.patch_width, self.patch_height = checked_sizes("patch_size", patch_size, 2)
        self.d_model = d_model
        self.grid_size = patch_grid(self.image_height, self.image_width, self.patch_height, self.patch_width)
        self.n_objects = self.grid_size[0] * self.grid_size[1]
        self.patch_embedding = patch_embedding(self.patch_height, self.patch_width, self.image_channels, d_model)

    def objects(self, images: Tensor) -> Tensor:
        """Patches of the images, row by row, as vectors ``(B, N, d)``."""
        check_images(images, self.image_channels, self.image_width, self.image_height, self.patch_embedding[1])
        return self.patch_embedding(images)

    @abstractmethod
    def summary(self, objects: Tensor) -> Tensor:
        """Features ``(B, features)`` of the objects ``(B, N, d)`` from the relational module."""

    def forward(self, x: Tensor) -> Tensor:
        """Class scores ``(B, num_classes)`` of images ``(B, C, height, width)``, of the model's ``image_shape``."""
        return self.classifier(self.summary(self.objects(x)))


def two_layers(features: int, hidden: int, num_classes: int) -> nn.Sequential:
    """Classifier with one hidden layer and ReLU."""
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, num_classes))


class VisionAbstractor(ObjectClassifier):
    """An :class:`~dual_attention.baselines.Abstractor` over patches; the mean of its output is classified.

    Args:
        image_shape: (channels, width, height).
        patch_size: (width, height) of a patch, which must tile the image.
        num_classes: number of classes; the classifier has one hidden layer of width d.
        symbol_retrieval: as :class:`~dual_attention.baselines.Abstractor`; by default one symbol for each patch.
        symbol_retrieval_kwargs: may be None for positional symbols.
        others: as :class:`~dual_attention.baselines.Abstractor`.

    >>> model = VisionAbstractor((1, 16, 16), (8, 8), 10, 32, 1, 2, 64, 0.0, "relu", True)
    >>> model(torch.randn(2, 1, 16, 16)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        patch_size: tuple[int, int],
        num_classes: int,
        d_model: int,
        n_layers: int,
        n_heads: int,
        dff: int | None,
        dropout_rate: float,
        activation: str,
        norm_first: bool,
        symbol_retrieval: AbstractorSymbols = "positional_symbols",
        symbol_retrieval_kwargs: Mapping[str, Any] | None = None,
        **abstractor_kwargs: Any,
    ) -> None:
        super().__init__(image_shape, patch_size, d_model, num_classes)
        if symbol_retrieval_kwargs is None:
            if symbol_retrieval != "positional_symbols":
                raise ValueError(f"symbol_retrieval_kwargs: needed for symbol_retrieval={symbol_retrieval!r}")
            symbol_retrieval_kwargs = {"symbol_dim": d_model, "max_length": self.n_objects}
        self.abstractor = Abstractor(**arguments_of(Abstractor, locals()), **abstractor_kwargs)
        self.classifier = two_layers(d_model, d_model, num_classes)

    def summary(self, objects: Tensor) -> Tensor:
        """The mean of the abstract symbols, ``(B, d)``."""
        return self.abstractor(objects).mean(dim=1)


class VisionPrediNet(ObjectClassifier):
    """A :class:`~dual_attention.baselines.PrediNet` over patches.

    Args:
        image_shape, patch_size, num_classes: as :class:`VisionAbstractor`.
        positions: ``"index"``: the number of the patch, as in Figure 7 of arXiv 2405.16727; ``"grid"``: row and column,
            each from -1 to 1, since Shanahan et al. 2020 append two coordinates; ``"none"``.
        d_model, n_heads, n_relations, key_dim: as :class:`~dual_attention.baselines.PrediNet`.

    >>> model = VisionPrediNet((1, 16, 16), (8, 8), num_classes=10, d_model=32, n_heads=2, n_relations=8)
    >>> model(torch.randn(2, 1, 16, 16)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        patch_size: tuple[int, int],
        num_classes: int,
        d_model: int,
        n_heads: int,
        n_relations: int,
        key_dim: int | None = None,
        *,
        positions: Literal["index", "grid", "none"] = "index",
    ) -> None:
        super().__init__(image_shape, patch_size, d_model, num_classes)
        widths = {"index": 1, "grid": 2, "none": 0}
        check_choice("positions", positions, widths)
        self.positions = positions
        own = arguments_of(PrediNet, locals())
        self.predinet = PrediNet(n_objects=self.n_objects, position_dim=widths[positions], **own)
        self.classifier = two_layers(self.predinet.out_features, d_model, num_classes)

    def summary(self, objects: Tensor) -> Tensor:
        """Differences and positions of the attended pairs, ``(B, predinet.out_features)``."""
        if self.positions != "grid":
            return self.predinet(objects)
        sides = [torch.linspace(-1, 1, n, device=objects.device, dtype=objects.dtype) for n in self.grid_size]
        return self.predinet(objects, positions=torch.cartesian_prod(*sides))


class _PooledReadout(TypedModule):
    """A network on the relations of each object and its position, and the mean of its outputs over objects."""

    def __init__(self, *, n_objects: int, features: int, d_model: int, num_classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(features, d_model)
        self.positions = nn.Parameter(torch.zeros(n_objects, d_model))
        self.second = nn.Linear(d_model, d_model)
        self.last = nn.Linear(d_model, num_classes)

    def forward(self, rows: Tensor) -> Tensor:
        """``(B, N, features) -> (B, num_classes)``."""
        hidden = torch.relu(self.first(rows) + self.positions)
        return self.last(torch.relu(self.second(hidden)).mean(1))


class VisionCoRelNet(ObjectClassifier):
    """A :class:`~dual_attention.baselines.CoRelNet` over patches.

    Args:
        image_shape, patch_size: as :class:`VisionAbstractor`.
        num_classes: number of classes, C; the classifier maps N x N to d, ReLU, d to d, d to C.
        d_model, dff, activation, symmetric_rels, context_norm: as :class:`~dual_attention.baselines.CoRelNet`.
        readout: ``"flat"``, that classifier; or ``"pooled"``: the relations of one object, and its position, to d,
            ReLU, d, ReLU, then the mean over objects, to C.
        object_features: k; the classifier also sees k features of each object, which a linear map makes of it. With 0
            it sees relations only, as CoRelNet is defined.

    >>> VisionCoRelNet((1, 16, 16), (8, 8), num_classes=10, d_model=32)(torch.randn(2, 1, 16, 16)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        patch_size: tuple[int, int],
        num_classes: int,
        d_model: int,
        dff: int | None = None,
        activation: str | Activation = "softmax",
        *,
        symmetric_rels: bool = True,
        context_norm: bool = False,
        readout: Literal["flat", "pooled"] = "flat",
        object_features: int = 0,
    ) -> None:
        super().__init__(image_shape, patch_size, d_model, num_classes)
        check_not_negative(object_features=object_features)
        check_choice("readout", readout, ("flat", "pooled"))
        self.corelnet = CoRelNet(n_objects=self.n_objects, **arguments_of(CoRelNet, locals()))
        self.readout = readout
        width = self.n_objects + object_features
        if readout == "pooled":
            self.classifier = _PooledReadout(
                n_objects=self.n_objects, features=width, d_model=d_model, num_classes=num_classes
            )
        else:  # as in the published runs, without an activation between the last two layers
            self.classifier = nn.Sequential(
                nn.Linear(self.n_objects * width, d_model),
                nn.ReLU(),
                nn.Linear(d_model, d_model),
                nn.Linear(d_model, num_classes),
            )
        self.describe = nn.Linear(d_model, object_features, bias=False) if object_features else None

    def summary(self, objects: Tensor) -> Tensor:
        """Relations of each object, and its features, if there are any: ``(B, N, N + k)``, flat for a flat read-out."""
        rows = self.corelnet(objects).unflatten(1, (self.n_objects, self.n_objects))
        if self.describe is not None:
            rows = torch.cat((rows, self.describe(objects)), -1)
        return rows if self.readout == "pooled" else rows.flatten(1)


class VisionESBN(ObjectClassifier):
    """An :class:`~dual_attention.baselines.ESBN` that reads the patches row by row.

    Args:
        image_shape, patch_size: as :class:`VisionAbstractor`.
        num_classes: number of classes; the classifier is one linear layer.
        d_model, key_dim, hidden_dim, context_norm, scale: as :class:`~dual_attention.baselines.ESBN`.

    >>> VisionESBN((1, 16, 16), (8, 8), num_classes=10, d_model=32)(torch.randn(2, 1, 16, 16)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        patch_size: tuple[int, int],
        num_classes: int,
        d_model: int,
        key_dim: int = 256,
        hidden_dim: int = 512,
        *,
        context_norm: bool = True,
        scale: float | None = 1.0,
    ) -> None:
        super().__init__(image_shape, patch_size, d_model, num_classes)
        self.esbn = ESBN(d_model, key_dim, hidden_dim, context_norm=context_norm, scale=scale)
        self.classifier = nn.Linear(hidden_dim, num_classes)
        nn.init.xavier_normal_(self.classifier.weight)
        nn.init.zeros_(self.classifier.bias)

    def summary(self, objects: Tensor) -> Tensor:
        """The state of the controller after the last patch, ``(B, hidden_dim)``."""
        return self.esbn(objects)
