"""A dispatch mode that measures what a module does: arithmetic by part, tensors kept, bytes alive."""

import weakref
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch._C._autograd import _get_sequence_nr
from torch._library.custom_ops import OPDEFS
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from dual_attention.functional import RelativeSymbols
from dual_attention.model_analysis.sites import is_tap

from . import least
from .counter import counter_formulas
from .parts import BETWEEN, CHECKPOINTS, LOSS, attends_to_context, headings

T = TypeVar("T")

MOST_PAIRS = 2**20
"""Pairs of as many examples as the inside of a custom operation is followed for; more are taken in turn anyway."""

OPAQUE = ("linear_relational_attention", "linear_relational_attention_backward")
"""Custom operations of the library whose implementation is followed, since they build tensors on the way."""


@dataclass
class Frame:
    """A module that is running, and the least of its own arithmetic, without that of its submodules."""

    part: str
    least: int = 0


@dataclass
class Storage:
    """Memory of a tensor.

    Attributes:
        alive: watches it; None for memory that was there before.
        part: heading of the first module that keeps it for the backward pass, or None.
        is_cast: it is the copy of a parameter in another dtype.
        is_workspace: it belongs to the inside of a custom operation.
    """

    nbytes: int
    alive: Any = None
    part: str | None = None
    is_cast: bool = False
    is_workspace: bool = False


@dataclass
class Kept:
    """Bytes that are alive between forward and backward pass.

    Attributes:
        by_part: saved for the backward pass, by part.
        otherwise: held by other means, as checkpointing holds the arguments of a block.
        inputs: those of ``by_part`` that were there before the call.
        casts: copies of parameters in another dtype, which are in none of these.
    """

    by_part: dict[str, int] = field(default_factory=dict)
    otherwise: int = 0
    inputs: int = 0
    casts: int = 0


