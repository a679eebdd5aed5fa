"""Configurations of this library's models for transformers.

They hold the arguments of the models' classes, under their names, so that ``config.json`` does; transformers' own names
(``hidden_size``, ``num_hidden_layers``, ...) are understood as well.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_type_hints

from torch import nn
from transformers import PreTrainedConfig
from transformers.backbone_utils import BackboneConfigMixin

from .._base.files import read_json_object
from .._layers.options import FieldsConfig, as_dicts, parameters_of
from ..checkpoints.files import CONFIG, folder_of, warn_of_misspelt
from ..checkpoints.language import with_kind
from ..configs import DecoderLanguageConfig, EncoderConfig, VisionConfig
from ..encoder_models import DualAttnTransformerEncoder, TransformerEncoder
from ..language_models import DualAttnTransformerLM, TransformerLM
from ..language_presets import LanguageModelConfig, language_preset
from ..vision_models import VisionDualAttnTransformer, VisionTransformer
from .names import names_elsewhere, set_field, take_over
from .remote import WritesLoader, auto_map

Kind = Literal["dat", "transformer"]

# Their names in transformers.
_SIZES = {"hidden_size": "d_model", "num_hidden_layers": "n_layers", "intermediate_size": "dff"}


class ModelConfig(WritesLoader, PreTrainedConfig):
    """Base of the configurations; the arguments are those of the class that ``model`` names: ``"dat"``, with dual
    attention, or ``"transformer"``, without.

    Arguments of the other class are not read, and not saved. A subclass names the configuration of this library whose
    fields it has, as far as its classes take them, and its own defaults of them.
    """

    classes: ClassVar[Mapping[str, type[nn.Module]]] = {}
    auto_classes: ClassVar[Mapping[str, str]] = {}
    """Auto class of transformers -> name in this room of what it makes of such a configuration."""

    model: Kind = "dat"

    def __init_subclass__(
        cls, fields_of: type[FieldsConfig] | None = None, defaults: Mapping[str, Any] | None = None, **arguments: Any
    ) -> None:
        if fields_of is not None:
            _add_fields(cls, fields_of, defaults or {})
        super().__init_subclass__(**arguments)

    def __post_init__(self, **kwargs: Any) -> None:
        if self.model not in ("dat", "transformer"):
            raise ValueError(f"model: expected 'dat' or 'transformer', got {self.model!r}")
        heads = kwargs.pop("num_attention_heads", None)  # to_dict tells it
        names = names_elsewhere(type(self))
        theirs = {name: kwargs.pop(name) for name in list(kwargs) if name in names}
        for name, ours in self.attribute_map.items():
            if name in kwargs:
                set_field(self, name, ours, kwargs.pop(name))
        warn_of_misspelt(kwargs, {name for kind in self.classes for name in self._names(kind)})
        super().__post_init__(**kwargs)
        vars(self).update(as_dicts(vars(self)))  # JSON knows no other mapping
        self.auto_map = {**auto_map(self.auto_classes), **(getattr(self, "auto_map", None) or {})}
        if self.model == "dat" and self.classes:
            self._fill_in()
        take_over(self, theirs)
        if heads is not None and self.classes and heads != self.num_attention_heads:
            raise ValueError(
                f"num_attention_heads: follows from n_heads, or n_heads_sa and n_heads_ra, expected "
                f"{self.num_attention_heads}, got {heads}"
            )

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A field of the subclass."""

    def _fill_in(self) -> None:
        """Set arguments of symbols that were left out."""
        relative = self.symbol_retrieval.startswith("position_relative")
        if self.ra_kwargs is None and relative:
            self.ra_kwargs = {"use_relative_positional_symbols": True}
        if self.symbol_retrieval_kwargs is None:
            if relative:
                self.symbol_retrieval_kwargs = {"symbol_dim": self.d_model, "max_rel_pos": 64}
            elif self.symbol_retrieval == "symbolic_attention":
                symbols = {"d_model": self.d_model, "n_heads": 8, "n_symbols": 1024, "trainable_symbols": False}
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
        """The model of this library, with freshly drawn weights; errors are those of its class."""
        return self.classes[self.model](**self.arguments())

    def to_dict(self) -> dict[str, Any]:
        """As transformers has it, without arguments of the other class.

        ``num_attention_heads`` and ``tie_word_embeddings`` are told, too: others, such as PEFT, know only these names.
        """
        output = super().to_dict()
        if self.classes:
            output["num_attention_heads"] = self.num_attention_heads
        if "tie_weights" in output:
            output["tie_word_embeddings"] = output["tie_weights"]
        used = set(self._names(self.model))
        for kind in self.classes:
            for name in set(self._names(kind)) - used:
                output.pop(name, None)
        return output

    @classmethod
    def get_config_dict(cls, pretrained_model_name_or_path: Any, **kwargs: Any) -> Any:
        """As the method of transformers; a ``ValueError`` names a ``config.json`` that is of another kind of model."""
        source = _source(pretrained_model_name_or_path, **kwargs)
        if isinstance(source, Path) and source.is_file():
            read_json_object(source)
        saved, more = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        if "model_type" in saved:  # folders of the hub's format have none
            cls.check_type(saved, source)
        return saved, more

    @classmethod
    def check_type(cls, saved: Mapping[str, Any], source: Any) -> None:
        """Raise ``ValueError`` unless what a ``config.json`` holds is of such a model, for transformers."""
        if saved.get("model_type") != cls.model_type:
            raise ValueError(
                f"{source}: expected model_type={cls.model_type!r}, got {saved.get('model_type')!r}; "
                "dual_attention.hf.load_model reads all formats of this library"
            )

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """As the method of transformers; a ``ValueError`` names the file with a value that no model takes."""
        try:
            return super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        except (TypeError, ValueError) as error:
            source = str(_source(pretrained_model_name_or_path, **kwargs))
            if source in str(error):
                raise
            raise ValueError(f"{source}: {error}") from error

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """As the method of transformers; what a file has by names of other models, and never used, stays without use,
        which a warning says.
        """
        names = names_elsewhere(cls)
        overruled = {ours for name, ours in cls.attribute_map.items() if name in config_dict}
        known = {name: value for name, value in config_dict.items() if name not in names | overruled}
        saved = {name: value for name, value in config_dict.items() if name in names}
        asked = {name: kwargs.pop(name) for name in list(kwargs) if name in names}
        made = super().from_dict(known, **kwargs)
        config = made[0] if isinstance(made, tuple) else made
        for name, value in saved.items():
            warnings.warn(f"{name}: not used, since it is no argument of this model, got {value!r}", stacklevel=2)
        take_over(config, asked)
        return made

    @classmethod
    def _names(cls, kind: str) -> list[str]:
        own = cls.__dataclass_fields__.keys() - PreTrainedConfig.__dataclass_fields__.keys()  # that has a `dtype`, too
        return [name for name in parameters_of(cls.classes[kind]) if name in own]


