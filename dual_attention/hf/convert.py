"""Conversion of language models from one format into another.

==========================  ===================================================================================
this library                a :class:`~dual_attention.language_models.LanguageModel` and its configuration, a
                            :class:`~dual_attention.language_presets.LanguageModelConfig`
the hub's (``"hub"``)       a ``..._HFHub`` model; folders as the published package writes them
transformers'               a :class:`~dual_attention.hf.causal_lm.DualAttnForCausalLM`; folders for its Auto classes
==========================  ===================================================================================

Conversions of models share the parameters. Names in state dicts are the same except for a prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from .._base.extras import require
from ..checkpoints.files import CheckpointFiles
from ..checkpoints.language import LoadedLanguageModel, check_fit, load_language_model
from ..checkpoints.weights import PREFIX, to_language_state_dict
from ..language_models import LanguageModel
from ..language_presets import LanguageModelConfig
from .hub import DualAttnTransformerLM_HFHub, HubLanguageModel, TransformerLM_HFHub

if TYPE_CHECKING:
    from .causal_lm import DualAttnForCausalLM

Format = Literal["hub", "transformers"]

_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def to_transformers_state_dict(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """State dict with the names of :class:`.DualAttnForCausalLM`, from the names of any of the formats.

    >>> config = DualAttnConfig(vocab_size=50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> model = DualAttnForCausalLM(config)
    >>> to_transformers_state_dict(model.model.state_dict()).keys() == model.state_dict().keys()
    True
    """
    return {PREFIX + name: tensor for name, tensor in to_language_state_dict(state_dict).items()}


def to_hub(model: LanguageModel | DualAttnForCausalLM, config: LanguageModelConfig | None = None) -> HubLanguageModel:
    """The same model as one of the hub's, in the same mode; parameters are shared.

    Args:
        config: of a model of this library; others have their own.

    Raises:
        ValueError: if a model of this library comes without its configuration, or with that of another.

    >>> config = LanguageModelConfig(model="transformer", vocab_size=50, d_model=32, n_layers=1, n_heads=2)
    >>> type(to_hub(config.build(), config)).__name__
    'TransformerLM_HFHub'
    """
    owned, config = _parts(model, config)
    kind = {"dat": DualAttnTransformerLM_HFHub, "transformer": TransformerLM_HFHub}[config.model]
    return _with_layers_of(owned, kind(**config.arguments(), device="meta"))


def to_transformers(
    model: LanguageModel | HubLanguageModel, config: LanguageModelConfig | None = None, **more: Any
) -> DualAttnForCausalLM:
    """The same model for transformers, in the same mode; it owns ``model``, whose parameters are shared.

    Args:
        config, errors: as :func:`to_hub`.
        more: further arguments of :class:`~dual_attention.hf.configuration.DualAttnConfig`, such as ``eos_token_id``.

    >>> config = LanguageModelConfig(model="transformer", vocab_size=50, d_model=32, n_layers=1, n_heads=2)
    >>> type(to_transformers(config.build(), config)).__name__
    'DualAttnForCausalLM'
    """
    require("transformers", extra="hf")
    from .causal_lm import DualAttnForCausalLM
    from .configuration import DualAttnConfig

    owned, config = _parts(model, config)
    return DualAttnForCausalLM(DualAttnConfig.from_language_config(config, **more), owned).train(owned.training)


def convert_checkpoint(
    source: str | Path, destination: str | Path, to: Format, *, dtype: torch.dtype | None = None, **download: Any
) -> Path:
    """Write a checkpoint, from a folder or the hub, in either format into a folder.

    Which tokens begin, end and fill a text stays known in transformers' format; that of the hub has no place for it. A
    tokenizer is not copied.

    Args:
        to: ``"hub"``, as the published package has it, or ``"transformers"``.
        dtype: of the parameters; by default torch's default.
        download: as :func:`load_language_model`.

    Returns:
        The folder.

    Raises:
        OSError, TypeError, ValueError: as :func:`load_language_model`.
        ValueError: if ``to`` is not one of the formats.

    >>> TransformerLM_HFHub(50, d_model=32, n_layers=1, n_heads=2, max_block_size=16).save_pretrained("published")
    >>> folder = convert_checkpoint("published", "converted", to="transformers")
    >>> type(DualAttnForCausalLM.from_pretrained(folder).model).__name__
    'TransformerLM'
    """
    if to not in ("hub", "transformers"):
        raise ValueError(f"to: expected 'hub' or 'transformers', got {to!r}")
    model, config = load_language_model(source, dtype=dtype, **download)
    converted: Any
    if to == "hub":
        converted = to_hub(model, config)
    else:
        saved = CheckpointFiles(source, **download).config()
        converted = to_transformers(model, config, **{name: saved[name] for name in _TOKENS if name in saved})
    converted.save_pretrained(destination)
    return Path(destination)


def _parts(model: Any, config: LanguageModelConfig | None) -> LoadedLanguageModel:
    """A model as one of this library, and its configuration."""
    if isinstance(model, HubLanguageModel):
        if config is not None:
            raise ValueError("config: is known for a model of the hub; expected none")
        config = model.language_config
        return LoadedLanguageModel(_with_layers_of(model, config.build("meta")), config)
    if isinstance(model, LanguageModel):
        if config is None:
            raise ValueError(f"config: expected the LanguageModelConfig of the {type(model).__name__}, got None")
        check_fit("config: is", model, config)
        return LoadedLanguageModel(model, config)
    owned = getattr(model, "model", None)
    if not isinstance(owned, LanguageModel):
        raise TypeError(f"model: expected a language model of this library, got {type(model).__name__}")
    return LoadedLanguageModel(owned, model.config.language_config())


def _with_layers_of(model: Any, empty: Any) -> Any:
    """``empty``, with the layers and tables of ``model``."""
    empty.layers, empty.rope = model.layers, model.rope
    empty.gradient_checkpointing = model.gradient_checkpointing
    return empty.train(model.training)
