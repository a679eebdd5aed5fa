"""Configurations of this library's models for transformers.

They hold the arguments of the models' classes, under their names, so that ``config.json`` does; transformers' own names
(``hidden_size``, ``num_hidden_layers``, ...) are understood as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from torch import nn
from transformers import PreTrainedConfig

from ..encoder_models import DualAttnTransformerEncoder, TransformerEncoder
from ..language_models import DualAttnTransformerLM, TransformerLM
from ..language_presets import LanguageModelConfig, language_preset
from ..vision_models import VisionDualAttnTransformer, VisionTransformer
from .remote import WritesLoader

__all__ = ["DualAttnConfig", "DualAttnEncoderConfig", "DualAttnVisionConfig", "ModelConfig"]

Kind = Literal["dat", "transformer"]
Kwargs = dict[str, Any]

# Their names in transformers.
_SIZES = {"hidden_size": "d_model", "num_hidden_layers": "n_layers", "intermediate_size": "dff"}


class ModelConfig(WritesLoader, PreTrainedConfig):
    """What the configurations share; the arguments are those of the class that ``model`` names.

    Arguments of the other class are not read, and not saved.
    """

    classes: ClassVar[Mapping[str, type[nn.Module]]] = {}

    model: Kind = "dat"

    def __post_init__(self, **kwargs: Any) -> None:
        if self.model not in ("dat", "transformer"):
            raise ValueError(f"model: expected 'dat' or 'transformer', got {self.model!r}")
        super().__post_init__(**kwargs)
        if self.model == "dat" and self.classes:
            self._fill_in()

    def _fill_in(self) -> None:
        """Arguments of symbols that were left out."""
        width = getattr(self, "d_model")  # noqa: B009 (the attributes are those of subclasses)
        retrieval: str = getattr(self, "symbol_retrieval")  # noqa: B009
        relative = retrieval.startswith("position_relative")
        if getattr(self, "ra_kwargs") is None and relative:  # noqa: B009
            self.ra_kwargs = {"use_relative_positional_symbols": True}
        if getattr(self, "symbol_retrieval_kwargs") is None:  # noqa: B009
            if relative:
                self.symbol_retrieval_kwargs = {"symbol_dim": width, "max_rel_pos": 64}
            elif retrieval == "symbolic_attention":
                symbols = {"d_model": width, "n_heads": 8, "n_symbols": 1024, "trainable_symbols": False}
                self.symbol_retrieval_kwargs = symbols

    @property
    def num_attention_heads(self) -> int:
        """Heads of a layer, of both kinds."""
        given = self.arguments()
        return given["n_heads"] if self.model == "transformer" else given["n_heads_sa"] + given["n_heads_ra"]

    def arguments(self) -> dict[str, Any]:
        """The arguments of the model's class."""
        return {name: getattr(self, name) for name in self._names(self.model)}

    def build(self) -> nn.Module:
        """The model of this library, with freshly drawn weights.

        Raises:
            TypeError, ValueError: if an argument does not suit its class.
        """
        return self.classes[self.model](**self.arguments())

    def to_dict(self) -> dict[str, Any]:
        """As transformers has it, without arguments of the other class."""
        output = super().to_dict()
        used = set(self._names(self.model))
        for kind in self.classes:
            for name in set(self._names(kind)) - used:
                output.pop(name, None)
        return output

    @classmethod
    def _names(cls, kind: str) -> list[str]:
        own = cls.__dataclass_fields__.keys() - PreTrainedConfig.__dataclass_fields__.keys()  # that has a `dtype`, too
        return [name for name in inspect.signature(cls.classes[kind]).parameters if name in own]


class DualAttnConfig(ModelConfig):
    """Of a causal language model, see :mod:`dual_attention.language_models`.

    The defaults are the sizes of the paper's models of about 350 million parameters.

    Args:
        model: ``"dat"``, a :class:`~dual_attention.language_models.DualAttnTransformerLM`, or ``"transformer"``, a
            :class:`~dual_attention.language_models.TransformerLM`; the arguments are those of the class.
        symbol_retrieval_kwargs: by default, of symbolic attention, 1,024 frozen symbols and 8 heads, as in the paper.
        use_cache: return a cache where it can be of use: without gradients.
        skip_logits_in_training: return no logits when labels are given in training mode; the loss is then computed
            without holding all of them, which saves memory with large vocabularies.

    Raises:
        TypeError, ValueError: if an argument has a wrong type or is missing.
    """

    model_type = "dual_attn"
    classes: ClassVar[Mapping[str, type[nn.Module]]] = {"dat": DualAttnTransformerLM, "transformer": TransformerLM}
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012 (transformers adds it to a list)
    attribute_map: ClassVar[dict[str, str]] = {
        **_SIZES,
        "max_position_embeddings": "max_block_size",
        "tie_word_embeddings": "tie_weights",
    }

    vocab_size: int = 50304
    d_model: int = 1024
    n_layers: int = 24
    n_heads: int | None = 16
    n_heads_sa: int | None = 8
    n_heads_ra: int | None = 8
    symbol_retrieval_kwargs: Kwargs | None = None
    dff: int | None = None
    dropout_rate: float = 0.0
    activation: str = "gelu"
    norm_first: bool = True
    max_block_size: int = 1024
    norm_type: str = "layernorm"
    sa_kwargs: Kwargs | None = None
    ra_kwargs: Kwargs | None = None
    ra_type: str = "relational_attention"
    share_attn_params: bool = False
    symbol_retrieval: str = "symbolic_attention"
    symbol_retriever_config: Kwargs | None = None
    pos_enc_type: str = "RoPE"
    bias: bool = False
    use_flash_attention: bool = True
    block_kwargs: Kwargs | None = None
    ff_bias: bool | None = True
    update_symbols_each_layer: bool = True
    tie_weights: bool = True
    final_norm: bool = True
    output_bias: bool = False
    rope_theta: float = 10000.0
    use_cache: bool = True
    skip_logits_in_training: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.language_config()

    def language_config(self) -> LanguageModelConfig:
        """The same as a configuration of this library."""
        return LanguageModelConfig(model=self.model, **self.arguments())

    @classmethod
    def from_language_config(cls, config: LanguageModelConfig | str, **more: Any) -> DualAttnConfig:
        """From a configuration of this library, or the name of one of
        :data:`~dual_attention.language_presets.LANGUAGE_PRESETS`.

        Args:
            more: further arguments, as of transformers' configurations.
        """
        if isinstance(config, str):
            config = language_preset(config)
        return cls(**config.to_dict(), **more)


