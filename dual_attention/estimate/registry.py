"""Formulas of modules by type, and what a formula is given and reports."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .flops import Flops, product

Device = Literal["cpu", "cuda"]
Implementation = Literal["auto", "dense", "linear", "triton"]


@dataclass(frozen=True)
class Setting:
    """What an estimate assumes.

    Attributes:
        dtype: of matrix products.
        param_dtype: of parameters; another one than ``dtype`` means autocast.
        device: decides what dropout keeps (a CPU keeps its factors, CUDA a boolean) and which kernels run.
        training: with gradients and dropout; otherwise without both.
        impl: of relational attention.
    """

    dtype: torch.dtype
    param_dtype: torch.dtype
    device: Device
    training: bool
    impl: Implementation

    @property
    def autocast(self) -> bool:
        """Whether products are computed in another dtype than that of the parameters."""
        return self.dtype != self.param_dtype

    @property
    def wide(self) -> torch.dtype:
        """Of sums and statistics: float32 or wider."""
        return torch.promote_types(self.dtype, torch.float32)


Saved = list[tuple[Tensor | None, int]]
"""Tensors and bytes; None is a tensor of its own."""


class Call:
    """One call of a module on the meta device, for its formula to describe.

    Attributes:
        module: the module.
        output, result: what it returned, and the tensor of that, or None.
        differentiable: whether there is a backward pass through it.
        setting: what is assumed.
        flops: arithmetic so far; see :meth:`product` and :meth:`add`.
        saved: tensors kept for the backward pass: pairs of a tensor, whose storage counts once however often it is
            kept, or None, and bytes; see :meth:`save` and :meth:`keep`.
        casts: parameters of which autocast keeps a copy in the dtype of products; see :meth:`cast`.
        tail: forward arithmetic after the last tensor that is kept; recomputing the module spares it.
        workspace: bytes that the forward pass needs besides its arguments at its worst moment, its result included.
        gradients: bytes of the gradients within at the worst moment of the backward pass, approximately; 0 stands for
            as many as ``workspace``.
        kept_forward, kept_backward: bytes of the workspace that stay for the next call, after a forward pass alone and
            after a backward pass; they are not in ``workspace`` and ``gradients``.
        cached: what decoding keeps: pairs of numbers for each token and a window, or None.
        context_cached: numbers that decoding keeps for each token of a context.
    """

    def __init__(self, module: nn.Module, arguments: dict[str, Any], output: Any, setting: Setting) -> None:
        self.module: Any = module
        self.arguments = arguments
        self.output = output
        self.setting = setting
        self.flops = Flops()
        self.saved: Saved = []
        self.casts: list[Tensor] = []
        self.tail = 0
        self.workspace = 0
        self.gradients = 0
        self.kept_forward = self.kept_backward = 0
        self.cached: list[tuple[int, int | None]] = []
        self.context_cached = 0
        self.result = output if isinstance(output, Tensor) else getattr(output, "output", None)
        self.differentiable = setting.training and (self.result is None or self.result.requires_grad)

    @classmethod
    def of(
        cls, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, setting: Setting
    ) -> Call:
        """The call of ``module`` with these arguments."""
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
        bound.apply_defaults()
        return cls(module, bound.arguments, output, setting)

    @property
    def result_bytes(self) -> int:
        """Bytes of the result."""
        return 0 if self.result is None else self.result.numel() * self.result.itemsize

    def __getitem__(self, name: str) -> Any:
        """The argument of that name."""
        return self.arguments[name]

    def add(self, flops: Flops) -> None:
        """Add arithmetic; its backward part only if there is a backward pass."""
        self.flops += flops if self.differentiable else Flops(flops.forward, 0, flops.least)

    def product(self, *sizes: int, gradients: int = 2, least: int | None = None) -> None:
        """Add a matrix product, see :func:`.flops.product`; ``least`` if fewer operations would do."""
        flops = product(*sizes, gradients=gradients)
        self.add(flops if least is None else flops.with_least(least))

    def save(self, numbers: int, dtype: torch.dtype | None = None) -> None:
        """Keep numbers of a tensor of its own for the backward pass, by default in the dtype of products."""
        if self.differentiable:
            self.saved.append((None, numbers * (self.setting.dtype if dtype is None else dtype).itemsize))

    def keep(self, tensor: Tensor | None) -> None:
        """Keep an argument or the result for the backward pass; its storage counts once in a whole model."""
        if self.differentiable and tensor is not None:
            self.saved.append((tensor, storage_bytes(tensor)))

    def linear(
        self, layer: nn.Linear, x: Tensor | None = None, *, rows: int | None = None, shares_input: bool = False
    ) -> None:
        """A linear map of an argument ``x``, or of ``rows`` rows of a tensor within the module.

        Args:
            shares_input: its input is kept anyway.
        """
        if x is not None:
            rows = x.numel() // layer.in_features
        assert rows is not None
        needs = x is None or x.requires_grad
        weight = layer.weight.requires_grad
        self.product(rows, layer.in_features, layer.out_features, gradients=needs + weight)
        if needs:
            self.cast(layer.weight)
        if layer.bias is not None:
            self.cast(layer.bias)
        if weight and not shares_input:
            self.keep_product_input(x, rows * layer.in_features)
            self.cast(layer.weight)

    def keep_product_input(self, x: Tensor | None, numbers: int) -> None:
        """Keep a factor of a product: an argument itself, unless it must be copied or cast, or a tensor within."""
        if x is None or x.dtype != self.setting.dtype or not _flattens(x):
            self.save(numbers)
        else:
            self.keep(x)

    def cast(self, parameter: Tensor) -> None:
        """Under autocast, keep a parameter's copy in the dtype of products, once in a whole model."""
        if self.setting.autocast and self.differentiable:
            self.casts.append(parameter)

    def dropout(self, rate: float, numbers: int, dtype: torch.dtype | None = None) -> None:
        """What dropout keeps: its factors on a CPU, a boolean on CUDA."""
        if rate and self.setting.training:
            self.save(numbers, torch.bool if self.setting.device == "cuda" else dtype)


