"""Weights of a checkpoint: reading them, giving them this library's names, and fitting them to a model.

Files keep a tensor with several names once. safetensors holds it under one of them, and its metadata, or the model that
is to be filled, knows the others: in published checkpoints the token embedding is the output matrix, the symbol
retriever of all layers is that of the first, and with symmetric relations ``wk_rel`` is ``wq_rel``.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from .._base.extras import require
from .._base.files import first_line, read_json
from .._base.words import listed
from .._models.weights import ignored_weights, shared_names
from .files import CheckpointFiles

PREFIX = "model."
"""Prefix of our names in the models for transformers, which own ours as ``model``."""

# Names of files, as they are looked for in turn. An index says which of several files has which tensor.
_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


class Weights(NamedTuple):
    """Contents of files of weights.

    Attributes:
        tensors: by name, each under at least one.
        aliases: further name -> name in ``tensors``, as far as the files tell.
        files: they were read from.
    """

    tensors: dict[str, Tensor]
    aliases: dict[str, str]
    files: tuple[Path, ...] = ()

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of most floating-point tensors, float32 if there are none."""
        dtypes = [tensor.dtype for tensor in self.tensors.values() if tensor.is_floating_point()]
        return max(dict.fromkeys(dtypes), key=dtypes.count, default=torch.float32)

    def named_as_ours(self) -> Weights:
        """The same weights with this library's names, if the names are those of models for transformers."""
        aliases = {name.removeprefix(PREFIX): kept.removeprefix(PREFIX) for name, kept in self.aliases.items()}
        return Weights(to_language_state_dict(self.tensors), aliases, self.files)


