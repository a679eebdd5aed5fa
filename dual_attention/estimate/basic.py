"""Formulas of the parts that all models share: linear maps, norms, dropout, embeddings, feed-forward blocks.

Symbols: B batch, L length, d width of the model.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functional.activations import Activation
from ..positional_encoding import (
    LearnedPositionalEmbeddings,
    RelativePositionalEncoding,
    RotaryPositionalEncoding,
    SinusoidalPositionalEncoding,
)
from ..transformer_blocks import FeedForwardBlock, RMSNorm
from ..vision_models import VisionDualAttnTransformer, VisionTransformer
from .registry import Call, register, register_container


@register(nn.Linear, part="linear maps")
def linear(call: Call) -> None:
    """2 rows in out, and as much again for each gradient; the input is kept."""
    assert isinstance(call.module, nn.Linear)
    call.linear(call.module, call["input"])
    call.workspace = call.result_bytes


@register(FeedForwardBlock, part="feed-forward")
def feed_forward(call: Call) -> None:
    """Two products of d and dff a token, three for SwiGLU."""
    block = call.module
    assert isinstance(block, FeedForwardBlock)
    x = call["x"]
    rows = x.numel() // x.shape[-1]
    hidden = rows * block.linear1.out_features
    call.linear(block.linear1, x)
    if block.linear3 is not None:
        call.linear(block.linear3, x)
        call.save(3 * hidden)  # what is activated, the activated, the gate's other factor
    else:
        call.save((kept_by(block.activation, result_is_kept=True) - 1) * hidden)  # the next map keeps the result
    call.linear(block.linear2, rows=rows)
    call.tail = 2 * rows * block.linear2.in_features * block.linear2.out_features
    factors = 2 if block.linear3 is not None else 1
    call.workspace = (1 + factors) * hidden * call.setting.dtype.itemsize
    call.gradients = factors * hidden * call.setting.dtype.itemsize


def kept_by(activation: str | Activation, *, result_is_kept: bool) -> int:
    """Tensors that the backward pass through an activation needs: its argument, its result, or none.

    Args:
        result_is_kept: what follows keeps the result anyway, which then counts once.
    """
    if activation == "identity":
        return int(result_is_kept)
    if activation in ("relu", "sigmoid", "tanh", "softmax"):
        return 1
    return 1 + result_is_kept


@register(nn.LayerNorm, part="norms", autocast="wide")
def layer_norm(call: Call) -> None:
    """No product. Keeps its argument, and mean and deviation of each row."""
    x = call["input"]
    call.keep(x)
    call.save(2 * (x.numel() // x.shape[-1]), statistics(call, x))
    call.workspace = call.result_bytes


def statistics(call: Call, x: Tensor) -> torch.dtype:
    """Dtype in which LayerNorm keeps mean and deviation."""
    if call.setting.device == "cuda" or call.setting.autocast:
        return torch.promote_types(x.dtype, torch.float32)
    return x.dtype


@register(RMSNorm, part="norms", autocast="wide")
def rms_norm(call: Call) -> None:
    """No product. Keeps its argument in float32 or wider, one number for each row, and what the weight scales."""
    x = call["x"]
    wide = torch.promote_types(x.dtype, torch.float32)
    if x.dtype == wide:
        call.keep(x)
    else:
        call.save(x.numel(), wide)
    call.save(x.numel() // x.shape[-1], wide)
    call.save(x.numel(), x.dtype)
    call.workspace = 3 * x.numel() * wide.itemsize


@register(nn.Dropout, part="residual stream", autocast="same")
def dropout(call: Call) -> None:
    """No product. Keeps which numbers it dropped."""
    assert isinstance(call.module, nn.Dropout)
    x = call["input"]
    call.dropout(call.module.p, x.numel(), x.dtype)
    call.workspace = call.result_bytes if call.output is not x else 0


@register(nn.Embedding, part="embeddings", autocast="same")
def embedding(call: Call) -> None:
    """A look-up, no product. Keeps the indices."""
    call.keep(call["input"])
    call.workspace = call.result_bytes


@register(SinusoidalPositionalEncoding, LearnedPositionalEmbeddings, part="embeddings", autocast="same")
def added_positions(call: Call) -> None:
    """No product. Keeps what dropout keeps, and positions if they are given."""
    module, x = call.module, call["x"]
    assert isinstance(module, SinusoidalPositionalEncoding | LearnedPositionalEmbeddings)
    call.dropout(module.dropout.p, x.numel(), x.dtype)
    if isinstance(module, LearnedPositionalEmbeddings):
        call.keep(call["positions"])
    call.workspace = 2 * call.result_bytes


@register(RotaryPositionalEncoding, part="embeddings", autocast="same")
def rotary(call: Call) -> None:
    """No product; its tables are no parameters."""
    call.workspace = call.result_bytes


@register(RelativePositionalEncoding, part="embeddings", autocast="same")
def relative_positions(call: Call) -> None:
    """A look-up, no product. Keeps the indices."""
    n, m = call.output.shape[:2]
    call.save(n * m, torch.int64)
    call.workspace = call.result_bytes


register_container(VisionTransformer, VisionDualAttnTransformer, part="embeddings")  # class token and positions
