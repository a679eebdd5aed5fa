"""The model of a training in the processes that train it: in one, copied to several, or sharded among them.

Gradients of the loss of a whole step arrive in every process: each backward pass is scaled by the share of its part,
and by the number of processes, since the engines of PyTorch take the mean over processes.
"""

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch import distributed as dist

from .configs import LoopConfig, MachineConfig, ParallelMachineConfig, StepLoopConfig, check
from .context_parallel import ContextParallel
from .distributed import ALONE, Workers
from .problem import Problem
from .sharding import whole_values, whole_weights
from .sharding_groups import blocks_of, sharding_groups


class _Part(NamedTuple):
    """Examples of one forward and backward pass.

    Attributes:
        indices: of the examples, 1-D int64.
        examples: how many of them count: all, or none where a process only keeps step with the others.
    """

    indices: Tensor
    examples: int


class Placement:
    """A model that is whole in this process, the only one.

    Args:
        taught: see :class:`.problem.Problem`.

    Attributes:
        model: with the parameters that train.
        called: the module that computes the loss, which exchanges gradients if there are other processes.
        workers: the processes.
        sharing: how many of them, neighbours by rank, have parts of the same sequences.
        is_shared: whether no process has all weights.
        saves_parts: whether each process writes its part of a checkpoint, rather than the first one all of it.
    """

    is_shared = saves_parts = False

    def __init__(self, model: nn.Module, workers: Workers = ALONE, taught: nn.Module | None = None) -> None:
        self.model, self.workers = model, workers
        self.called: Any = taught or model
        self.sharing = 1

    def parts(self, indices: Tensor, micro_batch_size: int | None) -> list[_Part]:
        """Examples of each forward and backward pass of this process, of those of a step.

        Every process has the same number of passes, at least one.
        """
        groups = self.workers.size // self.sharing
        most = -(-len(indices) // groups)
        size = min(micro_batch_size or most, most)
        own = indices.tensor_split(groups)[self.workers.rank // self.sharing]
        parts = [_Part(part, len(part)) for part in own.split(size) if len(part)]
        idle = _Part(indices[:1], 0)
        return parts + [idle] * (-(-most // size) - len(parts))

    def backward(self, loss: Tensor, share: float | Tensor) -> None:
        """Add the gradients of a part's loss, which has this share of the loss of the step."""
        factor = share * self.workers.size
        (loss if isinstance(factor, float) and factor == 1.0 else loss * factor).backward()

    def share_sequences(self, size: int) -> None:
        """Let so many neighbours by rank have parts of the same sequences; all processes do so at once."""
        group, _ = dist.new_subgroups(size)
        self.sharing = size
        self.called = ContextParallel(cast(Any, self.model), self.called, group=group)

    def passing(self, *, last: bool) -> AbstractContextManager[Any]:
        """Context of a forward and backward pass, the last of a step or not."""
        return nullcontext()

    def measuring(self) -> AbstractContextManager[Any]:
        """Context of forward passes without backward passes."""
        return torch.inference_mode()

    def weights(self) -> dict[str, Tensor]:
        """The state dict of the model, whole, in the first process; empty in others, all of which ask for it."""
        return whole_weights(self.model, keep=self.workers.first)

    def values(self, state: Any) -> Any:
        """The state of an optimiser, likewise."""
        return whole_values(state, keep=self.workers.first)


class Replicated(Placement):
    """A model of which every process has a copy (DDP)."""

    def __init__(self, model: nn.Module, workers: Workers, taught: nn.Module | None = None) -> None:
        super().__init__(model, workers)
        kind: Any = nn.parallel.DistributedDataParallel
        known = inspect.signature(kind).parameters
        sync = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # in older versions
        how: dict[str, Any] = {sync: False, "find_unused_parameters": taught is not None}  # an objective may use a part
        self._copied = self.called = kind(taught or model, gradient_as_bucket_view=True, **how)

    def passing(self, *, last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if last else self._copied.no_sync()

    def settle(self, problem: Problem, device: torch.device) -> None:
        """Take a backward pass that changes nothing, after which DDP has gradients in the order in which they arrive.

        It would reorder them after the first step otherwise, and sums over more than two processes are rounded
        according to where a number lies: after a restart, one step would have other bits than without.
        """
        if self.workers.size <= 2:
            return
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            self.model.train()
            problem.step_loss(self.called, problem.train.batch(torch.zeros(1, dtype=torch.int64)))[0].backward()
        self.model.zero_grad(set_to_none=True)


class Sharded(Placement):
    """A model of whose parameters every process has a part, gathered block by block (FSDP2).

    Args:
        shard_size: processes among which it is sharded; there is a copy for each so many.
        gathered_as: dtype in which the weights of blocks are gathered; None: their own, in which gradients are added
            up always.
        taught: see :class:`.problem.Problem`; it is called with all gathered that is in no block.
    """

    def __init__(
        self,
        model: nn.Module,
        workers: Workers,
        device: torch.device,
        *,
        shard_size: int | None = None,
        gathered_as: torch.dtype | None = None,
        taught: nn.Module | None = None,
    ) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

        super().__init__(model, workers)
        self.is_shared, self.saves_parts = True, _writes_safetensors_in_parts()
        size = shard_size or workers.size
        copies = workers.size // size
        shape, names = ((workers.size,), None) if copies == 1 else ((copies, size), ("replicate", "shard"))
        mesh = init_device_mesh(device.type, shape, mesh_dim_names=names)
        lowered = MixedPrecisionPolicy(gathered_as, torch.float32, cast_forward_inputs=False)
        for group in sharding_groups(model, lowered=gathered_as is not None):
            modules = group.modules[0] if len(group.modules) == 1 else list(group.modules)
            fully_shard(modules, mesh=mesh, mp_policy=lowered if group.lowered else MixedPrecisionPolicy())
        if taught is not None:
            root: Any = model
            root.taught_forward = taught.forward
            register_fsdp_forward_method(root, "taught_forward")
            self.called = root.taught_forward

    @contextmanager
    def passing(self, *, last: bool) -> Iterator[None]:
        """Gradients are sharded after each pass, which bounds memory, and exchanged between copies after the last."""
        model: Any = self.model
        model.set_requires_all_reduce(last)
        yield

    @contextmanager
    def measuring(self) -> Iterator[None]:
        model: Any = self.model
        with torch.no_grad():  # what inference mode gathers cannot be trained on
            yield
        model.reshard()


def place_model(problem: Problem, device: torch.device, machine: MachineConfig, workers: Workers = ALONE) -> Placement:
    """Place the model of a problem as a configuration says, on the device of each process.

    A model without values gets its initial ones.
    """
    model = problem.model
    options = machine if isinstance(machine, ParallelMachineConfig) else ParallelMachineConfig()
    if options.compile:
        for block in blocks_of(model):
            block.compile()
    if workers.connected and options.parallel == "shard":
        precision = {"shard_size": options.shard_size, "gathered_as": options.autocast}
        placement: Placement = Sharded(model, workers, device, taught=problem.taught, **precision)
    else:
        placement = Placement(model, workers, problem.taught)
    if problem.draw is not None:
        model.to_empty(device=device)
        problem.draw()
    if workers.connected and options.parallel == "replicate":
        placement = Replicated(model, workers, problem.taught)
    if workers.connected and options.context_parallel > 1:
        placement.share_sequences(options.context_parallel)
    if isinstance(placement, Replicated):
        placement.settle(problem, device)
    return placement


def check_divisible(loop: LoopConfig | StepLoopConfig, machine: MachineConfig, workers: Workers) -> None:
    """Check that a step can be divided among processes, and a model if it is to be.

    Raises:
        ValueError: naming the key, and the number of processes.
    """
    size, processes = workers.size, f"the {workers.size} processes"
    sharing = machine.context_parallel if isinstance(machine, ParallelMachineConfig) else 1
    check(size % sharing == 0, "machine.context_parallel", f"a divisor of {processes}", sharing)
    by = processes if sharing == 1 else f"the {size // sharing} groups of {sharing} processes"
    check(loop.batch_size % (size // sharing) == 0, "loop.batch_size", f"a multiple of {by}", loop.batch_size)
    if isinstance(machine, ParallelMachineConfig):
        shard_size = machine.shard_size
        fits = shard_size is None or size % shard_size == 0
        check(fits, "machine.shard_size", f"null or a divisor of {processes}", shard_size)


def _writes_safetensors_in_parts() -> bool:
    """Whether PyTorch is new enough for that."""
    from torch.distributed import checkpoint

    writer = getattr(checkpoint, "HuggingFaceStorageWriter", None)
    return writer is not None and "save_distributed" in inspect.signature(writer).parameters