def _flattens(x: Tensor) -> bool:
    """Whether all axes but the last can be merged without a copy."""
    return x.reshape(-1, x.shape[-1]).untyped_storage()._cdata == x.untyped_storage()._cdata


def storage_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's memory, that of which it is a view included."""
    return tensor.untyped_storage().nbytes()


Formula = Callable[[Call], None]
Autocast = Literal["products", "wide", "same"]


@dataclass(frozen=True)
class Entry:
    """What is known of a type of module.

    Attributes:
        formula: describes a call; None for a container with parameters of its own, but no products.
        part: heading under which its figures are added up.
        whole: whether the formula describes its children, too, and what is kept; otherwise these are described one by
            one, and what it keeps itself is seen as it happens.
        autocast: dtype of the result under autocast: that of products, float32, or that of the argument.
    """

    formula: Formula | None
    part: str
    whole: bool = True
    autocast: Autocast = "products"


@dataclass
class Registry:
    """Entries by type of module; a type without one has that of its nearest base class."""

    entries: dict[type[nn.Module], Entry] = field(default_factory=dict)

    def find(self, module: nn.Module) -> Entry | None:
        """The entry of a module's type, or None."""
        return next((self.entries[kind] for kind in type(module).__mro__ if kind in self.entries), None)


REGISTRY = Registry()


def register(
    *kinds: type[nn.Module], part: str, whole: bool = True, autocast: Autocast = "products"
) -> Callable[[Formula], Formula]:
    """Decorator: use a function as the formula of these types of module.

    Example::

        @register(MyLayer, part="my layers")
        def my_layer(call):
            call.linear(call.module.map, call["x"])

    Args:
        kinds: types; their subclasses have the formula too, unless one has its own.
        part: heading under which the figures are added up.
        whole: the formula describes the module with all that it consists of. Otherwise it says which products the
            module's own ``forward`` computes beside those of its children.
        autocast: dtype of the result under autocast: ``"products"``, as linear maps give it; ``"wide"``, float32;
            ``"same"``, that of the first argument.
    """

    def keep(formula: Formula) -> Formula:
        for kind in kinds:
            REGISTRY.entries[kind] = Entry(formula, part, whole, autocast)
        return formula

    return keep


def register_container(*kinds: type[nn.Module], part: str) -> None:
    """Say that modules of these types have parameters of their own, but compute no matrix products with them."""
    for kind in kinds:
        REGISTRY.entries[kind] = Entry(None, part)
