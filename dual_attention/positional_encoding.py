"""Positions: added to the input (sinusoidal, learned), relative at each attention (Shaw), or rotary.

Shapes: B batch, H heads, L length, N receivers, M senders, d width of the model, P largest relative position.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ._heads import check_dropout, check_sequence
from .functional.rotary import apply_rotary, rotary_tables

__all__ = [
    "LearnedPositionalEmbeddings",
    "RelativePositionalEncoding",
    "RotaryPositionalEncoding",
    "SinusoidalPositionalEncoding",
    "sinusoidal_table",
]


def sinusoidal_table(length: int, dim: int) -> Tensor:
    """Sines and cosines of Vaswani et al. 2017 (arXiv 1706.03762, section 3.5), float32 of shape ``(length, dim)``.

    Math: PE(t, 2c) = sin(t / 10000^(2c/dim)),  PE(t, 2c+1) = cos(t / 10000^(2c/dim))
    """
    position = torch.arange(length)[:, None]
    frequency = torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    table = torch.zeros(length, dim)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)[:, : dim // 2]
    return table


def _check_length(x: Tensor, max_len: int) -> None:
    if x.shape[1] > max_len:
        raise ValueError(f"x: length {x.shape[1]} exceeds max_len={max_len}")


class SinusoidalPositionalEncoding(nn.Module):
    """Add fixed sinusoidal positions: ``dropout(sqrt(d) x + PE)``.

    Args:
        d_model: width of the model.
        scale: multiply the input by ``sqrt(d_model)`` first, as in the original Transformer.
        dropout: rate applied to the sum.
        max_len: largest length.
    """

    pe: Tensor

    def __init__(self, d_model: int, scale: bool = True, dropout: float = 0.1, max_len: int = 2048) -> None:
        super().__init__()
        self.d_model = d_model
        self.max_len = max_len
        self.dropout = nn.Dropout(check_dropout("dropout", dropout))
        self.scale = math.sqrt(d_model) if scale else 1.0
        self.register_buffer("pe", sinusoidal_table(max_len, d_model))

    def forward(self, x: Tensor) -> Tensor:
        """``(B, L, d) -> (B, L, d)``; ``ValueError`` if L exceeds ``max_len``."""
        check_sequence("x", x, self.d_model)
        _check_length(x, self.max_len)
        return self.dropout(self.scale * x + self.pe[: x.shape[1]])


class LearnedPositionalEmbeddings(nn.Module):
    """Add learned positions: ``dropout(sqrt(d) x + E)``. Arguments as :class:`SinusoidalPositionalEncoding`."""

    def __init__(self, d_model: int, scale: bool = True, dropout: float = 0.1, max_len: int = 2048) -> None:
        super().__init__()
        self.d_model = d_model
        self.max_len = max_len
        self.scale = math.sqrt(d_model) if scale else 1.0
        self.position_embeddings = nn.Embedding(max_len, d_model)
        self.dropout = nn.Dropout(check_dropout("dropout", dropout))

    def forward(self, x: Tensor) -> Tensor:
        """``(B, L, d) -> (B, L, d)``; ``ValueError`` if L exceeds ``max_len``."""
        check_sequence("x", x, self.d_model)
        _check_length(x, self.max_len)
        return self.dropout(self.scale * x + self.position_embeddings.weight[: x.shape[1]])


class RelativePositionalEncoding(nn.Module):
    """A learned vector for each clipped offset ``j - i`` (Shaw et al. 2018, arXiv 1803.02155).

    Args:
        dim: width of the vectors.
        max_rel_pos: P; offsets are clipped to [-P, P].
    """

    def __init__(self, dim: int, max_rel_pos: int) -> None:
        super().__init__()
        if max_rel_pos < 0:
            raise ValueError(f"max_rel_pos: expected zero or more, got {max_rel_pos}")
        self.dim = dim
        self.max_rel_pos = max_rel_pos
        self.rel_pos_embeddings = nn.Parameter(torch.empty(2 * max_rel_pos + 1, dim))
        nn.init.xavier_uniform_(self.rel_pos_embeddings)

    def index(self, length_q: int, length_k: int | None = None) -> Tensor:
        """Row of the table for each pair, ``clip(j - i, -P, P) + P``: integers of shape ``(N, M)``."""
        device = self.rel_pos_embeddings.device
        receivers = torch.arange(length_q, device=device)
        senders = receivers if length_k is None else torch.arange(length_k, device=device)
        offsets = senders[None, :] - receivers[:, None]
        return offsets.clamp(-self.max_rel_pos, self.max_rel_pos) + self.max_rel_pos

    def forward(self, length_q: int, length_k: int | None = None) -> Tensor:
        """The vectors of all pairs, shape ``(N, M, dim)``; ``length_k`` is ``length_q`` by default."""
        return self.rel_pos_embeddings[self.index(length_q, length_k)]

    def scores(self, q: Tensor, length_k: int) -> Tensor:
        """Inner products of queries with the vectors of their pairs, without a vector for every pair.

        Math: t_ij = <q_i, a_{clip(j - i)}>

        Args:
            q: ``(B, H, N, dim)``; length_k: M.

        Returns:
            ``(B, H, N, M)``.
        """
        products = q @ self.rel_pos_embeddings.transpose(0, 1)
        index = self.index(q.shape[-2], length_k)
        return products.gather(-1, index.expand(*q.shape[:-1], length_k))


class RotaryPositionalEncoding(nn.Module):
    """Rotary positions (RoPE), with tables that stay float32 whatever the dtype of the module.

    Half-precision tables would place distant positions on the same angle. The tables are not in the state dict.

    Args:
        dim: width of a query or key head; even.
        max_len: largest length.
        theta: base of the frequencies.
    """

    freqs_cos: Tensor
    freqs_sin: Tensor

    def __init__(self, dim: int, max_len: int, theta: float = 10000.0) -> None:
        super().__init__()
        self.dim = dim
        self.max_len = max_len
        self.theta = theta
        cos, sin = rotary_tables(dim, max_len, theta=theta)
        self.register_buffer("freqs_cos", cos, persistent=False)
        self.register_buffer("freqs_sin", sin, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryPositionalEncoding:
        super()._apply(fn, recurse)
        if self.freqs_cos.dtype != torch.float32:  # .half(), .bfloat16(), .double(): restore what the cast rounded
            device = self.freqs_cos.device
            self.freqs_cos, self.freqs_sin = rotary_tables(self.dim, self.max_len, theta=self.theta, device=device)
        return self

    def tables(self, length: int) -> tuple[Tensor, Tensor]:
        """``(freqs_cos, freqs_sin)`` for the first ``length`` positions, each ``(length, dim / 2)``, for the layers.

        Raises:
            ValueError: if ``length`` exceeds ``max_len``.
        """
        if length > self.max_len:
            raise ValueError(f"length: {length} exceeds max_len={self.max_len}")
        return self.freqs_cos[:length], self.freqs_sin[:length]

    def forward(self, x: Tensor) -> Tensor:
        """Rotate queries or keys, ``(B, H, L, dim) -> (B, H, L, dim)``."""
        return apply_rotary(x, *self.tables(x.shape[-2]))
