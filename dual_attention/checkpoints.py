"""Opening trained models: a run folder, a folder of the Hugging Face hub's format, or a name on the hub.

A run folder is one that ``dat train`` made. A folder of the hub's format holds ``config.json``, the arguments of the
model's class, and ``model.safetensors``, its weights; so do the repositories of the published models, such as
``awni00/DAT-sa8-ra8-ns1024-sh8-nkvh4-343M``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ._extras import require
from .language_models import LanguageModel
from .language_presets import LanguageModelConfig
from .training.checkpoint import WEIGHTS
from .training.config_io import read_config
from .training.files import read_json
from .training.language.tokenizer import FOLDER, ByteTokenizer, GPT2Tokenizer, Tokenizer, load_tokenizer
from .training.run_folder import RunFolder

__all__ = ["Checkpoint", "fit_weights", "open_checkpoint"]

ARGUMENTS = "config.json"
PICKLED_WEIGHTS = "pytorch_model.bin"

_GPT2_SIZES = (50257, 50304)  # as it is, and padded to a multiple of 128 as in the paper
_PICKLES = (".bin", ".ckpt", ".pkl", ".pt", ".pth")


@dataclass(frozen=True)
class Checkpoint:
    """A trained model, opened.

    Attributes:
        source: what the user called it.
        kind: what its folder is.
        config: the arguments of the model's class, or the configuration of a run of Relational Games.
        model: in evaluation mode.
        weights: the file that holds its weights.
        weights_dtype: of the floating-point tensors in it.
        state: what a run folder says of itself, for instance that the run is not finished; empty otherwise.
    """

    source: str
    kind: Literal["language run", "relational games run", "model folder"]
    config: Any
    model: nn.Module
    weights: Path
    weights_dtype: torch.dtype
    state: str

    def tokenizer(self, name: str | None = None) -> Tokenizer:
        """The tokenizer of a language model.

        Args:
            name: ``"bytes"``, ``"gpt2"``, or a folder that holds one. By default that of the run, or else the one that
                the size of the vocabulary suggests.

        Raises:
            ValueError: if it is not known, or has more tokens than the model.
            OSError: if it cannot be had.
        """
        tokenizer = self._tokenizer(name)
        if tokenizer.vocab_size > self.config.vocab_size:
            raise ValueError(
                f"tokenizer: the {tokenizer.kind} tokenizer has {tokenizer.vocab_size} tokens, the model of "
                f"{self.source} {self.config.vocab_size}"
            )
        return tokenizer

    def _tokenizer(self, name: str | None) -> Tokenizer:
        folder = self.weights.parent
        if name is None:
            run = _run_of(self.weights)
            if run is not None and (run / FOLDER).is_dir():
                return load_tokenizer(run / FOLDER)
            size = self.config.vocab_size
            names = {ByteTokenizer.vocab_size: "bytes", **dict.fromkeys(_GPT2_SIZES, "gpt2")}
            if size not in names:
                raise ValueError(
                    f"tokenizer: {self.source} does not say which tokenizer it was trained with, and its vocabulary "
                    f"of {size} is none that is known; name one: bytes, gpt2, or a folder"
                )
            name = names[size]
        if name == "bytes":
            return ByteTokenizer()
        if name == "gpt2":
            return GPT2Tokenizer.find(folder)
        for place in (Path(name), Path(name) / FOLDER):
            if (place / "about.json").is_file():
                return load_tokenizer(place)
        if any((Path(name) / file).is_file() for file in ("encoder.json", "vocab.json")):
            return GPT2Tokenizer.find(Path(name))
        raise ValueError(f"tokenizer: expected bytes, gpt2, or a folder that holds a tokenizer, got {name!r}")


def open_checkpoint(
    name: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> Checkpoint:
    """Open a trained model by the folder, or the name on the hub, that it has.

    Args:
        device: of the model; on ``"meta"`` its weights are compared with the model by name and shape, but not read.
        dtype: of the model's parameters; by default float32.

    Raises:
        FileNotFoundError: if there is nothing of that name, or no weights in it.
        ValueError: if it is not a checkpoint, if weights are missing, unexpected or misshapen, all of which the message
            names, or if they are a pickle that would run code.
        OSError: if it is on the hub and the hub cannot be reached.
        ImportError: if it is on the hub and the extra ``hf`` is not installed.
    """
    source = str(name)
    path = Path(name).expanduser()
    if path.is_file():
        raise ValueError(f"{source}: {_about_file(path)}")
    if not path.is_dir():
        path = _download(source)
    run = RunFolder(path)
    state = ""
    if run.config.is_file():
        kind = "language run" if run.kind() == "language" else "relational games run"
        weights, state = _weights_of_run(run)
    elif (path / ARGUMENTS).is_file():
        kind, weights = "model folder", _weights_of_folder(path)
    else:
        raise ValueError(f"{source}: not a checkpoint (it has neither config.yaml, as runs have, nor {ARGUMENTS})")
    config = _games_config(run) if kind == "relational games run" else _model_config(path / ARGUMENTS)
    tensors = read_weights(weights, meta=torch.device(device).type == "meta")
    model = _empty_model(config)
    fitting = fit_weights(model, tensors, source=str(weights))
    if torch.device(device).type != "meta":
        model.to_empty(device=device)
        model.load_state_dict(fitting)
    if dtype is not None:
        model.to(dtype=dtype)
    dtypes = [tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()]
    stored = max(set(dtypes), key=dtypes.count, default=torch.float32)
    return Checkpoint(source, kind, config, model.eval(), weights, stored, state)


def _about_file(path: Path) -> str:
    if path.suffix in _PICKLES:
        return (
            "a pickle, which could run code when it is read, and does not say which model it is of; name a folder with "
            f"{ARGUMENTS} and {WEIGHTS}"
        )
    return f"a file; name the folder of the checkpoint ({path.parent}, perhaps)"


def _run_of(weights: Path) -> Path | None:
    """The run folder that a file of weights lies in, as final weights or as those of a checkpoint."""
    for folder in (weights.parent, *weights.parents[2:3]):
        if (folder / "config.yaml").is_file():
            return folder
    return None


def _weights_of_run(run: RunFolder) -> tuple[Path, str]:
    if run.finished:
        return run.weights, "finished"
    latest = run.checkpoints.latest()
    if latest is None:
        raise FileNotFoundError(f"{run.path}: the run has no weights yet (continue it with --resume {run.path})")
    return latest / WEIGHTS, f"unfinished, weights of step {int(latest.name.rpartition('-')[2]):,}"


def _weights_of_folder(folder: Path) -> Path:
    for name in (WEIGHTS, PICKLED_WEIGHTS):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"{folder}: has no weights ({WEIGHTS})")


def _download(name: str) -> Path:
    """The folder on this machine with the files of a repository on the hub."""
    parts = Path(name).parts
    if len(parts) != 2 or name.startswith((".", "~", "/")) or Path(parts[0]).exists():  # a path, then, to nothing
        raise FileNotFoundError(f"{name}: no such folder, and no name on the Hugging Face hub (OWNER/NAME)")
    hub = require("huggingface_hub", extra="hf")
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it tells of each attempt
    try:
        folder = Path(hub.hf_hub_download(name, ARGUMENTS)).parent
        hub.hf_hub_download(name, WEIGHTS)
        return folder
    except Exception as error:  # of the hub, of its client, or of the network
        reasons = {
            "LocalEntryNotFoundError": "the hub cannot be reached, and no copy is kept here",
            "RepositoryNotFoundError": "there is none of that name, or it needs a token",
            "RemoteEntryNotFoundError": f"it lacks {ARGUMENTS} or {WEIGHTS}",
        }
        reason = reasons.get(type(error).__name__, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
        raise OSError(f"{name}: no such folder here, and no such model from the Hugging Face hub ({reason})") from error
    finally:
        logger.setLevel(level)


def _model_config(path: Path) -> LanguageModelConfig:
    values = read_json(path)
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected the arguments of a model, got {type(values).__name__}")
    if "model_type" in values:
        raise ValueError(
            f"{path}: in the format of transformers (model_type {values['model_type']!r}); convert it to that of this "
            "library first"
        )
    model = "dat" if "n_heads_sa" in values or "n_heads_ra" in values else "transformer"
    try:
        return LanguageModelConfig.from_dict({"model": model, **values})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: not the arguments of a language model ({error})") from error


def _games_config(run: RunFolder) -> Any:
    from .training.relational_games.config import RelationalGamesConfig

    return read_config(RelationalGamesConfig, run.config)


def _empty_model(config: Any) -> LanguageModel | nn.Module:
    """The model on the meta device."""
    if isinstance(config, LanguageModelConfig):
        return config.build(device="meta")
    from .data.relational_games import num_classes
    from .training.relational_games.model import build_model

    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return build_model(config.model, num_classes(config.task), seed=0)


def read_weights(path: Path, *, meta: bool = False) -> dict[str, Tensor]:
    """The tensors in a file of weights, by name.

    Args:
        meta: their shapes and dtypes alone, as tensors on the meta device.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it cannot be read, or is a pickle that would run code.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file of weights")
    if path.suffix == ".safetensors":
        return _read_safetensors(path, meta=meta)
    try:
        state = torch.load(path, map_location="meta" if meta else "cpu", weights_only=True)
    except Exception as error:  # pickle.UnpicklingError for code, others for what is no such file at all
        raise ValueError(
            f"{path}: refused; it is damaged, or a pickle that would run code when it is read "
            f"({str(error).strip().partition(chr(10))[0]})"
        ) from error
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path}: expected a state dict, tensors by name, got {type(state).__name__}")
    return dict(state)


