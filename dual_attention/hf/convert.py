"""Language models from one format into another.

==========================  ===================================================================================
this library                a :class:`~dual_attention.language_models.LanguageModel` and its configuration, a
                            :class:`~dual_attention.language_presets.LanguageModelConfig`
the hub's (``"hub"``)       a ``..._HFHub`` model; folders as the published package writes them
transformers'               a :class:`~dual_attention.hf.causal_lm.DualAttnForCausalLM`; folders for its Auto classes
==========================  ===================================================================================

Conversions of models share the parameters. Names in state dicts are the same but for a prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from .._extras import require
from ..language_models import DualAttnTransformerLM, LanguageModel, TransformerLM
from ..language_presets import LanguageModelConfig
from .files import CheckpointFiles
from .hub import DualAttnTransformerLM_HFHub, HubLanguageModel, TransformerLM_HFHub, filled
from .weights import Weights, clean_name, load_weights

if TYPE_CHECKING:
    from .causal_lm import DualAttnForCausalLM

__all__ = [
    "LoadedLanguageModel",
    "convert_checkpoint",
    "load_language_model",
    "to_hub",
    "to_language_state_dict",
    "to_transformers",
    "to_transformers_state_dict",
]

Format = Literal["hub", "transformers"]

_PREFIX = "model."  # of our names in DualAttnForCausalLM
_MODEL_TYPE = "dual_attn"  # that of DualAttnConfig, which only transformers can import


class LoadedLanguageModel(NamedTuple):
    """A language model and the configuration that builds it."""

    model: LanguageModel
    config: LanguageModelConfig


def to_language_state_dict(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names as this library's models have them, from those of any of the formats."""
    cleaned = {clean_name(name): tensor for name, tensor in state_dict.items()}
    return {name.removeprefix(_PREFIX): tensor for name, tensor in cleaned.items()}


