"""The coordinate check of muP: sizes of activations, and of their change in a few steps, to be compared over widths.

Yang et al. 2022 (arXiv 2203.03466, appendix D.1): where a parametrisation is right, neither grows with the width.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dual_attention.relational_attention import RelationalAttention
from dual_attention.transformer_blocks import Block

Activations = dict[str, list[Tensor]]


class Sizes(NamedTuple):
    """Root mean squares of one kind of activation: at first, and of its change."""

    initial: float
    change: float


def coordinate_check(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[], Tensor],
    output: Callable[[], Tensor],
    steps: int,
) -> dict[str, Sizes]:
    """Sizes of what passes through a model, before ``steps`` steps and of the change that they bring, by kind.

    Kinds, of all layers together: ``symbols`` and ``W_s s``; ``relations`` and ``W_r r``, of all pairs; ``scores`` of
    the relational heads' attention, without positions; ``heads``, what relational heads send; ``blocks``; ``output``.

    Args:
        loss: the loss of a fixed batch, with its graph.
        output: what the model returns for it, such as logits, by calls of its blocks.
    """
    before = _activations(model, output)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    after = _activations(model, output)
    changes = {kind: [new - old for new, old in zip(after[kind], found, strict=True)] for kind, found in before.items()}
    return {kind: Sizes(_size(found), _size(changes[kind])) for kind, found in before.items()}


def _size(tensors: list[Tensor]) -> float:
    """Root mean square of all entries."""
    return math.sqrt(sum(float(x.double().square().sum()) for x in tensors) / sum(x.numel() for x in tensors))


@torch.no_grad()
def _activations(model: nn.Module, output: Callable[[], Tensor]) -> Activations:
    found: Activations = {}
    with _recorded(model, lambda kind, x: found.setdefault(kind, []).append(x.detach().clone())):
        last = output()
    return {**found, "output": [last.detach().clone()]}


@contextmanager
def _recorded(model: nn.Module, keep: Callable[[str, Tensor], None]) -> Iterator[None]:
    """Hand everything that is measured to ``keep``, while the context lasts."""

    def compared(heads: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else kwargs["x"]
        relations = heads.relations(x)
        keep("relations", relations)
        keep("W_r r", torch.einsum("bnmr,hdr->bnmhd", relations, heads.wr))
        q = heads.wq_attn(x).unflatten(-1, (heads.n_kv_heads, -1, heads.key_dim))
        k = heads.wk_attn(x).unflatten(-1, (heads.n_kv_heads, heads.key_dim))
        keep("scores", heads.attn_scale * torch.einsum("bngqd,bmgd->bgqnm", q, k))

    def named(layer: nn.Module, args: tuple[Any, ...], projected: Tensor) -> None:
        keep("symbols", args[0])
        keep("W_s s", projected)

    hooks = []
    for module in model.modules():
        if isinstance(module, RelationalAttention):
            hooks.append(module.register_forward_pre_hook(compared, with_kwargs=True))
            hooks.append(module.register_forward_hook(lambda _, args, sent: keep("heads", sent[0])))
            hooks.append(module.wv.register_forward_hook(named))
        elif isinstance(module, Block):
            hooks.append(module.register_forward_hook(lambda _, args, out: keep("blocks", _first(out))))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _first(out: Any) -> Tensor:
    return out if isinstance(out, Tensor) else out[0]
