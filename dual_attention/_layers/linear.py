"""Calling linear layers: as modules, or by faster products where those are and nobody would notice.

The layers are PyTorch's own, not a subclass, so that whatever looks for ``nn.Linear`` (adapters, quantisation,
pruning) finds them. Only where PyTorch's products are slow, see :mod:`~dual_attention.functional.products`, is the
product of one taken without calling it, and only if a call would do nothing but that.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules

from ..functional import products
from ..functional.checks import is_exporting, leaves_pytorch

LINEAR, SEQUENTIAL = nn.Linear.forward, nn.Sequential.forward


def call_linear(layer: nn.Module, x: Tensor) -> Tensor:
    """``layer(x)``, of a linear layer or of anything that has taken its place."""
    if not products.SLOW_ROWS or not _is_plain(x) or not isinstance(layer, nn.Linear):
        return layer(x)
    if not _does_only(layer, nn.Linear, LINEAR):
        return layer(x)
    product = products.compiled_linear if torch.compiler.is_compiling() else products.linear
    return product(x, layer.weight, layer.bias)


def call_sequence(layers: nn.Module, x: Tensor) -> Tensor:
    """``layers(x)``, of a sequence whose linear layers are called by :func:`call_linear`."""
    if not products.SLOW_ROWS or not _is_plain(x) or not _does_only(layers, nn.Sequential, SEQUENTIAL):
        return layers(x)
    for layer in layers.children():
        x = call_linear(layer, x)
    return x


def _is_plain(x: Tensor) -> bool:
    """Whether this is a tensor with numbers, not one that records a program in which modules are to be seen."""
    return type(x) in (Tensor, nn.Parameter) and not is_exporting() and not leaves_pytorch()


def _does_only(layer: nn.Module, kind: type[nn.Module], forward: object) -> bool:
    """Whether a call is this ``forward`` of PyTorch's and nothing else: no subclass, no hook, nothing in its place."""
    if type(layer) is not kind or "forward" in vars(layer) or kind.forward is not forward:
        return False
    return not (
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
        or modules._global_forward_hooks
        or modules._global_forward_pre_hooks
        or modules._global_backward_hooks
        or modules._global_backward_pre_hooks
    )