def to_language_state_dict(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """State dict with the names of this library's models, from the names of any of the formats.

    >>> config = DualAttnConfig(vocab_size=50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> model = DualAttnForCausalLM(config)
    >>> to_language_state_dict(model.state_dict()).keys() == model.model.state_dict().keys()
    True
    """
    return {clean_name(name).removeprefix(PREFIX): tensor for name, tensor in state_dict.items()}


def checkpoint_weights(files: CheckpointFiles, *, meta: bool = False) -> Weights:
    """The weights of a checkpoint, from safetensors if it has them; errors and ``meta`` as :func:`read_weights`."""
    for name in _FILES:
        path = files.find(name, needed=False)
        if path is None:
            continue
        if not meta:
            files.check(path)
        if not name.endswith(".index.json"):
            return read_weights(path, meta=meta)
        index = read_index(path)
        shards = sorted(set(index.values()))
        parts = [read_weights(shard, meta=meta) for shard in map(files.find, shards) if shard is not None]
        if len(parts) < len(shards):
            raise FileNotFoundError(f"{files.name}: {name} names {len(shards)} files, only {len(parts)} are there")
        weights = Weights(
            {name: tensor for part in parts for name, tensor in part.tensors.items()},
            {name: kept for part in parts for name, kept in part.aliases.items()},
            tuple(file for part in parts for file in part.files),
        )
        lost = [name for name in map(clean_name, index) if name not in weights.tensors and name not in weights.aliases]
        if lost:
            raise ValueError(f"{path}: names tensors that the files do not hold: {listed(lost)}")
        return weights
    files.find(_FILES[0])  # says so if it is the hub that cannot be reached
    raise FileNotFoundError(f"{files.name}: has no weights, neither of {', '.join(_FILES)}")


def read_index(path: Path) -> dict[str, str]:
    """The file that has each tensor, of files beside the index only."""
    saved = read_json(path)
    index = saved.get("weight_map") if isinstance(saved, dict) else None
    if not isinstance(index, dict) or not index:
        raise ValueError(f"{path}: is no index of files of weights (it has no weight_map, the file of each tensor)")
    for shard in index.values():
        if not isinstance(shard, str) or not shard.endswith((".safetensors", ".bin")) or Path(shard).name != shard:
            raise ValueError(f"{path}: weight_map: expected names of files beside it, got {shard!r}")
    return index


def read_weights(path: str | Path, *, meta: bool = False) -> Weights:
    """Weights of one file: safetensors, or a file of ``torch.save`` that holds nothing but data.

    A training checkpoint, with the weights beside the state of an optimiser, works as well. Prefixes that
    ``torch.compile`` and ``DistributedDataParallel`` put before names are removed.

    Args:
        meta: only shapes and dtypes, as tensors on the meta device; of safetensors nothing else is read then.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, holds no weights, or is a pickle that would run code when it is read.

    >>> TransformerLM_HFHub(50, d_model=32, n_layers=1, n_heads=2, max_block_size=16).save_pretrained("folder")
    >>> read_weights("folder/model.safetensors").tensors["layers.blocks.0.norm1.weight"].shape
    torch.Size([32])
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file of weights")
    if path.suffix == ".safetensors":
        return _read_safetensors(path, meta)
    try:
        saved = torch.load(path, map_location="meta" if meta else "cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        unsafe = _unsafe_names(path)
        if not unsafe:
            raise ValueError(f"{path}: refused; it is damaged, or a pickle that runs code when it is read") from error
        raise ValueError(
            f"{path}: refused, since it holds more than data ({', '.join(unsafe[:3])}): to read it would run code. "
            "Convert it where it comes from, with safetensors or torch.save(model.state_dict(), ...)"
        ) from error
    except Exception as error:  # bytes may be anything, and so may be what reading them raises
        raise ValueError(f"{path}: cannot be read by torch.load ({first_line(error)})") from error
    tensors = _state_dict_in(saved)
    if tensors is None:
        raise ValueError(f"{path}: expected a state dict, or a dict with one in it")
    return Weights({clean_name(name): tensor for name, tensor in tensors.items()}, {}, (path,))


def _unsafe_names(path: Path) -> list[str]:
    """Names other than data that a file of torch.save refers to, without reading it; none for files of another kind."""
    try:
        return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    except Exception:  # it is no such file, or damaged
        return []


def _read_safetensors(path: Path, meta: bool) -> Weights:
    safetensors = require("safetensors", extra="hf")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            names = list(file.keys())
            metadata = file.metadata() or {}
            tensors = {name: _shaped(file.get_slice(name)) if meta else file.get_tensor(name) for name in names}
    except Exception as error:  # safetensors has an exception of its own, which it does not export for reading
        raise ValueError(f"{path}: cannot be read as safetensors; it is damaged or incomplete ({error})") from error
    aliases = {clean_name(name): clean_name(kept) for name, kept in metadata.items() if kept in tensors}
    return Weights({clean_name(name): tensor for name, tensor in tensors.items()}, aliases, (path,))


DTYPES = {
    "F64": torch.float64,
    "C64": torch.complex64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""dtypes by their names in safetensors files."""


def _shaped(part: Any) -> Tensor:
    """A tensor of a safetensors file on the meta device."""
    return torch.empty(part.get_shape(), dtype=DTYPES.get(part.get_dtype(), torch.float32), device="meta")


def clean_name(name: str) -> str:
    """Name of a parameter without the prefixes of wrappers of a model."""
    return name.replace("_orig_mod.", "").removeprefix("module.")


def _state_dict_in(saved: Any) -> Mapping[str, Tensor] | None:
    """The state dict that was saved, or the only one among the entries of a training checkpoint."""

    def is_state_dict(value: Any) -> bool:
        return isinstance(value, Mapping) and bool(value) and all(isinstance(part, Tensor) for part in value.values())

    if is_state_dict(saved):
        return saved
    found = [value for value in saved.values() if is_state_dict(value)] if isinstance(saved, Mapping) else []
    return found[0] if len(found) == 1 else None


def fit_state_dict(model: nn.Module, weights: Weights, *, source: str, strict: bool = True) -> dict[str, Tensor]:
    """A state dict for a model, with all its names; what does not fit is named in a ``ValueError``.

    Args:
        source: where the weights come from, for messages.
        strict: False leaves out weights that the model does not have, and keeps its own where the weights lack one.
    """
    wanted = model.state_dict(keep_vars=True)
    ignored = ignored_weights(model)
    tensors = {name: tensor for name, tensor in weights.tensors.items() if not name.startswith(ignored)}
    for name, kept in weights.aliases.items():
        if name in wanted and kept in tensors:
            tensors.setdefault(name, tensors[kept])
    problems = [*_share(tensors, shared_names(model)), *_misfits(tensors, wanted, strict=strict)]
    if problems:
        raise ValueError(f"{source}: the weights do not fit {type(model).__name__}. " + "; ".join(problems))
    return {name: tensors[name] for name in wanted if name in tensors}


def _share(tensors: dict[str, Tensor], groups: list[list[str]]) -> list[str]:
    """Give each tensor all its names, and list groups of names with different values."""
    problems = []
    for names in groups:
        found = [name for name in names if name in tensors]
        if not found:
            continue
        first = tensors[found[0]]
        differing = [name for name in found[1:] if not _same(first, tensors[name])]
        if differing:
            problems.append(f"of different values, though the model has one: {listed([found[0], *differing])}")
        tensors.update((name, first) for name in names if name not in tensors)
    return problems


def _misfits(tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor], *, strict: bool) -> list[str]:
    """Lists of tensors that are missing, unexpected, or of another shape, kind of numbers or range.

    Without ``strict`` those that are missing or unexpected are left out.
    """
    common = [(name, tensors[name], parameter) for name, parameter in wanted.items() if name in tensors]
    halves = {tensor.dtype for tensor in tensors.values()} & {torch.float16, torch.bfloat16}
    misfits = {
        "missing": [name for name in wanted if strict and name not in tensors],
        "unexpected": [name for name in tensors if strict and name not in wanted],
        "of another shape": [
            f"{name} {tuple(tensor.shape)}, expected {tuple(parameter.shape)}"
            for name, tensor, parameter in common
            if tensor.shape != parameter.shape
        ],
        "of another dtype": [
            f"{name} {tensor.dtype}, expected {parameter.dtype}"
            for name, tensor, parameter in common
            if _kind(tensor) != _kind(parameter)
        ],
        "of different dtypes of 16 bits, which one file does not have": sorted(map(str, halves)) * (len(halves) > 1),
        "NaN or infinite": [name for name, tensor, parameter in common if not _usable(tensor, parameter)],
    }
    return [f"{kind}: {listed(names)}" for kind, names in misfits.items() if names]


