"""Keys of architectures other than DATs, beside those that they share with these."""

from dataclasses import dataclass
from typing import Literal

from ...training.configs import WIDEST, check_integers


@dataclass(frozen=True)
class AbstractorConfig:
    """Keys of an Abstractor, beside those that it shares with DATs."""

    n_heads: int = 4
    """Heads of relational cross-attention and of self-attention among symbols."""
    symbol_self_attn: bool = True
    """Begin each layer with self-attention among symbols."""
    rel_activation: Literal["softmax", "sigmoid", "tanh", "relu", "identity"] = "softmax"
    """Activation of the relations."""
    residual: Literal["symbols", "objects"] = "symbols"
    """Residual stream of relational cross-attention: the symbols, as Abstractors are defined, or the objects, as in the
    published curves, where one normalisation also serves both attention steps."""

    def __post_init__(self) -> None:
        check_integers(self, "model.abstractor", "n_heads", most=WIDEST)


@dataclass(frozen=True)
class PrediNetConfig:
    """Sizes of PrediNet."""

    n_heads: int = 16
    """Heads: pairs of objects that are compared."""
    n_relations: int = 8
    """Relations, the width in which the two objects of a pair are subtracted."""
    key_dim: int | None = None
    """Width of keys and queries; null takes d_model / n_heads."""
    positions: Literal["index", "grid", "none"] = "index"
    """Positions appended to the objects: the number of the patch as in the published curves, its row and column, or
    none."""

    def __post_init__(self) -> None:
        check_integers(self, "model.predinet", "n_heads", "n_relations", "key_dim", most=WIDEST)


@dataclass(frozen=True)
class CoRelNetConfig:
    """Form of CoRelNet."""

    dff: int | None = None
    """Hidden width of the network that embeds each object; null takes 4 d_model."""
    activation: Literal["softmax", "identity", "sigmoid", "tanh", "relu"] = "softmax"
    """Activation of the similarities: softmax as it is defined, identity as in the published curves."""
    symmetric_rels: bool = True
    """Compare objects as they are, otherwise after one projection for each side."""
    context_norm: bool = False
    """Normalise the compared vectors over the objects of an image."""
    readout: Literal["flat", "pooled"] = "flat"
    """Classifier: a network on all relations in their order, as it is defined; or one on the relations of each object
    and its position, whose outputs are averaged over objects, as DATs pool tokens."""
    object_features: int = 0
    """Features of each object that the classifier sees beside its relations; 0 removes objects, as it is defined."""

    def __post_init__(self) -> None:
        check_integers(self, "model.corelnet", "dff", most=WIDEST)
        check_integers(self, "model.corelnet", "object_features", least=0, most=WIDEST)


@dataclass(frozen=True)
class ESBNConfig:
    """Sizes of the emergent symbol binding network; its authors took keys of 256 and a controller of 512."""

    key_dim: int = 64
    """Width of the keys in the memory."""
    hidden_dim: int = 256
    """Width of the controller."""
    context_norm: bool = True
    """Normalise the objects of an image over the image first."""
    scale: float | None = None
    """Factor of the inner products between objects; null takes 1 / sqrt(d_model). Its authors have none, 1.0, with
    which runs stay at chance here: empty cells make the inner products so large that gradients vanish."""

    def __post_init__(self) -> None:
        check_integers(self, "model.esbn", "key_dim", "hidden_dim", most=WIDEST)


BaselineConfig = AbstractorConfig | PrediNetConfig | CoRelNetConfig | ESBNConfig

BASELINE_CONFIGS: dict[str, type[BaselineConfig]] = {
    "abstractor": AbstractorConfig,
    "predinet": PrediNetConfig,
    "corelnet": CoRelNetConfig,
    "esbn": ESBNConfig,
}
"""Groups of keys by the name of the architecture, which is also theirs."""
