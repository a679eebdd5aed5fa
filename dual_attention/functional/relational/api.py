"""Relational attention as one operation: checked inputs, a chosen implementation; shapes as in :mod:`..reference`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .. import reference
from ..activations import Activation
from ..masks import MaskPattern
from ..symbols import RelativeSymbols
from ..triton import implementation  # noqa: F401 (registers itself, and imports no Triton)
from . import asked_for, blockwise, dense, linear, sdpa  # noqa: F401 (each registers itself)
from .choice import choose, run_chosen
from .inputs import RelationalAttentionOutput, RelationalInputs, check_inputs
from .table import Choice, Implementation, register_implementation


def relational_attention(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    symbols: Tensor | RelativeSymbols,
    w_r: Tensor,
    *,
    scale: float,
    rel_scale: float,
    rel_activation: str | Activation = "identity",
    mask: Tensor | MaskPattern | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
    impl: str = "auto",
    observe: reference.Observe | None = None,
) -> RelationalAttentionOutput:
    """Relational attention (arXiv 2405.16727, Algorithm 1).

    Math: a^h_i = sum_j alpha^h_ij (W_r^h r_ij + s_j W_s^h),  r_ij = (act(rel_scale <u^l_i, w^l_j>))_l

    Args:
        q: attention queries ``(B, H, N, D)``; k: attention keys ``(B, G, M, D)``.
        u: relation queries ``(B, N, R, p)``; w: relation keys ``(B, M, R, p)``, shared by all heads.
        symbols: projected symbols, ``(B or 1, G, M, d_h)``; or :class:`RelativeSymbols` with a library of shape
            ``(K, G, d_h)`` and an index of shape ``(N, M)``.
        w_r: ``(H, d_h, R)``, maps relations to the width of a head.
        scale, rel_scale: factors of the attention scores and of the relations.
        rel_activation: activation of the relations, a name or an elementwise function.
        mask: boolean, four-dimensional, broadcastable to ``(B, H, N, M)``, True = may be attended; or a pattern.
        bias: floating point, broadcastable likewise, added to the scaled scores; minus infinity masks. Relations
            under softmax are normalised over the senders that ``mask`` allows and minus infinity leaves to some head;
            otherwise it acts on the attention scores only.
        dropout: rate on the attention weights; symbols and relations see the same mask.
        need_weights: also return the weights and the relations, which needs them to be built.
        impl: implementation. All agree to rounding; under dropout ``"linear"`` and ``"native"`` draw masks of their
            own. A named implementation runs or raises; it never falls back:

            - ``"auto"`` chooses by measured rules, see ``functional.relational.choice``;
              :func:`explain_relational_attention` and a line of the log ``dual_attention.functional.relational`` (level
              DEBUG) say what and why
            - ``"reference"``: the paper's equation as it stands
            - ``"dense"`` builds the weights, and the relations if they are asked for or activated
            - ``"linear"`` builds both for one block of receivers at a time, and again in the backward pass, so that
              memory grows with N only; for activated relations this is ``"blockwise"``
            - ``"blockwise"`` builds weights and relations of a block at a time, whatever the activation
            - ``"sdpa"``: PyTorch's SDPA whose values are symbols and relation keys: the identity activation, shared
              symbols, no dropout
            - ``"native"``: as ``"linear"``, in C on a CPU, after :func:`dual_attention.native.enable`; the identity
              activation, no bias
            - ``"triton"``: the same in fused kernels for CUDA: the identity activation, masks in parts (a cache's
              earlier senders included; tiles that order or packed segments leave empty are skipped), shared symbols or
              :class:`OffsetSymbols`, no bias and no dropout, bfloat16, float16 or float32
            - ``"pairs"``: kernels for CUDA that form relations once for all heads, for up to eight relations, shared
              symbols and bfloat16; otherwise as ``"triton"``. They have run in Triton's interpreter only, on no GPU yet
        observe: sees the steps of :func:`.reference.relational_attention` and may replace them. ``"dense"`` shows them,
            which is what ``"auto"`` takes then, and ``"reference"``; the others raise.

    In float16, a relation beyond 65,504 is infinite where maps return it. Its mean over senders, of which messages are
    made, is summed in float32 by all implementations, and is infinite only if it lies beyond itself.

    Returns:
        :class:`RelationalAttentionOutput` with an output of shape ``(B, H, N, d_h)``; rows with nothing to attend are
        zero.

    Raises:
        ValueError: if shapes or devices disagree, the dropout is outside [0, 1), or ``impl`` is unknown or cannot do
            what is asked.
        TypeError: if types disagree (under autocast ``w_r`` may differ, as a parameter does), a mask is not boolean, or
            a bias not floating point.

    >>> q, symbols = torch.randn(2, 4, 9, 16), torch.randn(2, 4, 9, 16)
    >>> u, w_r = torch.randn(2, 9, 8, 4), torch.randn(4, 16, 8)
    >>> relational_attention(q, q, u, u, symbols, w_r, scale=0.25, rel_scale=0.5, need_weights=True)
    RelationalAttentionOutput(output=Tensor(2, 4, 9, 16), weights=Tensor(2, 4, 9, 9), relations=Tensor(2, 9, 9, 8))
    """
    inputs = check_inputs(q, k, u, w, symbols, w_r, scale, rel_scale, rel_activation, mask, bias, dropout, need_weights)
    return run_chosen(inputs, impl, observe)


def explain_relational_attention(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    symbols: Tensor | RelativeSymbols,
    w_r: Tensor,
    *,
    scale: float,
    rel_scale: float,
    rel_activation: str | Activation = "identity",
    mask: Tensor | MaskPattern | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
    impl: str = "auto",
) -> Choice:
    """The implementation that :func:`relational_attention` takes with the same arguments, and why; computes nothing.

    Returns:
        :class:`.Choice`, which prints as ``name: reason``.

    Raises:
        TypeError, ValueError: as :func:`relational_attention`.

    >>> q, symbols = torch.randn(2, 4, 9, 16), torch.randn(2, 4, 9, 16)
    >>> u, w_r = torch.randn(2, 9, 8, 4), torch.randn(4, 16, 8)
    >>> explain_relational_attention(q, q, u, u, symbols, w_r, scale=0.25, rel_scale=0.5, impl="dense").name
    'dense'
    """
    inputs = check_inputs(q, k, u, w, symbols, w_r, scale, rel_scale, rel_activation, mask, bias, dropout, need_weights)
    return choose(inputs, impl)


def _reference(x: RelationalInputs, observe: reference.Observe = reference.UNOBSERVED) -> RelationalAttentionOutput:
    kind: Any = {"scale": x.scale, "rel_scale": x.rel_scale, "rel_activation": x.rel_activation, "dropout": x.dropout}
    attended, weights, relations = reference.relational_attention(
        x.q, x.k, x.u, x.w, x.symbols, x.w_r, mask=x.mask(), bias=x.bias, observe=observe, **kind
    )
    if not x.need_weights:
        return RelationalAttentionOutput(attended)
    return RelationalAttentionOutput(attended, weights, x.with_padded(relations))


register_implementation(Implementation("reference", _reference, lambda x: None, observed=True))
