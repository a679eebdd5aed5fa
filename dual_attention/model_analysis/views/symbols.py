"""Figures of the symbols that symbolic attention assigns.

Shapes: B examples, S heads of the assignment, L tokens, K symbols of the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..._base.colours import BLUE, MUTED
from ..._base.plots import house_style, matplotlib_figure
from .matrices import draw_matrices

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def symbol_usage(assignment: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Use of each symbol, and how many are in use.

    Math: u_k = mean of the weights of symbol k, number = exp(-Σ_k u_k log u_k)

    Args:
        assignment: weights, ``(B, S, L, K)``, as captured.
        mask: real tokens, boolean ``(B, L)``; by default all.

    Returns:
        Mean weight of each symbol in each head, ``(S, K)`` float64, and the effective number of symbols, ``(S,)``, from
        1 (always the same one) to K (all alike).

    >>> use, in_use = symbol_usage(torch.rand(4, 2, 9, 8).softmax(-1))
    >>> use.shape, in_use.shape
    (torch.Size([2, 8]), torch.Size([2]))
    """
    if assignment.dim() != 4:
        raise ValueError(f"assignment: expected shape (B, S, L, K), got {tuple(assignment.shape)}")
    batch, _, length, _ = assignment.shape
    if mask is None:
        mask = torch.ones(batch, length, dtype=torch.bool, device=assignment.device)
    if mask.shape != (batch, length) or not mask.any():
        raise ValueError(f"mask: expected shape ({batch}, {length}) with a real token, got {tuple(mask.shape)}")
    usage = assignment.transpose(1, 2)[mask].double().mean(0)
    return usage, torch.exp(-torch.xlogy(usage, usage).sum(-1))


def draw_symbol_usage(assignment: Tensor, mask: Tensor | None = None, *, title: str = "use of symbols") -> Figure:
    """A figure of how much each symbol is used, from the most used on, by head; arguments as :func:`symbol_usage`.

    A dashed line is what each would have if all were used alike.

    >>> draw_symbol_usage(torch.rand(4, 2, 9, 8).softmax(-1)).savefig("usage.png")
    """
    usage, number = symbol_usage(assignment, mask)
    heads, symbols = usage.shape
    with house_style():
        figure, axes = matplotlib_figure(*(1, heads), figsize=(max(4.0, 2.6 * heads), 2.7), squeeze=False, sharey=True)
        figure.set_layout_engine("constrained")
        for head, axis in enumerate(axes.flat):
            values = usage[head].sort(descending=True).values.cpu()
            axis.bar(range(1, symbols + 1), values.tolist(), width=1.0 if symbols > 60 else 0.8, color=BLUE)
            axis.axhline(1 / symbols, color=MUTED, linewidth=1.0, linestyle="--")
            axis.set_title(f"head {head}: {float(number[head]):.1f} of {symbols} in use", fontsize=10)
            axis.set_xlabel("symbols, most used first", fontsize=9)
            axis.grid(axis="x", visible=False)
            axis.tick_params(labelsize=8)
        axes[0, 0].set_ylabel("mean weight", fontsize=9)
        figure.suptitle(title, fontsize=12, parse_math=False)
    return figure


def draw_symbol_assignment(assignment: Tensor, labels: Sequence[str], *, most: int = 24, title: str = "") -> Figure:
    """A figure of the symbols that each token of a text is given, by head.

    Args:
        assignment: ``(S, L, K)``, of one example.
        labels: of its L tokens.
        most: number of symbols that are drawn, those with the most weight in any head, in the library's order.
        title: above all panels.

    >>> draw_symbol_assignment(torch.rand(2, 3, 8).softmax(-1), ["the", "cat", "sat"]).savefig("assignment.png")
    """
    if assignment.dim() != 3 or assignment.shape[1] != len(labels):
        raise ValueError(f"assignment: expected shape (S, {len(labels)}, K), got {tuple(assignment.shape)}")
    used = assignment.amax((0, 1)).topk(min(most, assignment.shape[2])).indices.sort().values
    titles = [f"head {head}" for head in range(len(assignment))]
    names = [str(symbol) for symbol in used.tolist()]
    values = assignment[..., used].movedim(0, 2)
    return draw_matrices(values, labels, names, titles=titles, signed=False, title=title, names=("token", "symbol"))