def _source(name_or_path: Any, /, **kwargs: Any) -> Any:
    """The file of a configuration in a folder; the name on the hub as it is."""
    folder = folder_of(name_or_path, **kwargs)
    return name_or_path if folder is None else folder / CONFIG


def _add_fields(cls: type[ModelConfig], source: type[FieldsConfig], defaults: Mapping[str, Any]) -> None:
    """Declare fields of ``source`` with a default that one of the classes takes, before ``cls`` is a dataclass."""
    taken = {name for kind in cls.classes.values() for name in parameters_of(kind)}
    found = {about.name: defaults.get(about.name, about.default) for about in fields(source) if about.name in taken}
    found = {name: default for name, default in found.items() if default is not MISSING}
    hints = get_type_hints(source)
    cls.__annotations__ = {**{name: hints[name] for name in found}, **inspect.get_annotations(cls)}
    for name, default in found.items():
        setattr(cls, name, default)


class DualAttnConfig(
    ModelConfig,
    fields_of=DecoderLanguageConfig,
    defaults={
        "vocab_size": 50304,
        "d_model": 1024,
        "n_layers": 24,
        "n_heads": 16,
        "n_heads_sa": 8,
        "n_heads_ra": 8,
        "pos_enc_type": "RoPE",
        "bias": False,
    },
):
    """Configuration of a causal language model, see :mod:`dual_attention.language_models`.

    The defaults are the sizes of the paper's models of about 350 million parameters.

    Args:
        model: ``"dat"``, a :class:`~dual_attention.language_models.DualAttnTransformerLM`, or ``"transformer"``, a
            :class:`~dual_attention.language_models.TransformerLM`; the arguments are those of the class.
        symbol_retrieval_kwargs: by default, of symbolic attention, 1,024 frozen symbols and 8 heads, as in the paper.
        use_cache: return a cache where it can be of use: without gradients.
        skip_logits_in_training: return no logits when labels are given in training mode; the loss is then computed
            without holding all of them, which saves memory with large vocabularies.
        bos_token_id, eos_token_id, pad_token_id: tokens that begin and end a text, and that fill a row.

    Raises:
        TypeError, ValueError: if an argument has a wrong type or is missing.

    >>> config = DualAttnConfig(vocab_size=50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> config.model_type, config.hidden_size, config.num_hidden_layers
    ('dual_attn', 32, 1)
    """

    model_type = "dual_attn"
    classes: ClassVar[Mapping[str, type[nn.Module]]] = {"dat": DualAttnTransformerLM, "transformer": TransformerLM}
    auto_classes: ClassVar[Mapping[str, str]] = {
        "AutoConfig": "DualAttnConfig",
        "AutoModel": "DualAttnModel",
        "AutoModelForCausalLM": "DualAttnForCausalLM",
        "AutoModelForSequenceClassification": "DualAttnLMForSequenceClassification",
    }
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["cache", "past_key_values"]
    attribute_map: ClassVar[dict[str, str]] = {
        **_SIZES,
        "max_position_embeddings": "max_block_size",
        "tie_word_embeddings": "tie_weights",
    }

    use_cache: bool = True
    skip_logits_in_training: bool = False
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    if TYPE_CHECKING:

        def __init__(self, **arguments: Any) -> None: ...

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.language_config()

    @classmethod
    def get_config_dict(cls, pretrained_model_name_or_path: Any, **kwargs: Any) -> Any:
        """As the method of the base; a folder of the hub's format says by its arguments which model it is of."""
        saved, more = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        return (saved if "model_type" in saved else with_kind(saved)), more

    def language_config(self) -> LanguageModelConfig:
        """The same as a configuration of this library."""
        return LanguageModelConfig(model=self.model, **self.arguments())

    @classmethod
    def from_language_config(cls, config: LanguageModelConfig | str, **more: Any) -> DualAttnConfig:
        """From a configuration of this library, or the name of one of
        :data:`~dual_attention.language_presets.LANGUAGE_PRESETS`; ``more`` are as of transformers' configurations.
        """
        if isinstance(config, str):
            config = language_preset(config)
        return cls(**config.to_dict(), **more)


