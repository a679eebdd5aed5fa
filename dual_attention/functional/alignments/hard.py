"""Drawing one key, hard alignment, with the estimators that train the choice; or drawing a subset of them."""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checks import check_same_device
from ..masks import check_mask
from ..reference import fill_hidden
from .common import Alignment, finish, prepare, require_rate

Estimator = Literal["reinforce", "st", "gumbel", "gumbel_st", "argmax", "expected"]


def hard_alignment(
    scores: Tensor,
    mask: Tensor | None = None,
    *,
    estimator: Estimator = "reinforce",
    bias: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    tau: float = 1.0,
    generator: torch.Generator | None = None,
    dim: int = -1,
) -> Alignment:
    """Attend to one key (Xu et al. 2015, arXiv 1502.03044, section 4.1).

    Math: p = softmax(e),  m ~ Categorical(p),  a = onehot(m)

    ==============  ====================================  ===========================================================
    ``estimator``   weights                               gradient to the scores
    ==============  ====================================  ===========================================================
    ``reinforce``   drawn one-hot                         none; add :func:`reinforce_loss` of ``log_prob`` to the loss
    ``st``          drawn one-hot                         as if a = p (straight-through, Bengio et al. 2013)
    ``gumbel``      softmax((log p + g) / tau)            exact for the relaxed draw (Jang et al. 2016, 1611.01144)
    ``gumbel_st``   one-hot of its maximum                that of the relaxed draw
    ``argmax``      one-hot of the highest score          none; deterministic, first of those that tie
    ``expected``    p, the soft alignment                 that of p
    ==============  ====================================  ===========================================================

    Draws are independent for every row, by the Gumbel-max trick.

    Args:
        tau: relaxation temperature of the two Gumbel estimators.
        generator: of the noise; on the device of the scores.

    Other arguments and errors as :func:`.masked_softmax`.

    Returns:
        :class:`Alignment`; ``log_prob`` is log p of the chosen key, ``entropy`` that of p, both without the key axis
        and 0 where nothing may be attended; ``expected`` chooses none, and has a ``log_prob`` of None.

    >>> hard_alignment(torch.tensor([[1.0, 9.0, 2.0]]), estimator="argmax").weights
    tensor([[0., 1., 0.]])
    """
    if estimator not in get_args(Estimator):
        raise ValueError(f"estimator: expected one of {', '.join(get_args(Estimator))}, got {estimator!r}")
    require_rate("tau", tau)
    x, allowed = prepare(scores, mask, bias=bias, temperature=temperature)
    # Rows with nothing to attend are drawn from like any other, and dropped.
    filled = fill_hidden(x, allowed, dim)
    if not filled.shape[dim]:
        nothing = filled.sum(dim)
        return Alignment(scores.clone(), None if estimator == "expected" else nothing, nothing)
    log_p = torch.log_softmax(filled, dim=dim)
    p = log_p.exp().masked_fill(~allowed, 0.0)
    entropy = -(p * log_p.masked_fill(~allowed, 0.0)).sum(dim)
    if estimator == "expected":
        return Alignment(finish(p, allowed, scores.dtype), None, entropy)

    ranked = log_p.masked_fill(~allowed, torch.finfo(log_p.dtype).min)
    if estimator != "argmax":
        noise = _gumbel(log_p, generator)
        ranked = (log_p + noise).masked_fill(~allowed, torch.finfo(log_p.dtype).min)
    chosen = ranked.detach().argmax(dim=dim, keepdim=True)
    weights = torch.zeros_like(p).scatter(dim, chosen, 1.0)
    log_prob = log_p.masked_fill(~allowed, 0.0).gather(dim, chosen).squeeze(dim)
    if estimator == "st":
        weights = weights + (p - p.detach())  # in this order the value is one-hot exactly
    elif estimator in ("gumbel", "gumbel_st"):
        relaxed = (ranked / tau).masked_fill(~allowed, torch.finfo(log_p.dtype).min)
        relaxed = torch.softmax(relaxed, dim=dim).masked_fill(~allowed, 0.0)
        weights = relaxed if estimator == "gumbel" else weights + (relaxed - relaxed.detach())
    return Alignment(finish(weights, allowed, scores.dtype), log_prob, entropy)


def reinforce_loss(
    loss: Tensor,
    log_prob: Tensor,
    *,
    baseline: float | Tensor = 0.0,
    weight: float = 1.0,
    entropy: Tensor | None = None,
    entropy_weight: float = 0.0,
) -> Tensor:
    """Surrogate loss ``(B,)`` whose gradient is that of the expected loss (Williams 1992; Xu et al. 2015, eqs. 11, 12).

    Math: J = l + lambda_r detach(l - b) sum log p(m) - lambda_e sum H(p), to be minimised

    With ``weight`` 1 and no entropy the gradient is unbiased, for any baseline that does not depend on the draw.

    Args:
        loss: l, ``(B,)``, one for each example.
        log_prob: ``(B, ...)``, of the draws behind it; summed over the other axes. So is ``entropy``.
        baseline: b, a number or ``(B,)``.

    >>> reinforce_loss(torch.tensor([2.0]), torch.tensor([-0.5]), baseline=1.0).shape
    torch.Size([1])
    """
    for name, tensor in (("log_prob", log_prob), ("entropy", entropy)):
        if tensor is not None and (tensor.dim() < 1 or loss.dim() != 1 or tensor.shape[0] != loss.shape[0]):
            raise ValueError(
                f"{name}: expected (B, ...) beside a loss (B,), got {tuple(tensor.shape)}, {tuple(loss.shape)}"
            )
    if entropy_weight and entropy is None:
        raise ValueError("entropy: entropy_weight needs it, got None")
    surrogate = loss + weight * (loss - baseline).detach() * log_prob.reshape(len(loss), -1).sum(-1)
    if entropy is not None:
        surrogate = surrogate - entropy_weight * entropy.reshape(len(loss), -1).sum(-1)
    return surrogate


def bernoulli_subset(
    logits: Tensor, mask: Tensor | None = None, *, sample: bool = True, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Independent draws of positions, in which reinforced alignment then attends (Shen et al. 2018, arXiv 1801.10296).

    Math: z_i ~ Bernoulli(sigmoid(logit_i)),  log p(z) = sum_i log Bernoulli(z_i), over real positions

    Args:
        logits: ``(..., S)``.
        mask: boolean, broadcastable to the logits; positions that are False are never in the subset.
        sample: False takes the positions whose probability is at least one half instead of drawing.

    Returns:
        z, boolean ``(..., S)``, and its log-probability ``(...)``, which has the gradient.

    >>> subset, log_prob = bernoulli_subset(torch.tensor([[9.0, -9.0, 9.0]]), sample=False)
    >>> subset
    tensor([[ True, False,  True]])
    """
    if sample:
        uniform = torch.empty_like(logits, requires_grad=False).uniform_(generator=generator)
        z = uniform < torch.sigmoid(logits.detach())
    else:
        z = logits.detach() >= 0
    log_p = -F.binary_cross_entropy_with_logits(logits, z.to(logits.dtype), reduction="none")
    if mask is not None:
        check_mask("mask", mask, logits)
        check_same_device(logits=logits, mask=mask)
        z, log_p = z & mask, log_p.masked_fill(~mask, 0.0)
    return z, log_p.sum(-1)


def _gumbel(like: Tensor, generator: torch.Generator | None) -> Tensor:
    exponential = torch.empty_like(like, requires_grad=False).exponential_(generator=generator)
    return -exponential.clamp_min(torch.finfo(like.dtype).tiny).log()