def to_transformers_state_dict(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names as :class:`~dual_attention.hf.causal_lm.DualAttnForCausalLM` has them, from those of any of the formats."""
    return {_PREFIX + name: tensor for name, tensor in to_language_state_dict(state_dict).items()}


def to_hub(model: LanguageModel | DualAttnForCausalLM, config: LanguageModelConfig | None = None) -> HubLanguageModel:
    """The same model as one of the hub's, in the mode it is in; parameters are shared.

    Args:
        config: of a model of this library; others know it.

    Raises:
        ValueError: if a model of this library comes without its configuration, or with that of another.
    """
    return _hub_model(*_parts(model, config))


def to_transformers(
    model: LanguageModel | HubLanguageModel, config: LanguageModelConfig | None = None, **more: Any
) -> DualAttnForCausalLM:
    """The same model for transformers, in the mode it is in; it owns ``model``, whose parameters are shared.

    Args:
        config: of a model of this library; one of the hub's knows it.
        more: further arguments of :class:`~dual_attention.hf.configuration.DualAttnConfig`, such as ``eos_token_id``.

    Raises:
        ValueError: if a model of this library comes without its configuration, or with that of another.
    """
    require("transformers", extra="hf")
    from .causal_lm import DualAttnForCausalLM
    from .configuration import DualAttnConfig

    owned, config = _parts(model, config)
    return DualAttnForCausalLM(DualAttnConfig.from_language_config(config, **more), owned).train(owned.training)


def load_language_model(
    name_or_path: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None, **download: Any
) -> LoadedLanguageModel:
    """Load a language model of either format, from a folder or the hub, as one of this library, in evaluation mode.

    transformers is not needed, whichever it is.

    Args:
        dtype: of the parameters; by default torch's default.
        download: further arguments of :func:`huggingface_hub.hf_hub_download`, for instance ``revision``.

    Raises:
        OSError: if there is no such checkpoint, or the hub cannot be reached.
        TypeError, ValueError: if the configuration is not that of a language model of this library.
        ValueError: if weights are missing, unexpected or of another shape, or are in a pickle that runs code.
    """
    files = CheckpointFiles(name_or_path, **download)
    config = _config_in(files)
    weights = load_weights(files)
    weights = Weights(
        to_language_state_dict(weights.tensors),
        {name.removeprefix(_PREFIX): kept.removeprefix(_PREFIX) for name, kept in weights.aliases.items()},
    )
    model = filled(config.build("meta", dtype), weights, source=files.name, device=device)
    return LoadedLanguageModel(model.eval(), config)


def convert_checkpoint(
    source: str | Path, destination: str | Path, to: Format, *, dtype: torch.dtype | None = None, **download: Any
) -> Path:
    """Write a checkpoint, from a folder or the hub, in the other format into a folder.

    Args:
        to: ``"hub"``, as the published package has it, or ``"transformers"``.
        dtype: of the parameters; by default torch's default.
        download: as :func:`load_language_model`.

    Returns:
        The folder.

    Raises:
        OSError, TypeError, ValueError: as :func:`load_language_model`.
        ValueError: if ``to`` is none of the formats.
    """
    if to not in ("hub", "transformers"):
        raise ValueError(f"to: expected 'hub' or 'transformers', got {to!r}")
    model, config = load_language_model(source, dtype=dtype, **download)
    converted: Any = to_hub(model, config) if to == "hub" else to_transformers(model, config)
    converted.save_pretrained(destination)
    return Path(destination)


def _parts(model: Any, config: LanguageModelConfig | None) -> LoadedLanguageModel:
    """A model as one of this library, and its configuration."""
    if isinstance(model, HubLanguageModel):
        if config is not None:
            raise ValueError("config: is known for a model of the hub; expected none")
        return LoadedLanguageModel(_plain(model), model.language_config)
    if isinstance(model, LanguageModel):
        if config is None:
            raise ValueError(f"config: expected the LanguageModelConfig of the {type(model).__name__}, got None")
        _check_fit(model, config)
        return LoadedLanguageModel(model, config)
    owned = getattr(model, "model", None)
    if not isinstance(owned, LanguageModel):
        raise TypeError(f"model: expected a language model of this library, got {type(model).__name__}")
    return LoadedLanguageModel(owned, model.config.language_config())


def _check_fit(model: LanguageModel, config: LanguageModelConfig) -> None:
    other = config.build("meta")
    shapes, expected = ({name: t.shape for name, t in part.state_dict().items()} for part in (model, other))
    if not isinstance(model, type(other)) or shapes != expected:
        differing = sorted(name for name in {*shapes, *expected} if shapes.get(name) != expected.get(name))
        raise ValueError(
            f"config: is not that of this {type(model).__name__}"
            + (f"; they differ in {', '.join(differing[:5])}" if differing else f", but of a {config.model}")
        )


def _plain(model: HubLanguageModel) -> LanguageModel:
    """The same modules in an object of this library's class."""
    kind = DualAttnTransformerLM if isinstance(model, DualAttnTransformerLM) else TransformerLM
    return _moved(model, model.language_config.build("meta"), kind)


def _hub_model(model: LanguageModel, config: LanguageModelConfig) -> HubLanguageModel:
    kind = {"dat": DualAttnTransformerLM_HFHub, "transformer": TransformerLM_HFHub}[config.model]
    return _moved(model, kind(**config.arguments(), device="meta"), kind)


def _moved(model: Any, empty: Any, kind: type[Any]) -> Any:
    """``empty``, with the layers and tables of ``model``."""
    assert isinstance(empty, kind)
    empty.layers, empty.rope = model.layers, model.rope
    empty.gradient_checkpointing = model.gradient_checkpointing
    return empty.train(model.training)


def _config_in(files: CheckpointFiles) -> LanguageModelConfig:
    saved = files.config()
    model_type = saved.get("model_type")
    if model_type not in (None, _MODEL_TYPE):
        raise ValueError(f"{files.name}: expected a language model of this library, got model_type={model_type!r}")
    if model_type is None:
        kind = "dat" if "n_heads_ra" in saved else "transformer"
        values = {"model": kind, **saved}
    else:  # transformers adds entries of its own, which change over time
        names = LanguageModelConfig.__dataclass_fields__
        values = {name: value for name, value in saved.items() if name in names}
    try:
        return LanguageModelConfig.from_dict(values)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{files.name}: config.json is not that of a language model ({error})") from error