class DualAttnEncoderConfig(
    ModelConfig,
    fields_of=EncoderConfig,
    defaults={
        "vocab_size": 30522,
        "d_model": 768,
        "n_layers": 12,
        "n_heads": 12,
        "n_heads_sa": 6,
        "n_heads_ra": 6,
        "dropout_rate": 0.1,
        "max_block_size": 512,
        "n_token_types": 2,
    },
):
    """Configuration of a bidirectional encoder and its heads, see :mod:`dual_attention.encoder_models`.

    The defaults are the sizes of BERT base.

    Args:
        model: ``"dat"``, a :class:`~dual_attention.encoder_models.DualAttnTransformerEncoder`, or ``"transformer"``, a
            :class:`~dual_attention.encoder_models.TransformerEncoder`; the arguments are those of the class.
        symbol_retrieval_kwargs: by default, of symbolic attention, 1,024 frozen symbols and 8 heads.
        tie_weights: one matrix for the token embedding and the output layer of masked language modelling.
        head_activation: in the head of masked language modelling.
        classifier_pool: classify the first real token (``"cls"``) or the mean of the real tokens (``"mean"``).
        classifier_dropout: rate on what is classified; by default ``dropout_rate``.
        pad_token_id: token that fills a row.

    >>> config = DualAttnEncoderConfig(vocab_size=50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1)
    >>> config.model_type, config.hidden_size
    ('dual_attn_encoder', 32)
    """

    model_type = "dual_attn_encoder"
    classes: ClassVar[Mapping[str, type[nn.Module]]] = {
        "dat": DualAttnTransformerEncoder,
        "transformer": TransformerEncoder,
    }
    auto_classes: ClassVar[Mapping[str, str]] = {
        "AutoConfig": "DualAttnEncoderConfig",
        "AutoModel": "DualAttnEncoderModel",
        "AutoModelForMaskedLM": "DualAttnForMaskedLM",
        "AutoModelForSequenceClassification": "DualAttnForSequenceClassification",
    }
    attribute_map: ClassVar[dict[str, str]] = {
        **_SIZES,
        "max_position_embeddings": "max_block_size",
        "tie_word_embeddings": "tie_weights",
        "type_vocab_size": "n_token_types",
    }

    tie_weights: bool = True
    head_activation: str = "gelu"
    classifier_pool: str = "cls"
    classifier_dropout: float | None = None
    pad_token_id: int | None = None

    if TYPE_CHECKING:

        def __init__(self, **arguments: Any) -> None: ...


