"""Losses: cross-entropy of tokens, from logits or without ever holding all logits, and squared error of vectors.

Shapes: ``...`` any axes (batch, length), T all of them together (tokens), d width of the hidden states, V size of the
vocabulary.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from .checks import check_floating, check_floating_tensors, check_same_device, check_tensor, is_autocast, is_readable
from .derivatives import needs_plain
from .triton import support

Reduction = Literal["mean", "sum", "none"]

# Logits that are held at a time unless `chunk_size` says otherwise: 128 MiB in float32.
LOGITS_AT_A_TIME = 2**25


def cross_entropy(logits: Tensor, targets: Tensor, *, ignore_index: int = -1, reduction: Reduction = "mean") -> Tensor:
    """Cross-entropy of predicted distributions, in float32 or wider.

    Math: loss_t = log sum_v exp(z_tv) - z_t,y_t, and 0 where y_t = ignore_index; mean over the others

    Args:
        logits: ``(..., V)``.
        targets: integers ``(...)``, 0 to V - 1 or ``ignore_index``.
        reduction: mean over the targets that are not ignored (zero if all are), sum, or none.

    Returns:
        A scalar, or ``(...)`` without reduction.

    Raises:
        TypeError: if targets are not integers.
        ValueError: if shapes disagree, or a target on the CPU is out of range.

    >>> cross_entropy(torch.zeros(2, 4), torch.tensor([3, -1]))
    tensor(1.3863)
    """
    check_floating("logits", logits)
    if not logits.dim():
        raise ValueError("logits: expected shape (..., V), got ()")
    check_same_device(logits=logits, targets=targets)
    targets = _check_targets(targets, logits.shape[:-1], logits.shape[-1], ignore_index)
    wide = torch.promote_types(logits.dtype, torch.float32)
    losses = F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]).to(wide), targets.flatten(), ignore_index=ignore_index, reduction="none"
    )
    return _reduce(losses.view(targets.shape), targets, ignore_index, reduction)


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    bias: Tensor | None = None,
    *,
    ignore_index: int = -1,
    reduction: Reduction = "mean",
    chunk_size: int | None = None,
) -> Tensor:
    """``cross_entropy(linear(hidden, weight, bias), targets)``, some tokens at a time.

    Logits are computed for a chunk of tokens, reduced and dropped: memory for one chunk. The gradients of a mean or a
    sum are made of them in the same pass, and kept for the backward pass. Logits are computed a second time there
    without reduction, in float16, whose gradients may need the factor of a ``GradScaler``, and for second derivatives.
    For forward derivatives and those of ``torch.func`` all logits are kept. Under autocast matrix products are in the
    lower precision; the rest is in float32 or wider always, and the gradient of ``weight`` is summed over chunks in
    that.

    Args:
        hidden: ``(..., d)``.
        weight: ``(V, d)``; bias: ``(V,)``.
        targets, ignore_index, reduction: as :func:`cross_entropy`, like the result and the errors.
        chunk_size: tokens at a time; by default so many that their logits are 2^25 numbers.

    Raises:
        TypeError: also if dtypes differ outside autocast.
        ValueError: also if ``chunk_size`` is not positive.

    >>> hidden, weight, targets = torch.randn(6, 8), torch.randn(50, 8), torch.randint(50, (6,))
    >>> loss = linear_cross_entropy(hidden, weight, targets, chunk_size=2)
    >>> torch.allclose(loss, cross_entropy(hidden @ weight.T, targets))
    True
    """
    check_floating_tensors(hidden=hidden, weight=weight)
    if weight.dim() != 2 or not hidden.dim() or hidden.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"weight: expected shape (vocabulary, {hidden.shape[-1]}) for hidden states of shape "
            f"{tuple(hidden.shape)}, got {tuple(weight.shape)}"
        )
    if bias is not None and tuple(bias.shape) != (len(weight),):
        raise ValueError(f"bias: expected shape {(len(weight),)}, got {tuple(bias.shape)}")
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size: expected at least one token, got {chunk_size}")
    targets = _check_targets(targets, hidden.shape[:-1], len(weight), ignore_index)
    chunk_size = max(1, LOGITS_AT_A_TIME // len(weight)) if chunk_size is None else chunk_size
    precision = _matmul_dtype(hidden, weight, bias)
    compute = _losses if needs_plain(hidden, weight, bias) else _LinearCrossEntropy.apply
    rows = hidden.reshape(-1, hidden.shape[-1])
    call = rows, weight, bias, targets.flatten(), ignore_index, chunk_size, precision
    wanted = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (hidden, weight, bias))
    if wanted and compute is not _losses and precision != torch.float16 and reduction in ("mean", "sum"):
        return _ReducedLinearCrossEntropy.apply(*call, reduction)
    return _reduce(compute(*call).view(targets.shape), targets, ignore_index, reduction)


def _matmul_dtype(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> torch.dtype:
    """The dtype in which ``F.linear`` would multiply."""
    if is_autocast(hidden) and hidden.dtype != torch.float64:
        return torch.get_autocast_dtype(hidden.device.type)
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.dtype != hidden.dtype:
            raise TypeError(f"{name}: expected {hidden.dtype} as of hidden, got {tensor.dtype}")
    return hidden.dtype


def _check_targets(targets: Tensor, shape: torch.Size, vocabulary: int, ignore_index: int) -> Tensor:
    check_tensor("targets", targets)
    if targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
        raise TypeError(f"targets: expected integers, got dtype {targets.dtype}")
    if targets.shape != shape:
        raise ValueError(f"targets: expected shape {tuple(shape)}, one for each prediction, got {tuple(targets.shape)}")
    if not -(2**63) <= ignore_index < 2**63:
        raise ValueError(f"ignore_index: expected an integer of 64 bits, got {ignore_index}")
    if is_readable(targets):
        wrong = targets[((targets < 0) | (targets >= vocabulary)) & (targets != ignore_index)]
        if len(wrong):
            raise ValueError(
                f"targets: expected 0 to {vocabulary - 1}, or {ignore_index} to be ignored, got {int(wrong[0])}"
            )
    return targets.long()


def _reduce(losses: Tensor, targets: Tensor, ignore_index: int, reduction: Reduction) -> Tensor:
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    if reduction == "mean":
        return losses.sum() / (targets != ignore_index).sum().clamp_min(1)
    raise ValueError(f"reduction: expected 'mean', 'sum' or 'none', got {reduction!r}")


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Logits of a chunk, in float32 or wider."""
    logits = F.linear(hidden, weight, bias)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _losses(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    ignore_index: int,
    chunk_size: int,
    precision: torch.dtype,
) -> Tensor:
    """Losses of all tokens ``(T,)``, by plain operations on a chunk at a time."""
    w, b = weight.to(precision), None if bias is None else bias.to(precision)
    losses = [hidden.new_empty(0, dtype=torch.promote_types(precision, torch.float32))]
    for x, y in zip(hidden.split(chunk_size), targets.split(chunk_size), strict=True):
        logits = _logits(x.to(precision), w, b)
        losses.append(F.cross_entropy(logits, y, ignore_index=ignore_index, reduction="none"))
    return torch.cat(losses)


