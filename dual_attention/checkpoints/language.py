"""Language models from any folder or name on the hub (then huggingface_hub is needed), in any of the formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, cast

import torch
from torch import nn

from .._base.extras import require
from .._base.files import folder_made_atomically, write_json
from ..language_models import DualAttnTransformerLM, LanguageModel
from ..language_presets import LanguageModelConfig
from ..parts import own_parts
from . import babylm
from .files import CONFIG, CheckpointFiles, warn_of_misspelt
from .weights import Weights, checkpoint_weights, filled

Model = TypeVar("Model", bound=nn.Module)
Made = TypeVar("Made")
Format = Literal["hub", "transformers", "babylm"]

_OF_TRAINING = {"training", "gradient_checkpointing", "dropout", "dropout_rate", "p", "inplace"}
"""Settings that change nothing of a trained model's outputs."""

LANGUAGE_MODEL = "dual_attn"
"""The model type of language models, that of DualAttnConfig, which only transformers can import."""


class LoadedLanguageModel(NamedTuple):
    """A language model and the configuration that builds it.

    >>> TransformerLM_HFHub(50, d_model=32, n_layers=1, n_heads=2, max_block_size=16).save_pretrained("folder")
    >>> model, config = load_language_model("folder")
    >>> type(model).__name__, config.d_model
    ('TransformerLM', 32)
    """

    model: LanguageModel
    config: LanguageModelConfig


class LoadedModel(NamedTuple):
    """A model of this library, and where it comes from.

    Attributes:
        model: in evaluation mode.
        config: a :class:`~dual_attention.language_presets.LanguageModelConfig`, or that of transformers for encoders
            and image classifiers.
        format: of the folder; ``"adapter"`` for one of PEFT.
        files: its weights were read from.
        dtype: of most of the tensors in them.

    >>> TransformerLM_HFHub(50, d_model=32, n_layers=1, n_heads=2, max_block_size=16).save_pretrained("folder")
    >>> loaded = load_model("folder")
    >>> loaded.format, loaded.dtype
    ('hub', torch.float32)
    """

    model: nn.Module
    config: Any
    format: Format | Literal["adapter"]
    files: tuple[Path, ...]
    dtype: torch.dtype


def load_language_model(
    name_or_path: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None, **download: Any
) -> LoadedLanguageModel:
    """Load a language model of any format, from a folder or the hub, as one of this library, in evaluation mode.

    transformers is not needed for any. Folders of ``babylm_dat_2026`` open as well, see
    ``dual_attention.checkpoints.babylm``.

    Args:
        device: of the model; on ``"meta"`` weights are compared with the model by name and shape, but not read.
        dtype: of the parameters; by default torch's default.
        download: further arguments of ``huggingface_hub.hf_hub_download``, for instance ``revision``.

    Raises:
        OSError: if there is no such checkpoint, or the hub cannot be reached.
        TypeError, ValueError: if the configuration is not that of a language model of this library.
        ValueError: if weights are missing, unexpected or of another shape, or are in a pickle that runs code.

    >>> TransformerLM_HFHub(50, d_model=32, n_layers=1, n_heads=2, max_block_size=16).save_pretrained("folder")
    >>> load_language_model("folder").model(torch.tensor([[5, 17, 3]])).logits.shape
    torch.Size([1, 3, 50])
    """
    loaded = load_language_checkpoint(CheckpointFiles(name_or_path, **download), device=device, dtype=dtype)
    return LoadedLanguageModel(cast(LanguageModel, loaded.model), loaded.config)


def save_language_model(model: LanguageModel, folder: str | Path) -> Path:
    """Write a language model into a new folder of the hub's format, which :func:`load_language_model` reads.

    Raises:
        FileExistsError: if there is anything at ``folder``.
        TypeError, ValueError: if it is another model, has parts of your own, an argument that JSON cannot hold, or
            layers that its arguments do not build.

    >>> lm = TransformerLM(50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> load_language_model(save_language_model(lm, "folder")).model(torch.tensor([[5, 17, 3]])).logits.shape
    torch.Size([1, 3, 50])
    """
    if not isinstance(model, LanguageModel):
        raise TypeError(f"model: expected a language model of this library, got {type(model).__name__}")
    if own_parts(model):
        raise ValueError("model: parts of your own have no such form; keep their code and the state dict")
    kind = "dat" if isinstance(model, DualAttnTransformerLM) else "transformer"
    own = {"model": kind, "vocab_size": model.vocab_size, "tie_weights": model.tie_weights}  # which may have changed
    config = LanguageModelConfig.of({**vars(model.given), **own})
    arguments = config.to_dict()
    check_fit("model: its configuration is", model, config)
    del arguments["model"]  # it follows from the others
    save_model = require("safetensors.torch", extra="hf").save_model
    with folder_made_atomically(Path(folder)) as new:
        write_json(new / CONFIG, arguments)
        save_model(model, str(new / "model.safetensors"))
    return Path(folder)