class DualAttnEncoderConfig(ModelConfig):
    """Of a bidirectional encoder and its heads, see :mod:`dual_attention.encoder_models`.

    The defaults are the sizes of BERT base.

    Args:
        model: ``"dat"``, a :class:`~dual_attention.encoder_models.DualAttnTransformerEncoder`, or ``"transformer"``, a
            :class:`~dual_attention.encoder_models.TransformerEncoder`; the arguments are those of the class.
        symbol_retrieval_kwargs: by default, of symbolic attention, 1,024 frozen symbols and 8 heads.
        tie_weights: one matrix for the token embedding and the output layer of masked language modelling.
        head_activation: in the head of masked language modelling.
        classifier_pool: classify the first real token (``"cls"``) or the mean of the real tokens (``"mean"``).
        classifier_dropout: rate on what is classified; by default ``dropout_rate``.
    """

    model_type = "dual_attn_encoder"
    classes: ClassVar[Mapping[str, type[nn.Module]]] = {
        "dat": DualAttnTransformerEncoder,
        "transformer": TransformerEncoder,
    }
    attribute_map: ClassVar[dict[str, str]] = {
        **_SIZES,
        "max_position_embeddings": "max_block_size",
        "tie_word_embeddings": "tie_weights",
        "type_vocab_size": "n_token_types",
    }

    vocab_size: int = 30522
    d_model: int = 768
    n_layers: int = 12
    n_heads: int | None = 12
    n_heads_sa: int | None = 6
    n_heads_ra: int | None = 6
    symbol_retrieval_kwargs: Kwargs | None = None
    dff: int | None = None
    dropout_rate: float = 0.1
    activation: str = "gelu"
    norm_first: bool = True
    max_block_size: int = 512
    norm_type: str = "layernorm"
    attn_kwargs: Kwargs | None = None
    sa_kwargs: Kwargs | None = None
    ra_kwargs: Kwargs | None = None
    ra_type: str = "relational_attention"
    share_attn_params: bool = False
    symbol_retrieval: str = "symbolic_attention"
    pos_enc_type: str = "pos_emb"
    bias: bool = True
    shared_symbol_retriever: bool = True
    update_symbols_each_layer: bool = True
    n_token_types: int = 2
    embedding_norm: bool = True
    final_norm: bool | None = None
    rope_theta: float = 10000.0
    tie_weights: bool = True
    head_activation: str = "gelu"
    classifier_pool: str = "cls"
    classifier_dropout: float | None = None


class DualAttnVisionConfig(ModelConfig):
    """Of an image classifier, see :mod:`dual_attention.vision_models`.

    The defaults are the sizes of the paper's models of CIFAR images. ``num_labels`` is the number of classes.

    Args:
        model: ``"dat"``, a :class:`~dual_attention.vision_models.VisionDualAttnTransformer`, or ``"transformer"``, a
            :class:`~dual_attention.vision_models.VisionTransformer`; the arguments are those of the class.
        image_shape: (channels, width, height).
        patch_size: (width, height) of a patch.
        symbol_retrieval_kwargs: by default, of position-relative symbols, those of 64 positions to either side, and of
            symbolic attention, 1,024 frozen symbols and 8 heads.
    """

    model_type = "dual_attn_vision"
    classes: ClassVar[Mapping[str, type[nn.Module]]] = {
        "dat": VisionDualAttnTransformer,
        "transformer": VisionTransformer,
    }
    attribute_map: ClassVar[dict[str, str]] = dict(_SIZES)

    image_shape: list[int] | tuple[int, ...] = (3, 32, 32)
    patch_size: list[int] | tuple[int, ...] = (4, 4)
    d_model: int = 384
    n_layers: int = 8
    n_heads: int | None = 12
    n_heads_sa: int | None = 6
    n_heads_ra: int | None = 6
    dff: int | None = 384
    dropout_rate: float = 0.0
    activation: str = "gelu"
    norm_first: bool = True
    symbol_retrieval: str = "position_relative"
    symbol_retrieval_kwargs: Kwargs | None = None
    ra_type: str = "relational_attention"
    ra_kwargs: Kwargs | None = None
    sa_kwargs: Kwargs | None = None
    norm_type: str = "layernorm"
    bias: bool = True
    pool: str = "mean"
    final_norm: bool = True
    pos_enc: str = "learned"
    update_symbols_each_layer: bool = True

    def arguments(self) -> dict[str, Any]:
        """The arguments of the model's class."""
        given = super().arguments()
        sizes = {name: tuple(given[name]) for name in ("image_shape", "patch_size")}
        return {**given, **sizes, "num_classes": self.num_labels}

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images."""
        _, width, height = self.image_shape
        return height, width

    @property
    def num_channels(self) -> int:
        """Channels of the images."""
        return self.image_shape[0]