def output_layer_gradients(errors: Tensor, x: Tensor | None, w: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of a chunk's hidden states ``x`` and of the weight ``w``; each if the other is given."""
    return None if w is None else errors @ w, None if x is None else errors.t() @ x


class _LinearCrossEntropy(torch.autograd.Function):
    """:func:`_losses`, of which both passes go through the chunks; nothing but the inputs is kept between them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        ignore_index: int,
        chunk_size: int,
        precision: torch.dtype,
    ) -> Tensor:
        ctx.save_for_backward(hidden, weight, bias, targets)
        ctx.ignore_index, ctx.chunk_size, ctx.precision = ignore_index, chunk_size, precision
        return _losses(hidden, weight, bias, targets, ignore_index, chunk_size, precision)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # Math: dL/dz_tv = g_t (softmax_v(z_t) - [v = y_t])
        # Everything here can itself be differentiated, since autograd may be asked for second derivatives.
        (grad,) = grads
        hidden, weight, bias, targets = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        w, b = weight.to(ctx.precision), None if bias is None else bias.to(ctx.precision)
        ignored = targets == ctx.ignore_index
        grad = grad.masked_fill(ignored, 0.0)
        labels = targets.masked_fill(ignored, 0)

        wide = grad.dtype
        grad_hidden = [hidden.new_empty(0, hidden.shape[1])]
        grad_weight = torch.zeros_like(weight, dtype=wide) if needs_weight else None
        grad_bias = torch.zeros_like(bias, dtype=wide) if bias is not None and needs_bias else None
        chunks = (part.split(ctx.chunk_size) for part in (hidden, labels, grad))
        for x, y, g in zip(*chunks, strict=True):
            x = x.to(ctx.precision)
            errors = torch.softmax(_logits(x, w, b), dim=-1) * g[:, None]
            errors = errors.scatter_add(1, y[:, None], -g[:, None])
            of_hidden, of_weight = output_layer_gradients(
                errors.to(ctx.precision), x if needs_weight else None, w if needs_hidden else None
            )
            if of_hidden is not None:
                grad_hidden.append(of_hidden.to(hidden.dtype))
            if grad_weight is not None and of_weight is not None:
                grad_weight += of_weight
            if grad_bias is not None:
                grad_bias += errors.sum(dim=0)
        return (
            torch.cat(grad_hidden) if needs_hidden else None,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None or bias is None else grad_bias.to(bias.dtype),
            *(None,) * 4,
        )


def _fuses(logits: Tensor) -> bool:
    """Whether a kernel takes these: on a GPU on which ours run."""
    known = logits.dtype in (torch.bfloat16, torch.float32)
    return logits.is_cuda and known and support.obstacle_of_machine(logits) is None


def _loss_and_errors(logits: Tensor, labels: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
    """Losses of a chunk in the dtype of ``factors``, and the gradients of their products with these in that of logits,
    which are overwritten on a GPU."""
    if _fuses(logits):
        from .triton.loss import errors_of_logits  # imports Triton

        return errors_of_logits(logits, labels, factors), logits
    errors = torch.log_softmax(logits, dim=-1, dtype=factors.dtype)
    column = labels[:, None]
    loss = -errors.gather(1, column)[:, 0]
    errors.exp_().scatter_add_(1, column, errors.new_full((1, 1), -1.0).expand(column.shape))
    low = errors if logits.dtype == factors.dtype else torch.empty_like(errors, dtype=logits.dtype)
    return loss, torch.mul(errors, factors[:, None], out=low)


class _ReducedLinearCrossEntropy(torch.autograd.Function):
    """The mean or the sum of :func:`_losses`, whose gradients are made of each chunk's logits while they are there."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        ignore_index: int,
        chunk_size: int,
        precision: torch.dtype,
        reduction: Reduction,
    ) -> Tensor:
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        w, b = weight.to(precision), None if bias is None else bias.to(precision)
        wide = torch.promote_types(precision, torch.float32)
        kept = targets != ignore_index
        labels = targets.masked_fill(~kept, 0)
        # Math: dL/dz_tv = g_t (softmax_v(z_t) - [v = y_t]), g_t = 0 where ignored, else 1, or one over their number
        factors = kept.to(wide) / (kept.sum().clamp_min(1) if reduction == "mean" else 1)

        losses = [hidden.new_empty(0, dtype=wide)]
        grad_hidden = [hidden.new_empty(0, hidden.shape[1])]
        grad_weight = torch.zeros_like(weight, dtype=wide) if needs_weight else None
        grad_bias = torch.zeros_like(bias, dtype=wide) if bias is not None and needs_bias else None
        for x, y, g in zip(*(part.split(chunk_size) for part in (hidden, labels, factors)), strict=True):
            x = x.to(precision)
            loss, low = _loss_and_errors(F.linear(x, w, b), y, g)
            losses.append(loss)
            if grad_bias is not None:
                grad_bias += low.sum(dim=0, dtype=wide)
            of_hidden, of_weight = output_layer_gradients(low, x if needs_weight else None, w if needs_hidden else None)
            if of_hidden is not None:
                grad_hidden.append(of_hidden.to(hidden.dtype))
            if grad_weight is not None and of_weight is not None:
                grad_weight += of_weight
        ctx.call = ignore_index, chunk_size, precision
        ctx.reduction = reduction
        ctx.save_for_backward(hidden, weight, bias, targets, torch.cat(grad_hidden), grad_weight, grad_bias)
        return _reduce(torch.cat(losses).masked_fill(~kept, 0.0), targets, ignore_index, reduction)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        hidden, weight, bias, targets, *found = ctx.saved_tensors
        given = hidden, weight, bias
        if torch.is_grad_enabled():  # second derivatives are wanted, of which what was found knows nothing
            losses = _LinearCrossEntropy.apply(*given, targets, *ctx.call)
            loss = _reduce(losses, targets, ctx.call[0], ctx.reduction)
            wanted = [x for x, needed in zip(given, ctx.needs_input_grad[:3], strict=True) if needed]
            again = iter(torch.autograd.grad(loss, wanted, grad, create_graph=True))
            return *(next(again) if needed else None for needed in ctx.needs_input_grad[:3]), *(None,) * 5
        return (
            *(
                (grad * x).to(of.dtype) if needed and x is not None and of is not None else None
                for x, of, needed in zip(found, given, ctx.needs_input_grad[:3], strict=True)
            ),
            *(None,) * 5,
        )


def mean_squared_error(predictions: Tensor, targets: Tensor, scored: Tensor | None = None) -> Tensor:
    """Mean squared error over the numbers at the scored places, in float32 or wider; zero if there are none.

    Args:
        predictions, targets: ``(..., V)``.
        scored: boolean ``(...)``; by default all places. What targets hold at the others, NaN even, does not matter.

    Raises:
        TypeError: if targets are not floating point.
        ValueError: if shapes disagree.
    """
    check_same_device(predictions=predictions, targets=targets, scored=scored)
    check_floating_tensors(predictions=predictions, targets=targets)
    if targets.shape != predictions.shape:
        raise ValueError(f"targets: expected shape {tuple(predictions.shape)}, got {tuple(targets.shape)}")
    wide = torch.promote_types(predictions.dtype, torch.float32)
    errors = predictions.to(wide) - targets.to(wide)
    if scored is None:
        return errors.square().sum() / max(1, errors.numel())
    # Masked before squaring, so that NaN elsewhere reaches no gradient.
    errors = errors.masked_fill(~scored[..., None], 0.0)
    return errors.square().sum() / (scored.sum() * errors.shape[-1]).clamp_min(1)
