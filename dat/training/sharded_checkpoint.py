"""Checkpoints of which each process writes and reads its part, by ``torch.distributed.checkpoint``.

The parts are safetensors files, which hold numbers only, whose places in the whole tensors stand in their headers; so
any number of processes reads what any other has written. A checkpoint is written beside training: values are copied
when it is begun, and each process writes its file, reads it again and compares. It becomes visible when all have done
so. Another group of connections carries what the processes say to each other meanwhile.
"""

import errno
import os
import warnings
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.api import CheckpointException

from dual_attention._base.checksums import sha256_of
from dual_attention._base.extras import require
from dual_attention._base.files import sync_folder

from .distributed import Workers
from .parts import SHARDS, misfits_of_parts, parts_in
from .weights_file import Misfit, check_all_finite, tied_names

library: Any = checkpoint  # whose stubs export less than its page describes


class Damaged(RuntimeError):
    """A file that holds something else than was written to it."""


class _Writer(library.HuggingFaceStorageWriter):
    """Writes the file of a process, reads it again and compares.

    Attributes:
        digests: SHA-256 of the file, by its name; nothing where a process has nothing to write.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), save_distributed=True)
        self.digests: dict[str, str] = {}

    def write_data(self, plan: Any, planner: Any) -> Any:
        future = super().write_data(plan, planner)
        names = {result.storage_data.relative_path for result in future.wait()}
        for name in names:
            path = Path(self.path) / name
            with require("safetensors", extra="train").safe_open(str(path), framework="pt") as file:
                written = set(file.keys())
                for item in plan.items:
                    if item.index.fqn in written and not same_bytes(
                        file.get_tensor(item.index.fqn), planner.resolve_data(item)
                    ):
                        raise Damaged(f"{path}: {item.index.fqn} is not what was written; is the disk damaged?")
            self.digests[name] = sha256_of(path)
        return future


def same_bytes(found: Tensor, written: Tensor) -> bool:
    """Whether two tensors have the same shape, dtype and bytes."""
    written = written.detach().cpu()
    alike = (found.dtype, found.shape) == (written.dtype, written.shape)
    return alike and torch.equal(_bytes(found), _bytes(written))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)


class Saving:
    """A checkpoint that the processes write beside training.

    Args:
        folder: a new one, which all of them see; the checkpoint's folder under another name.
        tensors: of which each process has its part, see :func:`parts_of`; they are copied now.
        workers: the processes, all of which begin at the same time.
    """

    def __init__(self, folder: Path, tensors: dict[str, Tensor], workers: Workers) -> None:
        self.folder, self.workers = folder, workers
        self._writer = _Writer(folder / SHARDS)
        group = {"process_group": workers.other_group()} if workers.connected else {"no_dist": True}
        self._future: Future[Any] = library.async_save(tensors, storage_writer=self._writer, **group)

    @property
    def written(self) -> bool:
        """Whether this process has nothing left to do."""
        return self._future.done()

    def digests(self) -> dict[str, str]:
        """Checksums of all files, which are on the disk then; waits until they are. In all processes at once.

        Raises:
            OSError: naming the folder, if one of the files could not be written.
        """
        try:
            self._future.result()
        except CheckpointException as error:
            raise _first_cause(error, self.folder) from error
        sync_folder(self.folder / SHARDS)  # before the first process, when it knows of all, gives the folder its name
        found = self.workers.gather(self._writer.digests)
        return {f"{SHARDS}/{name}": digest for each in found for name, digest in each.items()}


def _first_cause(error: CheckpointException, folder: Path) -> BaseException:
    """The error of the process of the lowest rank, with the name of the folder if it names none."""
    cause = next((failure[0] for _, failure in sorted(error.failures.items())), error)
    if isinstance(cause, OSError) and cause.errno is not None:
        return OSError(cause.errno, os.strerror(cause.errno), cause.filename or str(folder / SHARDS))
    full = os.strerror(errno.ENOSPC)
    if full in str(cause):  # a library that writes by itself
        return OSError(errno.ENOSPC, full, str(folder / SHARDS))
    return cause


def parts_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors of which each process has a part, by name, and the state dict of the optimiser with None in their place.

    Tied weights are there once, under the first of their names. Counts of steps stay in the state dict.
    """
    weights = model.state_dict(keep_vars=True)
    tensors = {f"model.{names[0]}": weights[names[0]].detach() for names in tied_names(weights)}
    saved = optimizer.state_dict()
    state: dict[int, dict[str, Any]] = {}
    for index, entry in saved["state"].items():
        state[index] = {key: value.clone() if key == "step" else None for key, value in entry.items()}
        tensors.update({_name(index, key): value for key, value in entry.items() if key != "step"})
    return tensors, {**saved, "state": state}


def read_parts(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, saved: Any, workers: Workers
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the parts of this process.

    Args:
        path: folder of the files.
        saved: state dict of the optimiser with None in the place of what is read.

    Returns:
        Weights, by the first of their names, and the state dict with what was read; neither is used yet.

    Raises:
        ValueError: naming the folder, if they do not fit the model or the optimiser.
    """
    own = model.state_dict(keep_vars=True)
    kept = [names[0] for names in tied_names(own)]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    try:
        entries = {
            (index, key): parameters[index] for index, e in saved["state"].items() for key in e if e[key] is None
        }
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: the state of the optimiser does not fit") from error
    wanted = {**{f"model.{name}": own[name] for name in kept}, **{_name(*e): p for e, p in entries.items()}}
    if problems := misfits_of_parts(parts_in(path), wanted):
        kind = type(model).__name__.removeprefix("FSDP")
        raise Misfit(f"{path}: the weights do not fit {kind}: {'; '.join(problems[:8])}")
    reader = library.HuggingFaceStorageReader(str(path))
    tensors = {name: torch.empty_like(tensor.detach()) for name, tensor in wanted.items()}
    group = {"process_group": workers.other_group()} if workers.connected else {"no_dist": True}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one process is right
        library.load(tensors, storage_reader=reader, **group)
    weights = {name: tensors[f"model.{name}"] for name in kept}
    check_all_finite(weights, path)
    state = {
        index: {key: tensors[_name(index, key)] if value is None else value for key, value in entry.items()}
        for index, entry in saved["state"].items()
    }
    return weights, {**saved, "state": state}


def _name(index: int, key: str) -> str:
    return f"optimizer.{index}.{key}"