class DualAttnVisionConfig(
    BackboneConfigMixin,
    ModelConfig,
    fields_of=VisionConfig,
    defaults={
        "image_shape": (3, 32, 32),
        "patch_size": (4, 4),
        "d_model": 384,
        "n_layers": 8,
        "n_heads": 12,
        "n_heads_sa": 6,
        "n_heads_ra": 6,
        "dff": 384,
        "symbol_retrieval": "position_relative",
        "pool": "mean",
        "final_norm": True,
    },
):
    """Configuration of an image classifier, see :mod:`dual_attention.vision_models`.

    The defaults are the sizes of the paper's models of CIFAR images. ``num_labels`` is the number of classes.

    Args:
        model: ``"dat"``, a :class:`~dual_attention.vision_models.VisionDualAttnTransformer`, or ``"transformer"``, a
            :class:`~dual_attention.vision_models.VisionTransformer`; the arguments are those of the class.
        image_shape: (channels, width, height).
        patch_size: (width, height) of a patch.
        symbol_retrieval_kwargs: by default, of position-relative symbols, those of 64 positions to either side, and of
            symbolic attention, 1,024 frozen symbols and 8 heads.
        out_features, out_indices: names or numbers of the stages that a backbone puts out, see
            :class:`~dual_attention.hf.DualAttnVisionBackbone`.

    >>> sizes = {"d_model": 32, "n_layers": 1, "n_heads_sa": 1, "n_heads_ra": 1}
    >>> config = DualAttnVisionConfig(image_shape=(1, 16, 16), patch_size=(4, 4), **sizes)
    >>> config.model_type, config.hidden_size
    ('dual_attn_vision', 32)
    """

    model_type = "dual_attn_vision"
    classes: ClassVar[Mapping[str, type[nn.Module]]] = {
        "dat": VisionDualAttnTransformer,
        "transformer": VisionTransformer,
    }
    auto_classes: ClassVar[Mapping[str, str]] = {
        "AutoConfig": "DualAttnVisionConfig",
        "AutoModel": "DualAttnVisionModel",
        "AutoBackbone": "DualAttnVisionBackbone",
        "AutoModelForImageClassification": "DualAttnForImageClassification",
    }
    attribute_map: ClassVar[dict[str, str]] = dict(_SIZES)

    _out_features: list[str] | None = None
    _out_indices: list[int] | None = None

    if TYPE_CHECKING:

        def __init__(self, **arguments: Any) -> None: ...

    def __post_init__(self, **kwargs: Any) -> None:
        chosen = {name: kwargs.pop(name, None) for name in ("out_features", "out_indices")}
        super().__post_init__(**kwargs)
        if any(value is not None for value in chosen.values()):
            self.set_output_features_output_indices(**chosen)

    @property
    def stage_names(self) -> list[str]:
        """Stages that a backbone can put out: the input of the first block, and the output of each."""
        return ["stem", *(f"stage{number}" for number in range(1, self.n_layers + 1))]

    def to_dict(self) -> dict[str, Any]:
        """As transformers has it; the stages of a backbone only where some were chosen."""
        output = super().to_dict()
        for name in ("out_features", "out_indices"):
            if output[name] is None:
                del output[name]
        return output

    def arguments(self) -> dict[str, Any]:
        """The arguments of the model's class."""
        given = super().arguments()
        sizes = {name: tuple(given[name]) for name in ("image_shape", "patch_size")}
        return {**given, **sizes, "num_classes": self.num_labels or 1}

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images."""
        _, width, height = self.image_shape
        return height, width

    @property
    def num_channels(self) -> int:
        """Channels of the images."""
        return self.image_shape[0]