class Meter(TorchDispatchMode):
    """Measures the operations of a model that run under it; hooks every module.

    Under ``FakeTensorMode`` nothing is computed and no memory is taken, yet every operation passes here with the
    shapes, dtypes and lifetimes that it would have. Parameters and buffers do not count as alive.

    Args:
        own_products: heading of the model's own work from its first matrix product on, as of a loss at its end.
        checkpointing: modules that pass tensors between others keep them as checkpoints.

    Attributes:
        parts: in the order in which they are met.
        forward, backward, least: operations by part, as :class:`.result.Part` has them.
        live, peak: bytes of the tensors made since, now and at most.
        recomputed: most bytes that computing one checkpointed block again has left alive.
    """

    def __init__(self, model: nn.Module, *, own_products: str | None = None, checkpointing: bool = False) -> None:
        super().__init__()
        self.forward: defaultdict[str, int] = defaultdict(int)
        self.backward: defaultdict[str, int] = defaultdict(int)
        self.least: defaultdict[str, int] = defaultdict(int)
        self.live = self.peak = self.recomputed = 0
        self.formulas = FlopCounterMode(display=False, custom_mapping=counter_formulas()).flop_registry
        self.own_products = own_products
        self.part_of = headings(model)
        if checkpointing:
            self.part_of = {key: CHECKPOINTS if part == BETWEEN else part for key, part in self.part_of.items()}
        self.parts: dict[str, None] = {}
        self.frames: list[Frame] = []
        self.parameters = {_key(parameter) for parameter in model.parameters()}
        self.storages = {_key(tensor): Storage(0) for tensor in (*model.parameters(), *model.buffers())}
        # In the backward pass an operation belongs to the part in which the node that runs it was made.
        self.made_from: list[int] = []
        self.made_in: list[str] = []
        self.is_backward = False
        self.is_inside = False
        self.makes_gradients = False
        self.within: dict[Any, int] = {}
        self.before_recomputing: int | None = None
        self.is_block = False
        for module in model.modules():
            if is_tap(module):  # with hooks, layers would take other steps than they do without
                continue
            module.register_forward_pre_hook(self._enter, with_kwargs=True)
            module.register_forward_hook(self._leave, with_kwargs=True, always_call=True)

    def ignore(self, tensors: Iterable[Tensor]) -> None:
        """Do not count tensors that were there before as alive, unless they are kept."""
        for tensor in tensors:
            self.storages.setdefault(_key(tensor), Storage(tensor.untyped_storage().nbytes()))

    # ---- modules

    @property
    def part(self) -> str:
        """Heading of what runs now."""
        if self.frames:
            return self.frames[-1].part
        if not self.is_backward:
            return LOSS
        node = torch._C._current_autograd_node()
        if node is None or not self.made_from:
            return LOSS
        return self.made_in[max(0, bisect_right(self.made_from, node._sequence_nr()) - 1)]

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.is_block = self.is_backward
        if self.part_of[id(module)] == "self-attention" and attends_to_context(module, args, kwargs):
            self.part_of.update({id(inner): "cross-attention" for inner in module.modules()})
        self.frames.append(Frame(self.part_of[id(module)]))
        self.parts.setdefault(self.part)
        self._mark()

    def _leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], _: Any) -> None:
        frame = self.frames.pop()
        self._mark()
        if not self.is_backward:
            self.least[frame.part] += least.own_work(module, args, kwargs, frame.least)

    def _mark(self, made: int = 0) -> None:
        """Note that nodes of the graph from here on, and the last ``made``, belong to another part."""
        if not self.is_backward:
            self.made_from.append(_get_sequence_nr() - made)
            self.made_in.append(self.part)

    # ---- operations

    def gradients_at_once(self, make: Callable[..., T]) -> Callable[..., T]:
        """``make``, which a loss calls in the forward pass, so that its products count as the backward pass's."""

        def made(*args: Any) -> T:
            self.makes_gradients = True
            try:
                return make(*args)
            finally:
                self.makes_gradients = False

        return made

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:  # half of all calls
            return args[0].fake_device if isinstance(args[0], FakeTensor) else func(*args)
        kwargs = kwargs or {}
        if self.is_inside and func is torch.ops.aten._local_scalar_dense.default:
            return 0  # the seed of a dropout mask
        if self.is_backward and not self.is_inside:
            self._watch_recomputing()
        is_opaque = func.namespace == "dual_attention" and func._opname in OPAQUE
        out = self._run_inside(func, args) if is_opaque else func(*args, **kwargs)
        if not self.is_inside:
            self._count(func, args, kwargs, out)
        self._follow(func, args, out)
        return out

    def _count(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        formula = self.formulas.get(func._overloadpacket)
        if formula is None:
            return
        number = formula(*args, **kwargs, out_val=out)
        if self.own_products is not None and len(self.frames) == 1 and not self.is_backward:
            self.frames[0].part, self.own_products = self.own_products, None
            self._mark(made=1)  # the node of this very operation is there already
        part = self.part
        if self.is_backward or self.makes_gradients:
            self.backward[part] += number
            return
        self.forward[part] += number
        needed = least.of_operation(func, args, kwargs, number)
        self.least[part] += needed
        if self.frames:
            self.frames[-1].least += needed

    def _run_inside(self, func: Any, args: tuple[Any, ...]) -> Any:
        """Results of a custom operation, whose implementation is followed once for each signature."""
        key = func, *((x.shape, x.stride(), x.dtype) if isinstance(x, Tensor) else x for x in args)
        if key not in self.within:
            self.within[key] = self._workspace(func, args)
        out = func(*args)
        self.peak = max(self.peak, self.live + _new_bytes(out) + self.within[key])
        return out

    def _workspace(self, func: Any, args: tuple[Any, ...]) -> int:
        """Most bytes that the implementation of an operation has alive besides its results, for some examples."""
        first = next(arg for arg in args if isinstance(arg, Tensor) and arg.dim() == 4)
        batch, _, n, _ = first.shape
        examples = max(1, MOST_PAIRS // (n * n))
        narrowed = [arg[:examples] if isinstance(arg, Tensor) and arg.shape[:1] == (batch,) else arg for arg in args]
        peak, live = self.peak, self.live
        self.is_inside, self.peak = True, live
        with self:
            results = OPDEFS[f"{func.namespace}::{func._opname}"]._init_fn(*narrowed)
        self.is_inside, peak, self.peak = False, self.peak, peak
        return max(0, peak - live - _new_bytes(results))

    # ---- memory

    def _follow(self, func: Any, args: tuple[Any, ...], out: Any) -> None:
        for tensor in tensors_in(out):
            storage = tensor.untyped_storage()
            key, nbytes = storage._cdata, storage.nbytes()
            if key in self.storages:
                continue
            is_cast = func is torch.ops.aten._to_copy.default and _key(args[0]) in self.parameters
            alive = weakref.ref(storage, partial(self._free, key))
            self.storages[key] = Storage(nbytes, alive, is_cast=is_cast, is_workspace=self.is_inside)
            self.live += nbytes
            self.peak = max(self.peak, self.live)

    def _free(self, key: int, _: Any) -> None:
        self.live -= self.storages.pop(key).nbytes

    def keep(self, tensor: Tensor) -> Tensor:
        """See a tensor that autograd keeps, as a hook of saved tensors."""
        storage = self.storages.get(_key(tensor))
        if storage is not None and storage.part is None and not self.is_backward:
            storage.part = self.part
        return tensor

    def kept(self, leave_out: Iterable[Tensor] = ()) -> Kept:
        """Bytes that are kept for the backward pass now; others hold tensors to be left out, as the loss is."""
        found, left_out = Kept(), {_key(tensor) for tensor in leave_out}
        for key, storage in self.storages.items():
            if storage.is_workspace or (storage.part is None and key in left_out):
                continue
            if storage.is_cast:
                found.casts += storage.nbytes
            elif storage.part is not None:
                found.by_part[storage.part] = found.by_part.get(storage.part, 0) + storage.nbytes
                found.inputs += storage.nbytes if storage.alive is None else 0
            elif storage.alive is not None:
                found.otherwise += storage.nbytes
        return found

    def _watch_recomputing(self) -> None:
        """Note what computing a checkpointed block again leaves alive; modules run then, or gradients are enabled."""
        if self.frames or torch.is_grad_enabled():
            if self.before_recomputing is None:
                self.before_recomputing = self.live
        elif self.before_recomputing is not None:
            if self.is_block:
                self.recomputed = max(self.recomputed, self.live - self.before_recomputing)
            self.before_recomputing, self.is_block = None, False


def _key(tensor: Tensor) -> int:
    """Identity of a tensor's memory."""
    return tensor.untyped_storage()._cdata


def _new_bytes(results: Any) -> int:
    """Bytes of an operation's results."""
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors_in(results))


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors among arguments or results."""
    leaves = (leaf.library if isinstance(leaf, RelativeSymbols) else leaf for leaf in tree_leaves(value))
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]