def check_fit(what: str, model: LanguageModel, config: LanguageModelConfig) -> None:
    """Raise ``ValueError`` unless a configuration builds such a model; ``what`` begins the message."""
    other = config.build("meta")
    shapes, expected = ({name: t.shape for name, t in part.state_dict().items()} for part in (model, other))
    if not isinstance(model, type(other)) or shapes != expected:
        differing = sorted(name for name in {*shapes, *expected} if shapes.get(name) != expected.get(name))
        raise ValueError(
            f"{what} not that of this {type(model).__name__}"
            + (f"; they differ in {', '.join(differing[:5])}" if differing else f", but of a {config.model}")
        )
    own, wanted = map(_settings, (model, other))
    for name in wanted:
        if own.get(name) != wanted.get(name):
            raise ValueError(
                f"{what} not that of this {type(model).__name__}, whose {name} is {own.get(name)!r}; "
                f"expected {wanted.get(name)!r}"
            )


def _settings(model: nn.Module) -> dict[str, Any]:
    """Numbers, names and switches of the modules of a model, on which its outputs depend beside its weights."""
    return {
        f"{path}.{name}".strip("."): value
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, (bool, int, float, str)) and not name.startswith("_") and name not in _OF_TRAINING
    }


def load_language_checkpoint(
    files: CheckpointFiles, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> LoadedModel:
    """As :func:`load_language_model`, of files that have been found, with more of what they tell."""
    saved = files.config()
    config = language_config(saved, source=files.name)
    model, weights = read_into(empty_language_model(config, source=files.name, dtype=dtype), files, device, saved)
    return LoadedModel(model, config, format_of(saved), weights.files, weights.dtype)


def format_of(saved: Mapping[str, Any]) -> Format:
    """Format of a folder with this ``config.json``."""
    if babylm.is_babylm(saved):
        return "babylm"
    return "transformers" if "model_type" in saved else "hub"


def read_into(
    model: Model, files: CheckpointFiles, device: torch.device | str, saved: Mapping[str, Any]
) -> tuple[Model, Weights]:
    """A model with the weights of a checkpoint, in evaluation mode, and what was read.

    ``saved``: contents of its ``config.json``.
    """
    weights = checkpoint_weights(files, meta=torch.device(device).type == "meta")
    weights = babylm.named_as_ours(weights, saved) if babylm.is_babylm(saved) else weights.named_as_ours()
    return filled(model, weights, source=files.name, device=device).eval(), weights


def is_language_model(saved: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` of any format is that of a language model."""
    return saved.get("model_type") in (None, LANGUAGE_MODEL) or babylm.is_babylm(saved)


def with_kind(saved: Mapping[str, Any]) -> dict[str, Any]:
    """A ``config.json`` of the hub's format, with the ``model`` that follows from its arguments."""
    return {"model": "dat" if "n_heads_sa" in saved or "n_heads_ra" in saved else "transformer", **saved}


def language_config(saved: Mapping[str, Any], *, source: str) -> LanguageModelConfig:
    """The configuration of a language model that a ``config.json`` of any format holds."""
    model_type = saved.get("model_type")
    if not is_language_model(saved):
        raise ValueError(f"{source}: expected a language model of this library, got model_type={model_type!r}")
    if babylm.is_babylm(saved):
        return _named(source, lambda: babylm.language_config_of(saved))
    if model_type is None:
        values = with_kind(saved)
    else:  # transformers adds entries of its own, which change over time
        names = LanguageModelConfig.__dataclass_fields__
        warn_of_misspelt(saved, names)
        values = {name: value for name, value in saved.items() if name in names}
    return _named(source, lambda: LanguageModelConfig.from_dict(values))


def empty_language_model(
    config: LanguageModelConfig, *, source: str, dtype: torch.dtype | None = None
) -> LanguageModel:
    """The language model of a configuration, on the meta device; errors name the ``source``."""
    return _named(source, lambda: config.build("meta", dtype))


def _named(source: str, make: Callable[[], Made]) -> Made:
    """The result of reading a ``config.json``; errors name the ``source``."""
    try:
        return make()
    except (TypeError, ValueError) as error:
        raise type(error)(f"{source}: config.json is not that of a language model ({error})") from error
