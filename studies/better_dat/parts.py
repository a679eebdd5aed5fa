"""Three changes of a DAT, each of which leaves its parameters as they are and adds few.

Shapes: B batch, N receivers, M senders, H heads, R relations, d_h width of a head.
"""

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dual_attention.mechanisms import Score
from dual_attention.parts import OwnRelations, with_parts
from dual_attention.relational_attention import RelationalAttention, RelationalAttentionOutput

Change = Literal["bound", "bounded", "read"]


class BoundAttention(RelationalAttention):
    """Relational attention in whose sums a relation stays with the symbol of its sender.

    Math: a^h_i = sum_j alpha^h_ij (W_r^h r_ij + s^h_j + g^h * (W_r^h r_ij) * s^h_j)

    Without the last term, the sum over j is one of relations and one of symbols, from which nobody can tell whose a
    relation was. The gate g, ``(H, d_h)``, starts at 0.
    """

    gate: nn.Parameter

    def forward(self, x: Tensor, symbols: Any, *inputs: Any, **named: Any) -> RelationalAttentionOutput:
        """As of :class:`RelationalAttention`, with symbols for senders, ``(B or 1, M, d)``."""
        asked = named.pop("need_weights", False)
        output, weights, relations = super().forward(x, symbols, *inputs, need_weights=True, **named)
        assert weights is not None and relations is not None
        values = self.wv(symbols).unflatten(-1, (self.n_kv_heads, -1)).transpose(1, 2)
        told = torch.einsum("bnmr,hdr->bhnmd", relations, self.wr)
        bound = torch.einsum("bhnm,bhnmd,bhmd->bhnd", weights, told, values.expand(len(x), -1, -1, -1))
        added = F.linear((self.gate[:, None] * bound).transpose(1, 2).flatten(2), self.wo.weight)
        output = output + self.resid_dropout(added)
        return RelationalAttentionOutput(output, weights if asked else None, relations if asked else None)


class BoundedDistance(Score):
    """A relation between 0 and 1: how near a receiver's features are to a sender's, whatever their lengths.

    Math: r = exp(-b |q / rms(q) - k / rms(k)|^2)

    The strength b, one a relation, starts where features that have nothing in common give 1/2.

    Args:
        n_relations: R.
        d_q: width of queries and keys.
    """

    def __init__(self, n_relations: int, d_q: int) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.full((n_relations, 1, 1), math.log(math.expm1(math.log(2) / (2 * d_q)))))

    def forward(self, query: Tensor | None, key: Tensor) -> Tensor:
        """``(B, R, N, p)`` and ``(B, R, M, p)`` to ``(B, R, N, M)``."""
        q, k = (F.rms_norm(x, x.shape[-1:], eps=1e-6) for x in (self.require_query(query), key))
        apart = q.square().sum(-1, keepdim=True) + k.square().sum(-1).unsqueeze(-2) - 2 * q @ k.transpose(-2, -1)
        return torch.exp(-F.softplus(self.raw) * apart.clamp(min=0))


class ReadDirectly(nn.Module):
    """A classifier that also reads what the relational heads of all layers say, pooled over receivers.

    Math: logits = model(x) + sum_layers W mean_i relational_heads(x)_i

    W starts at 0.

    Args:
        model: a model over a set of objects, which calls each of its relational layers once.
        n_out: its outputs.
    """

    def __init__(self, model: nn.Module, n_out: int) -> None:
        super().__init__()
        self.model, self._said = model, []
        layers: list[Any] = [x for x in model.modules() if isinstance(x, RelationalAttention | OwnRelations)]
        self.read = nn.Linear(sum(layer.wo.out_features for layer in layers), n_out, bias=False)
        nn.init.zeros_(self.read.weight)
        for layer in layers:
            layer.register_forward_hook(lambda _, inputs, found: self._said.append(found[0].mean(1)))

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """The model's outputs ``(B, n_out)``, or of several examples that stand for one input, ``(B, A)``."""
        self._said.clear()
        found = self.model(*inputs, **named)
        told = self.read(torch.cat(self._said, -1))
        self._said.clear()
        return found + told.view(found.shape)


def change(model: Any, kind: Change, n_out: int = 1) -> Any:
    """A DAT with one of the changes. *Bound* and *read* compute at first what the DAT does.

    Args:
        n_out: of :class:`ReadDirectly`.
    """
    if kind == "bounded":
        return with_parts(model, relation=BoundedDistance)
    if kind == "read":
        return ReadDirectly(model, n_out)
    for layer in model.modules():
        if type(layer) is RelationalAttention:
            layer.__class__ = BoundAttention
            layer.gate = nn.Parameter(torch.zeros(layer.n_heads, layer.head_dim, device=layer.wr.device))
    return model
