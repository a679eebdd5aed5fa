"""Hooks that see what a model does on the meta device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ..dual_attention import DualAttention
from ..functional import RelativeSymbols
from ..transformer_blocks import Block
from .flops import Flops
from .registry import REGISTRY, Call, Entry, Formula, Saved, Setting, storage_bytes


@dataclass
class Visit:
    """A call of a module with a formula, or what was kept between such modules.

    Attributes:
        name: of the module in its model.
        part: heading of its figures.
        flops, saved, casts, tail, workspace, kept_forward, kept_backward, cached, context_cached: as in
            :class:`.registry.Call`.
        gradients: bytes of the gradients that live in its backward pass: within, of its result and beside it, and of
            its largest parameter.
        held: tensors that live while it runs: its arguments and those of the modules around it, and what these have
            computed before and not yet dropped.
        block: number of the checkpointed block it is in, or None.
    """

    name: str
    part: str
    flops: Flops = field(default_factory=Flops)
    saved: Saved = field(default_factory=list)
    casts: list[Tensor] = field(default_factory=list)
    tail: int = 0
    workspace: int = 0
    kept_forward: int = 0
    kept_backward: int = 0
    gradients: int = 0
    held: list[Tensor] = field(default_factory=list)
    cached: list[tuple[int, int | None]] = field(default_factory=list)
    context_cached: int = 0
    block: int | None = None


@dataclass
class Frame:
    """A module that is running.

    Attributes:
        name: in its model.
        args, kwargs: its arguments.
        holds_results: whether its variables hold what the parts before have computed, while the next one runs.
        has_own_products: whether its formula tells of products in its own ``forward``.
        results: arguments and results of these, if so.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    holds_results: bool = False
    has_own_products: bool = False
    results: list[Tensor] = field(default_factory=list)


HOLDS_RESULTS = (Block, DualAttention)
"""Modules whose variables hold what their parts have computed."""


class Watcher:
    """Hooks on all modules of a model."""

    def __init__(self, setting: Setting, checkpointing: bool) -> None:
        self.setting = setting
        self.checkpointing = checkpointing
        self.visits: list[Visit] = []
        self.part_of: dict[int, str] = {}
        self.handles: list[Any] = []
        self.frames: list[Frame] = []
        self.described = 0  # modules with a formula that are running
        self.block: int | None = None
        self.blocks = 0
        self.depth = 0  # of blocks within blocks
        self._begin_between()

    @property
    def where(self) -> str:
        """Name of the innermost module that is running."""
        return (self.frames[-1].name if self.frames else "") or "the model itself"

    @property
    def expects_products(self) -> bool:
        """Whether a formula tells of the matrix products that are computed now."""
        return self.described > 0 or (bool(self.frames) and self.frames[-1].has_own_products)

    def attach(self, module: nn.Module, name: str = "") -> None:
        """Hook a module and what it consists of, once each.

        Raises:
            ValueError: if a module with parameters of its own has no formula.
        """
        if id(module) in self.part_of:
            return
        entry = REGISTRY.find(module)
        own = [key for key, parameter in module._parameters.items() if parameter is not None]
        if entry is None and own:
            raise ValueError(
                f"no formula for {type(module).__name__} ({name or 'the model itself'}), which has the parameters "
                f"{', '.join(own)}: give it one with dual_attention.estimate.register"
            )
        self.part_of[id(module)] = heading(entry, name)
        if self.checkpointing and hasattr(module, "gradient_checkpointing") and hasattr(module, "_block"):
            self._checkpoint_steps(module, name)
        self.handles.append(module.register_forward_pre_hook(self._before(name, entry), with_kwargs=True))
        self.handles.append(module.register_forward_hook(self._after(entry), with_kwargs=True))
        if is_whole(entry):
            for child in module.modules():
                self.part_of.setdefault(id(child), heading(entry, name))
        else:
            for key, child in module.named_children():
                self.attach(child, f"{name}.{key}" if name else key)

    def detach(self) -> None:
        """Remove all hooks."""
        for handle in self.handles:
            handle.remove()

    def keep(self, tensor: Tensor) -> Tensor:
        """See a tensor that autograd keeps."""
        if not self.described:
            self.between.saved.append((tensor, storage_bytes(tensor)))
        return tensor

    def begin_loss(self) -> None:
        """What comes now belongs to the loss."""
        self._begin_between("loss")

    def _begin_between(self, part: str = "between modules") -> None:
        self.between = Visit(self.where, part, block=self.block)
        self.visits.append(self.between)

    def _before(self, name: str, entry: Entry | None) -> Callable[..., Any]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            own = entry is not None and entry.formula is not None and not entry.whole
            self.frames.append(Frame(name, args, kwargs, isinstance(module, HOLDS_RESULTS), own))
            if self.checkpointing and isinstance(module, Block):
                self._enter_block(name, args, kwargs)
            if not is_whole(entry):
                return None
            self.described += 1
            if not self.setting.autocast:
                return None
            return cast(args, self.setting.param_dtype), cast(kwargs, self.setting.param_dtype)

        return hook

    def _after(self, entry: Entry | None) -> Callable[..., Any]:
        def hook(module: nn.Module, _: Any, __: Any, output: Any) -> Any:
            if entry is not None and entry.formula is not None:
                output = self._describe(module, entry, entry.formula, output)
            frame = self.frames.pop()
            if self.checkpointing and isinstance(module, Block):
                self._leave_block()
            if self.frames and self.frames[-1].holds_results:
                self.frames[-1].results.extend(tensors_in(frame.args, frame.kwargs, output))
            return output

        return hook

    def _describe(self, module: nn.Module, entry: Entry, formula: Formula, output: Any) -> Any:
        """Let the formula describe the call that ends; returns the result, as autocast would have it."""
        frame = self.frames[-1]
        if entry.whole:
            self.described -= 1
            output = cast(output, self._result_dtype(entry, frame))
        call = Call.of(module, frame.args, frame.kwargs, output, self.setting)
        formula(call)
        part = heading(entry, frame.name)
        if part == "self-attention" and call["key"] is not call["query"]:
            part = "cross-attention"
        if entry.whole:
            self.part_of.update({id(child): part for child in module.modules()})
        visit = Visit(frame.name, part, call.flops, call.saved, call.casts, call.tail, call.workspace)
        visit.kept_forward, visit.kept_backward = call.kept_forward, call.kept_backward
        weights = [storage_bytes(weight) for weight in module.parameters() if weight.requires_grad]
        visit.gradients = (call.gradients or call.workspace) + 2 * call.result_bytes + max(weights, default=0)
        visit.held = [t for f in self.frames for t in tensors_in(f.args, f.kwargs, f.results)]
        visit.cached, visit.context_cached, visit.block = call.cached, call.context_cached, self.block
        self.visits.append(visit)
        self._begin_between()
        return output

    def _result_dtype(self, entry: Entry, frame: Frame) -> torch.dtype | None:
        """Dtype that autocast gives a result; None leaves it as it is."""
        if not self.setting.autocast:
            return None
        if entry.autocast == "products":
            return self.setting.dtype
        if entry.autocast == "wide":
            return self.setting.wide
        first = next((t for t in tensors_in(frame.args, frame.kwargs) if t.is_floating_point()), None)
        return None if first is None else first.dtype

    def _enter_block(self, name: str, *arguments: Any) -> None:
        """Begin a checkpointed block, unless it is within another."""
        self.depth += 1
        if self.depth == 1:
            self.block, self.blocks = self.blocks, self.blocks + 1
            saved: Saved = [(tensor, storage_bytes(tensor)) for tensor in tensors_in(*arguments)]
            self.visits.append(Visit(name, "checkpoints", saved=saved))
            self._begin_between()

    def _leave_block(self) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.block = None
            self._begin_between()

    def _checkpoint_steps(self, module: Any, name: str) -> None:
        """Treat each step of a model that checkpoints its own steps as a block; they hold more than the block."""
        step = module._block

        def block(*args: Any, **kwargs: Any) -> Any:
            self._enter_block(name, args, kwargs)
            result = step(*args, **kwargs)
            self._leave_block()
            return result

        module._block = block


