"""Trained weights by their name: of a run, at its end or at one of its checkpoints, of a folder, or on the hub.

Where a run keeps an average of its weights, that is meant.
"""

from pathlib import Path

import torch
from torch import Tensor

from dual_attention._base.checksums import check_checksums
from dual_attention.checkpoints.files import CheckpointFiles, is_adapter
from dual_attention.checkpoints.language import LoadedModel, is_language_model, load_language_checkpoint
from dual_attention.checkpoints.weights import Weights, read_weights

from .average import AVERAGE, DECAY
from .checkpoint import STATE, WEIGHTS, read_state, step_of
from .config_data import read_mapping
from .objective import without_objective
from .parts import SHARDS, read_whole
from .run_folder import RunFolder

MODEL = "model."
"""Prefix of the names of weights among parts."""


def weights_of_run(run: RunFolder, checkpoint: Path | None = None, *, meta: bool = False) -> tuple[Weights, str]:
    """The weights of a run, and what they are in words.

    Args:
        checkpoint: one of the run; None takes the end of the run, or its newest checkpoint if it is not finished.
        meta: only shapes and dtypes, as tensors on the meta device; nothing else is read then.

    Raises:
        FileNotFoundError: if there are none yet, or a file is missing.
        ValueError: naming a file that is damaged.
    """
    if checkpoint is None and run.finished:
        if not meta:
            check_checksums(run.path, [run.weights.name])
        return read_weights(run.weights, meta=meta), "finished"
    latest = checkpoint or run.checkpoints.latest()
    if latest is None:
        raise FileNotFoundError(f"{run.path}: the run has no weights yet (continue it with {run.resuming})")
    averaged = _averaged(run) and not meta
    words = f"weights of step {step_of(latest):,}"
    return _of_checkpoint(latest, averaged, meta), words if checkpoint else f"unfinished, {words}"


def whose_weights(run: RunFolder, checkpoint: Path | None = None) -> str:
    """The step of the weights of :func:`weights_of_run`, and whether they are an average, the last or the best ones."""
    result = run.read_result() if run.finished else {}
    latest = checkpoint or run.checkpoints.latest()
    step = result["steps"] if checkpoint is None and result else step_of(latest) if latest else None
    words = f"{'the average of the weights' if _averaged(run) else 'weights'} of step {step or 0:,}"
    best = result.get("best", {}).get("step")
    if checkpoint is None and not result:
        return f"{words}, since the run is not finished"
    if best == step:
        return f"{words}, the {'best' if checkpoint else 'last and best'} ones"
    if checkpoint is not None:
        return words
    kept = f"; the best ones are of step {int(best):,}, in {run.checkpoints.folder}" if best is not None else ""
    return f"{words}, the last ones{kept}"


def _averaged(run: RunFolder) -> bool:
    """Whether the run keeps an average of its weights."""
    settings = read_mapping(run.config).get("optim")
    return isinstance(settings, dict) and settings.get(DECAY) is not None


def _of_checkpoint(path: Path, averaged: bool, meta: bool) -> Weights:
    """The weights in the folder of a checkpoint, whole or in parts; an average takes the place of what it is of."""
    in_parts = (path / SHARDS).is_dir()
    files = sorted((path / SHARDS).iterdir()) if in_parts else [path / WEIGHTS]
    if not meta:
        needed = [*files, path / STATE] if averaged else files
        check_checksums(path, [file.relative_to(path).as_posix() for file in needed])
    if in_parts:
        parts = read_whole(path / SHARDS, meta=meta)
        tensors = {name.removeprefix(MODEL): part for name, part in parts.items() if name.startswith(MODEL)}
        weights = Weights(tensors, {}, tuple(files))
    else:
        parts, weights = {}, read_weights(path / WEIGHTS, meta=meta)
    if averaged:
        weights.tensors.update(_averages(path / STATE, parts))
    return weights._replace(tensors=without_objective(weights.tensors))


def _averages(path: Path, parts: dict[str, Tensor]) -> dict[str, Tensor]:
    """The averages that are kept in the state of an optimiser, or in parts beside it, by the names of weights."""
    state = read_state(path)
    found: dict[str, Tensor] = {}
    try:
        for index, entry in state["optimizer"]["state"].items():
            if AVERAGE in entry:
                value = entry[AVERAGE]
                found[state["names"][index]] = parts[f"optimizer.{index}.{AVERAGE}"] if value is None else value
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: no state of training that this version knows") from error
    if not all(isinstance(value, Tensor) for value in found.values()):
        raise ValueError(f"{path}: expected averages that are tensors")
    return found


def load_by_name(
    name: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> LoadedModel:
    """The model of a folder that is no run, or of a name on the hub; transformers is imported where it is needed.

    Raises:
        FileNotFoundError: if it is the path of a folder that is not there, rather than a name; others are those of
            :func:`~dual_attention.hf.loading.load_model`.
    """
    if not Path(name).is_dir():
        _check_name(str(name))
    files = CheckpointFiles(name)
    if not is_adapter(files) and is_language_model(files.config()):
        return load_language_checkpoint(files, device=device, dtype=dtype)
    from dual_attention.hf.loading import load_model

    return load_model(name, device=device, dtype=dtype)


def _check_name(name: str) -> None:
    """Raise FileNotFoundError for a path of a folder that is not there, rather than a name on the hub."""
    owner, *more = Path(name).parts or ("",)
    if len(more) != 1 or name.startswith((".", "~", "/")):
        raise FileNotFoundError(f"{name}: no such folder, and no name on the Hugging Face hub (OWNER/NAME)")
    if Path(owner).exists():
        raise FileNotFoundError(
            f"{name}: no such folder, and no name on the Hugging Face hub (OWNER/NAME), since {owner}/ is here"
        )
