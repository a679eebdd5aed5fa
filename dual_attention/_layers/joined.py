"""Attention weights of several kinds of head as one tensor, on which their output depends.

A kind of head uses its weights as soon as it has them, so no tensor with the weights of all kinds stands before the
output. Here one is put there afterwards::

    weights ─▶ output        becomes        weights ─▶ joined ─▶ parts ─▶ output

Shapes: B batch, H_k heads of kind k, N receivers, M senders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..functional.derivatives import is_traced, needs_plain


def join_weights(output: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor]]:
    """The same output and the weights ``(B, H_k, N, M)`` behind it, in a graph where these are views of one tensor.

    That is ``(B, sum_k H_k, N, M)``. They come back as they are if no gradients are wanted of the output or of them, if
    their sizes or types do not go together, and where derivatives are not taken by autograd itself: compiled, traced,
    by ``torch.func``, or forwards. An output that does not depend on them gives them gradients of zero.
    """
    wanted = output.requires_grad and weights[0].requires_grad
    if is_traced() or not wanted or needs_plain(output, *weights):
        return output, weights  # before sizes are compared: traced ones may be symbols, which no set holds
    if len({(w.dtype, w.requires_grad, w.shape[0], *w.shape[2:]) for w in weights}) != 1:
        return output, weights
    parts = torch.cat(list(weights), dim=1).split([w.shape[1] for w in weights], dim=1)
    return _Through.apply(output, *parts, *weights), parts


def joined_weights(weights: Sequence[Tensor]) -> Tensor:
    """The tensor ``(B, sum_k H_k, N, M)`` that weights are views of after :func:`join_weights`, or else a new one."""
    joined = None
    if not is_traced() and (node := weights[0].grad_fn) is not None:
        are_parts = all(w.grad_fn is node and w.output_nr == part for part, w in enumerate(weights))
        joined = weights[0]._base if are_parts else None
    return torch.cat(list(weights), dim=1) if joined is None else joined


class _Through(torch.autograd.Function):
    """The identity on an output, whose backward pass goes to the weights by way of equal ``parts``.

    The gradient goes to ``parts``; the weights get its negative, so that nothing is counted twice.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(output, *tensors[len(tensors) // 2 :])
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        output, *weights = ctx.saved_tensors
        options = {"create_graph": torch.is_grad_enabled(), "allow_unused": True, "materialize_grads": True}
        found = torch.autograd.grad(output, weights, grads, retain_graph=True, **options)
        return *grads, *found, *(-grad for grad in found)
