"""Formulas of the relational architectures that came before, as far as they have products of their own.

Symbols: B batch, N objects, d width of an object, k width of a key, H heads, h width of the controller.
"""

from __future__ import annotations

from torch import nn

from ..baselines import ESBN, ContextNorm, CoRelNet, PrediNet
from .attention import Pattern, learns, library_attention
from .flops import Flops, product
from .registry import Call, register, register_container

register_container(ContextNorm, part="norms")


@register(CoRelNet, part="relations", whole=False)
def corelnet(call: Call) -> None:
    """Similarities of all pairs, 2 B N^2 d."""
    batch, n, width = call["x"].shape
    call.product(batch, n, width, n)


@register(PrediNet, part="relations")
def predinet(call: Call) -> None:
    """Queries from all objects side by side, attention to them, and twice the relations of what was attended."""
    layer, x = call.module, call["x"]
    batch, n, d_model = x.shape
    heads, width = layer.n_heads, d_model + layer.position_dim
    call.linear(layer.wk, rows=batch * n)
    call.linear(layer.wq1, rows=batch)
    call.linear(layer.wq2, rows=batch, shares_input=True)
    gradients = (True, True, x.requires_grad)
    pattern = Pattern(2, n, False, None)
    if call["padding_mask"] is not None:
        pattern = Pattern(2, n, False, None, True, batch)
    library_attention(call, pattern, batch, heads, 1, layer.key_dim, width, 0.0, gradients=gradients)
    for _ in range(2):
        call.linear(layer.ws, rows=batch * heads, shares_input=True)
    numbers = batch * (2 * n * width + heads * 2 * (layer.key_dim + width))
    call.workspace = numbers * call.setting.dtype.itemsize


@register(nn.LSTMCell, part="controller", whole=False)
def lstm_cell(call: Call) -> None:
    """Four gates from input and state, 8 B h (inputs + h)."""
    cell, x, state = call.module, call["input"], call["hx"]
    for factor, weight in ((x, cell.weight_ih), (None if state is None else state[0], cell.weight_hh)):
        gradients = weight.requires_grad + (factor is not None and factor.requires_grad)
        call.product(x.shape[0], weight.shape[1], weight.shape[0], gradients=gradients)


@register(ESBN, part="controller", whole=False)
def esbn(call: Call) -> None:
    """Inner products of all objects, 2 B N^2 d, and keys under the weights of those before, B N (N - 1) k."""
    layer = call.module
    batch, n, width = call["x"].shape
    learning = call["x"].requires_grad or layer.context_norm is not None
    call.product(batch, n, width, n, gradients=2 * learning)
    for earlier in range(n):
        call.product(batch, earlier, layer.key_dim, gradients=learning + learns(layer.to_key, call["x"]))
    # The key of the last object is never read, so what made it has no gradient.
    call.add(Flops(backward=-2 * product(batch, layer.hidden_dim, layer.key_dim).forward))