def _kind(tensor: Tensor) -> tuple[torch.layout, str]:
    """Kind of a tensor's numbers, within which they may be converted."""
    if tensor.dtype == torch.bool:
        return tensor.layout, "bool"
    return tensor.layout, "floating" if tensor.is_floating_point() else "complex" if tensor.is_complex() else "integer"


def _usable(tensor: Tensor, parameter: Tensor) -> bool:
    """Whether a parameter is finite and a buffer, such as one of masks, not NaN, as far as they are read."""
    if tensor.is_meta or not tensor.is_floating_point() or tensor.layout != torch.strided:
        return True
    return bool(tensor.isfinite().all() if isinstance(parameter, nn.Parameter) else not tensor.isnan().any())


def _same(first: Tensor, second: Tensor) -> bool:
    if first is second or first.is_meta or second.is_meta:
        return True
    return first.shape == second.shape and torch.equal(first, second)


ModelT = TypeVar("ModelT", bound=nn.Module)


def filled(
    model: ModelT, weights: Weights, *, source: str, device: torch.device | str = "cpu", strict: bool = True
) -> ModelT:
    """The model filled with these weights, on a device; a model on the meta device gets its memory there.

    On ``device="meta"`` weights are compared with the model only by name and shape.
    """
    state_dict = fit_state_dict(model, weights, source=source, strict=strict)
    if torch.device(device).type == "meta":
        return model.to(device)
    if any(parameter.is_meta for parameter in model.parameters()):
        model.to_empty(device=device)
    model.load_state_dict(state_dict, strict=False)
    return model.to(device)