OURS = "dual_attention"
"""Namespace of the library's own operations."""


class Guard(TorchDispatchMode):
    """Refuses matrix products outside of modules with a formula."""

    def __init__(self, watcher: Watcher) -> None:
        from torch.utils.flop_counter import flop_registry

        super().__init__()
        self.watcher = watcher
        self.products = set(flop_registry)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        counted = func._overloadpacket in self.products or func.namespace == OURS
        if counted and not self.watcher.expects_products:
            raise ValueError(
                f"{self.watcher.where} computes {func._overloadpacket} outside of modules with a formula, where it "
                "would not be counted: give its type a formula with dual_attention.estimate.register"
            )
        return func(*args, **(kwargs or {}))


def is_whole(entry: Entry | None) -> bool:
    """Whether a formula describes all that happens within a module."""
    return entry is not None and entry.formula is not None and entry.whole


OUTPUT_NAMES = ("final_out", "lm_head", "head", "classifier", "decoder")
"""Names of what makes a model's output."""


def heading(entry: Entry | None, name: str) -> str:
    """Heading under which a module's figures are added up."""
    if entry is None:
        return "other"
    if entry.part == "linear maps":
        if any(level in OUTPUT_NAMES for level in name.split(".")):
            return "output"
        if "embed" in name:
            return "embeddings"
    return entry.part


def tensors_in(*values: Any) -> Iterable[Tensor]:
    """All tensors among arguments."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, RelativeSymbols):
            yield value.library
        elif isinstance(value, Mapping):
            yield from tensors_in(*value.values())
        elif isinstance(value, tuple | list):
            yield from tensors_in(*value)


def cast(value: Any, dtype: torch.dtype | None) -> Any:
    """Floating-point tensors among arguments or results in another dtype; None leaves them."""
    if dtype is None:
        return value
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, RelativeSymbols):
        return value.with_library(cast(value.library, dtype))
    if isinstance(value, dict):
        return {key: cast(item, dtype) for key, item in value.items()}
    if isinstance(value, tuple):
        items = (cast(item, dtype) for item in value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value
