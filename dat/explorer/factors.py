"""Maps of attention and relations kept as their factors: queries and keys, whose size grows with the length only.

Shapes: F maps (heads or relations), G maps of keys, each for F / G maps, N receivers, M senders, p width of a query.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dual_attention._base.words import repr_of_shapes
from dual_attention.functional.activations import ACTIVATIONS, activation_function
from dual_attention.functional.reference import repeat_heads

BLOCK = 1 << 20
"""Most numbers of a block of maps that are computed at a time; they stay in the cache of a processor."""

STEEPEST = {"identity": 1.0, "relu": 1.0, "sigmoid": 0.25, "tanh": 1.0, "gelu": 1.13, "gelu_erf": 1.13, "silu": 1.1}
"""Largest slopes of elementwise activations, rounded up."""


@dataclass(frozen=True)
class Visible:
    """Senders that each receiver may attend: a run of them, from ``first`` up to but not including ``last``.

    Attributes:
        first, last: integers ``(N,)``; equal where a receiver may attend nothing.
        senders: M.
    """

    first: Tensor
    last: Tensor
    senders: int

    __repr__ = repr_of_shapes

    @property
    def receivers(self) -> int:
        """N."""
        return len(self.first)

    @classmethod
    def whole(cls, receivers: int, senders: int) -> Visible:
        """All senders, for every receiver."""
        return cls(torch.zeros(receivers, dtype=torch.long), torch.full((receivers,), senders), senders)

    @classmethod
    def of_mask(cls, mask: Tensor) -> Visible:
        """The runs of a mask ``(N, M)``.

        Raises:
            ValueError: if a receiver may attend senders with hidden ones between them, which would take N × M numbers.
        """
        n, m = mask.shape
        if not m:
            return cls(torch.zeros(n, dtype=torch.long), torch.zeros(n, dtype=torch.long), m)
        number = mask.sum(1)
        first = mask.int().argmax(1).where(number > 0, 0)
        last = (m - mask.flip(1).int().argmax(1)).where(number > 0, 0)
        gaps = (last - first != number).nonzero()
        if len(gaps):
            raise ValueError(
                f"attn_mask: receiver {int(gaps[0])} may attend senders with hidden ones between them; the explorer "
                "keeps for each receiver one run of senders"
            )
        return cls(first.cpu(), last.cpu(), m)

    def seen(self, start: int, stop: int) -> int:
        """Senders up to the last that one of these receivers may attend."""
        return max(1, int(self.last[start:stop].max()))

    def rows(self, start: int, stop: int) -> Tensor:
        """The mask of receivers from ``start`` to ``stop``, ``(stop - start, M)``."""
        places = torch.arange(self.senders)
        return (places >= self.first[start:stop, None]) & (places < self.last[start:stop, None])

    def hide(self, values: Tensor, start: int, value: float) -> Tensor:
        """Fill the hidden pairs of receivers from ``start`` and of the first senders, ``(..., n, m)``, in place."""
        n, m = values.shape[-2:]
        first, last = self.first[start : start + n], self.last[start : start + n]
        for begin, end in ((0, min(int(first.max()), m)), (int(last.min()), m)):  # of a causal mask few columns
            if begin < end:
                places = torch.arange(begin, end)
                hidden = (places < first[:, None]) | (places >= last[:, None])
                values[..., begin:end].masked_fill_(hidden, value)
        return values


@dataclass(frozen=True)
class ScoreFactors:
    """Activated inner products of queries and keys.

    Math: a^f_ij = act(<q^f_i, k^f_j> + t^f_i,clip(j - i)); with softmax exp(<q^f_i, k^f_j> + ... - z^f_i)

    Attributes:
        queries: ``(F, N, p)``, the scale included.
        keys: ``(G, M, p)``.
        activation: a name in :data:`~dual_attention.functional.activations.ACTIVATIONS`.
        offsets: scores of relative positions, ``(F, N, 2 P + 1)``, of offsets from -P to P; None without.
        normalisers: z, of softmax over the visible senders, ``(F, N)``; None for elementwise activations.
    """

    queries: Tensor
    keys: Tensor
    activation: str
    offsets: Tensor | None = None
    normalisers: Tensor | None = None

    __repr__ = repr_of_shapes

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"activation: the explorer computes {', '.join(ACTIVATIONS)}, got the function {self.activation}"
            )

    @classmethod
    def of_maps(cls, values: Tensor) -> ScoreFactors:
        """Maps ``(F, N, M)`` as products with the identity, of N × M numbers each.

        Where none is negative they are said to be activated by ReLU, so that they are drawn as such.
        """
        keys = torch.eye(values.shape[-1], dtype=values.dtype)[None]
        return cls(values, keys, "relu" if bool((values >= 0).all()) else "identity")

    @property
    def maps(self) -> int:
        """F."""
        return self.queries.shape[0]

    @property
    def receivers(self) -> int:
        """N."""
        return self.queries.shape[1]

    def scores(self, start: int, stop: int, senders: int | None = None) -> Tensor:
        """Inner products of receivers from ``start`` to ``stop``, ``(F, stop - start, M)``, not activated.

        Args:
            senders: only the first of them.
        """
        keys = repeat_heads(self.keys[None, :, :senders], self.maps)[0]
        found = self.queries[:, start:stop] @ keys.transpose(-2, -1)
        if self.offsets is None:
            return found
        reach = self.offsets.shape[-1] // 2
        ahead = torch.arange(found.shape[-1]) - torch.arange(start, stop)[:, None]
        index = ahead.clamp(-reach, reach) + reach
        return found + self.offsets[:, start:stop].gather(-1, index.expand(self.maps, *index.shape))

    def values(self, start: int, stop: int, visible: Visible, senders: int | None = None) -> Tensor:
        """Maps of receivers from ``start`` to ``stop``, ``(F, stop - start, M)``, zero at hidden pairs; see scores."""
        found = self.scores(start, stop, senders)
        if self.activation != "softmax":
            found = activation_function(self.activation)(found)
        elif self.normalisers is None:
            raise ValueError("normalisers: softmax needs them; see normalised")
        else:
            found = found.sub_(self.normalisers[:, start:stop, None]).exp_()
        return visible.hide(found, start, 0.0)

    def error_bounds(self, drawn: ScoreFactors, largest: Tensor) -> Tensor:
        """Bounds on the error of each receiver's values when they are computed from rounded factors, ``(F, N)``.

        Math: |<q', k'> - <q, k>| <= |q' - q| max_j |k'_j| + |q| max_j |k' - k|_j, times a constant of the activation;
        of softmax a' - a = a (exp(error) - 1)

        Args:
            drawn: factors with the same normalisers.
            largest: absolute values of each receiver, ``(F, N)``.
        """

        if not self.keys.shape[1]:
            return torch.zeros_like(largest)
        of_queries, queries = ((drawn.queries - self.queries).norm(dim=-1), self.queries.norm(dim=-1))
        of_keys, keys = (
            repeat_heads(keys.norm(dim=-1).amax(-1)[None, :, None, None], self.maps)[0, ..., 0]
            for keys in (drawn.keys - self.keys, drawn.keys)
        )
        errors = of_queries * keys + queries * of_keys
        if self.offsets is not None and drawn.offsets is not None:
            errors += (drawn.offsets - self.offsets).abs().amax(-1)
        if self.activation == "softmax":
            return largest * errors.expm1().clamp_max_(torch.finfo(errors.dtype).max)
        return STEEPEST[self.activation] * errors

    def normalised(self, visible: Visible) -> ScoreFactors:
        """The same with the normalisers of softmax, if that is the activation."""
        if self.activation != "softmax":
            return self
        found = []
        for start, stop in self.blocks(visible.senders):
            seen = visible.seen(start, stop)
            scores = visible.hide(self.scores(start, stop, seen), start, -torch.inf)
            most = scores.amax(-1, keepdim=True).clamp_min_(torch.finfo(scores.dtype).min)
            found.append(scores.sub_(most).exp_().sum(-1).log_() + most[..., 0])  # logsumexp, in place
        # Where nothing may be attended, no value is read; zero is a number that every format holds.
        normalisers = torch.cat(found, dim=1).nan_to_num(neginf=0.0) if found else self.queries.new_zeros(self.maps, 0)
        return ScoreFactors(self.queries, self.keys, self.activation, self.offsets, normalisers)

    def blocks(self, senders: int) -> list[tuple[int, int]]:
        """Ranges of receivers that cover all of them, of a few million numbers each."""
        rows = max(1, BLOCK // max(1, self.maps * senders))
        return [(start, min(start + rows, self.receivers)) for start in range(0, self.receivers, rows)]
