"""Beam search: likely continuations of a prompt, without chance.

Math: score(y) = sum_t log p(y_t | prompt, y_<t) / |y|^length_penalty, with the stop token counted in |y|

At each step every live hypothesis of a row is continued by every token. Of these candidates the best ``num_beams`` are
examined, and those that end with a stop token become finished hypotheses, of which the best ``num_beams`` are kept;
the best ``num_beams`` of the candidates that do not end live on. A row is done when no live hypothesis can still
surpass the finished ones to be returned; at the end, those cut short compete with the finished ones.

The sum alone prefers short texts, since each token lowers it; dividing by the length counters that. ``|y|`` to a power
is the common form of the length normalisation of Wu et al. 2016 (arXiv 1609.08144, eq. 14).

Shapes: B batch, K beams, R hypotheses returned, T new tokens, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .._layers.inputs import check_boolean
from ._checks import check_integer, check_logits, check_number
from .decoding import Decoder


class BeamSearchOutput(NamedTuple):
    """Output of beam search, best first.

    Attributes:
        tokens: integers ``(B, R, T)``, after a stop token ``pad_token``.
        scores: ``(B, R)``; where fewer hypotheses exist than were asked for, ``-inf``.

    >>> lm = TransformerLM(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> out = beam_search(lm, torch.tensor([[1, 2, 3]]), 4, num_beams=3, num_return=2)
    >>> out.tokens.shape, out.scores.shape
    (torch.Size([1, 2, 7]), torch.Size([1, 2]))
    """

    tokens: Tensor
    scores: Tensor


@dataclass(frozen=True)
class BeamSearch:
    """Options of a beam search.

    Attributes:
        num_beams: K, hypotheses kept for each row.
        num_return: R, hypotheses returned for each row, at most K.
        length_penalty: exponent of the length; 0 ranks by the sum, larger values favour longer texts.
        early_stopping: a row is done as soon as K hypotheses have finished, though live ones might surpass them.
        stop_tokens: end a hypothesis.
        pad_token: fills the places after a stop token.

    >>> BeamSearch(num_beams=4, num_return=2)
    BeamSearch(num_beams=4, num_return=2, length_penalty=1.0, early_stopping=False, stop_tokens=(), pad_token=0)
    """

    num_beams: int
    num_return: int = 1
    length_penalty: float = 1.0
    early_stopping: bool = False
    stop_tokens: tuple[int, ...] = ()
    pad_token: int = 0

    def __post_init__(self) -> None:
        check_boolean(early_stopping=self.early_stopping)
        check_integer("num_beams", self.num_beams, low=1)
        if check_integer("num_return", self.num_return, low=1) > self.num_beams:
            raise ValueError(f"num_return: expected at most num_beams={self.num_beams}, got {self.num_return}")
        check_number("length_penalty", self.length_penalty, "a finite number", low=-math.inf, open_low=False)

    def score(self, sums: Tensor, length: int) -> Tensor:
        """Scores of hypotheses of this length with these sums of log-probabilities."""
        return sums / length**self.length_penalty

    def bound(self, sums: Tensor, length: int, longest: int) -> Tensor:
        """Best scores that hypotheses can still reach when continued to at most ``longest`` tokens."""
        # A sum is negative and only falls: a longer text can gain only by a larger divisor.
        return self.score(sums, longest if self.length_penalty > 0 else length + 1)


def search_beams(decoder: Decoder, prompt: Tensor, max_new_tokens: int, search: BeamSearch) -> BeamSearchOutput:
    """Search for the best continuations of each prompt, integers ``(B, L)``, L >= 1; each row becomes K rows, one after
    another. A ``ValueError`` reports logits that are NaN.

    >>> lm = TransformerLM(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> with evaluating(lm):
    ...     out = search_beams(LanguageModelDecoder(lm), torch.tensor([[1, 2, 3]]), 4, BeamSearch(num_beams=3))
    >>> out.tokens.shape
    torch.Size([1, 1, 4])
    """
    batch, beams = len(prompt), search.num_beams
    if not batch or not max_new_tokens:
        tokens = prompt.new_empty(batch, search.num_return, 0)
        scores = torch.full((batch, search.num_return), -math.inf, device=prompt.device)
        scores[:, :1] = 0  # the empty hypothesis
        return BeamSearchOutput(tokens, scores)
    logits = decoder.step(prompt)
    rows = torch.arange(batch, device=prompt.device)[:, None]
    decoder.reorder(rows.expand(batch, beams).flatten())
    hypotheses = _Hypotheses(search, batch, max_new_tokens, logits)
    logits = logits.repeat_interleave(beams, dim=0)
    while True:
        parents, tokens = hypotheses.advance(logits)
        if hypotheses.done:
            return hypotheses.best()
        decoder.reorder((rows * beams + parents).flatten())
        logits = decoder.step(tokens.flatten()[:, None])


class _Hypotheses:
    """The live and the finished hypotheses of all rows: their tokens ``(B, K, T)``, sums or scores ``(B, K)``."""

    def __init__(self, search: BeamSearch, batch: int, longest: int, logits: Tensor) -> None:
        self.search, self.longest, self.length = search, longest, 0
        device, dtype = logits.device, torch.float64 if logits.dtype == torch.float64 else torch.float32
        shape = (batch, search.num_beams)
        self.live = torch.full((*shape, longest), search.pad_token, device=device)
        self.sums = torch.full(shape, -math.inf, dtype=dtype, device=device)
        self.sums[:, 0] = 0  # all beams begin alike: only one counts
        self.finished = self.live.clone()
        self.scores = torch.full_like(self.sums, -math.inf)
        self.ended = torch.zeros(batch, dtype=torch.bool, device=device)
        self.stops = torch.zeros(logits.shape[-1], dtype=torch.bool, device=device)
        self.stops[list(search.stop_tokens)] = True

    @property
    def done(self) -> bool:
        return self.length == self.longest or bool(self.ended.all())

    def advance(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Continue live hypotheses by one token; returns the beam that each continues, and its token, ``(B, K)``."""
        check_logits(logits)
        vocabulary = logits.shape[-1]
        steps = logits.to(self.sums.dtype).log_softmax(dim=-1).view(*self.sums.shape, vocabulary)
        candidates = self.sums[..., None] + steps  # (B, K, V)
        self.length += 1
        if self.search.stop_tokens:
            self._finish(candidates)
            candidates = candidates.masked_fill(self.stops, -math.inf)
        self.sums, parents, tokens = self._best_of(candidates)
        self.live = _continued(self.live, parents, tokens, self.length)
        if self.search.stop_tokens:
            self._end_rows()
        return parents, tokens

    def best(self) -> BeamSearchOutput:
        """The best R of the finished hypotheses and, in rows that have not ended, of the live ones."""
        alive = self.search.score(self.sums, self.length).masked_fill(self.ended[:, None], -math.inf)
        self._keep_best(self.live, alive)
        n = self.search.num_return
        tokens, scores = self.finished[:, :n, : self.length], self.scores[:, :n]
        return BeamSearchOutput(tokens.masked_fill(scores[..., None] == -math.inf, self.search.pad_token), scores)

    def _best_of(self, candidates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sums, parents and tokens of the best K of the candidates ``(B, K, V)``; each ``(B, K)``."""
        sums, places = candidates.flatten(1).topk(self.search.num_beams, dim=-1)
        vocabulary = candidates.shape[-1]
        return sums, places // vocabulary, places % vocabulary

    def _finish(self, candidates: Tensor) -> None:
        sums, parents, tokens = self._best_of(candidates)
        keep = self.stops[tokens] & ~self.ended[:, None]
        scores = self.search.score(sums, self.length).masked_fill(~keep, -math.inf)
        self._keep_best(_continued(self.live, parents, tokens, self.length), scores)

    def _keep_best(self, tokens: Tensor, scores: Tensor) -> None:
        self.scores, places = torch.cat([self.scores, scores], dim=1).topk(self.search.num_beams, dim=1)
        everything = torch.cat([self.finished, tokens], dim=1)
        self.finished = everything.gather(1, places[..., None].expand(-1, -1, self.longest))

    def _end_rows(self) -> None:
        needed = self.search.num_beams if self.search.early_stopping else self.search.num_return
        last = self.scores[:, needed - 1]
        if self.search.early_stopping:
            self.ended |= last > -math.inf
        elif self.length < self.longest:
            self.ended |= last >= self.search.bound(self.sums, self.length, self.longest).amax(dim=1)


def _continued(hypotheses: Tensor, parents: Tensor, tokens: Tensor, length: int) -> Tensor:
    """The hypotheses ``(B, K, T)`` of the parents ``(B, K)``, with tokens ``(B, K)`` as their ``length``-th."""
    continued = hypotheses.gather(1, parents[..., None].expand(-1, -1, hypotheses.shape[-1]))
    continued[..., length - 1] = tokens
    return continued