def _read_safetensors(path: Path, *, meta: bool) -> dict[str, Tensor]:
    safetensors = require("safetensors", extra="train")
    try:
        with safetensors.safe_open(str(path), framework="pt") as file:
            names = list(file.keys())
            if not meta:
                return {name: file.get_tensor(name) for name in names}
            slices = {name: file.get_slice(name) for name in names}
            return {
                name: torch.empty(part.get_shape(), dtype=_DTYPES.get(part.get_dtype(), torch.float32), device="meta")
                for name, part in slices.items()
            }
    except Exception as error:  # the library's own SafetensorError is no subclass of what Python has
        raise ValueError(f"{path}: not a file of safetensors ({' '.join(str(error).split())})") from error


_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "BOOL": torch.bool,
}


def fit_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, source: str) -> dict[str, Tensor]:
    """A state dict of the model from tensors by name, in which a tensor that the model has under several names, as an
    embedding that is the output matrix, may stand under one of them or all.

    Raises:
        ValueError: if tensors are missing, unexpected or misshapen, or two differ that are one in the model; the
            message begins with ``source`` and names them all.
    """
    wanted = model.state_dict(keep_vars=True)
    same: dict[int, list[str]] = {}
    for name, parameter in wanted.items():
        same.setdefault(id(parameter), []).append(name)
    found: dict[str, Tensor] = {}
    missing, misshapen, differing = [], [], []
    for names in same.values():
        present = [name for name in names if name in tensors]
        if not present:
            missing.extend(names[:1])
            continue
        first = tensors[present[0]]
        shape = wanted[names[0]].shape
        misshapen += [
            f"{n} {tuple(tensors[n].shape)} instead of {tuple(shape)}" for n in present if tensors[n].shape != shape
        ]
        if not first.is_meta and any(not torch.equal(first, tensors[name]) for name in present[1:]):
            differing.append(" and ".join(present))
        found.update(dict.fromkeys(names, first))
    unexpected = [name for name in tensors if name not in wanted]
    wrong = {
        "missing": missing,
        "unexpected": unexpected,
        "of another shape": misshapen,
        "different though they are one in the model": differing,
    }
    told = [f"{what}: {_listed(names)}" for what, names in wrong.items() if names]
    if told:
        raise ValueError(f"{source}: the weights are not those of the model; {'; '.join(told)}")
    return found


def _listed(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
