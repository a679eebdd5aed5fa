"""Choice of the next token: pure functions change its logits, then the largest or a random one is taken.

Each function takes logits ``(..., V)`` and returns new ones, in which a token that may not be chosen has ``-inf``.
:class:`Sampling` applies them in this order, each to the result of the one before:

1. the caller's own processors
2. :func:`penalise_repetition`
3. :func:`apply_temperature`; with temperature 0 the largest logit is taken here, and the rest does not matter
4. :func:`keep_top_k`
5. :func:`keep_top_p`
6. :func:`keep_min_p`

Math: p(v) is the softmax of the logits that a function is given.

Shapes: B batch, L tokens so far, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ._checks import check_integer, check_logits, check_number

LogitsProcessor = Callable[[Tensor, Tensor], Tensor]
"""Change of logits ``(B, V)``, given the tokens so far ``(B, L)``, left padding included."""


def apply_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Divide logits by a temperature above 0: below 1 sharpens their distribution, above 1 flattens it.

    The largest logit is subtracted first, which changes no probability, so that no temperature is too small. One that
    is not above 0 and finite is a ``ValueError``.

    >>> apply_temperature(torch.tensor([1.0, 2.0]), 0.5)
    tensor([-2.,  0.])
    """
    temperature = check_number("temperature", temperature, "a number above 0", low=0, open_low=True)
    if temperature == 1:
        return logits
    return (logits - logits.amax(dim=-1, keepdim=True)) / max(temperature, torch.finfo(logits.dtype).tiny)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the tokens whose logit is no smaller than the ``k``-th largest (Fan et al. 2018, arXiv 1805.04833).

    Tokens that tie with the ``k``-th are all kept. With ``k`` above V, all tokens are; below 1 it is a ``ValueError``.

    >>> keep_top_k(torch.tensor([0.0, 3.0, 2.0]), 2)
    tensor([-inf, 3., 2.])
    """
    k = min(check_integer("top_k", k, low=1), logits.shape[-1])
    least = logits.topk(k, dim=-1).values[..., -1:]
    return logits.masked_fill(logits < least, -math.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the nucleus: the smallest set of most likely tokens whose mass reaches ``p`` (arXiv 1904.09751, eq. 2).

    Math: v is kept if the tokens more likely than v have a mass below p; of equally likely ones the first come first.

    With 1 all tokens are kept; outside (0, 1] it is a ``ValueError``.

    >>> keep_top_p(torch.tensor([0.0, 3.0, 2.0]), 0.9)
    tensor([-inf, 3., 2.])
    """
    p = check_number("top_p", p, "a number in (0, 1]", low=0, high=1, open_low=True)
    if p == 1:  # rounding could let the mass reach 1 early
        return logits
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    before = F.pad(ordered.softmax(dim=-1).cumsum(dim=-1)[..., :-1], (1, 0))
    return logits.masked_fill((before >= p).scatter(-1, order, before >= p), -math.inf)


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """Keep the tokens at least ``p`` times as likely as the likeliest one (arXiv 2407.01082, section 3).

    Math: v is kept if p(v) >= p max_u p(u)

    With 0 all tokens are kept; outside [0, 1] it is a ``ValueError``.

    >>> keep_min_p(torch.tensor([0.0, 3.0, 2.9]), 0.5)
    tensor([  -inf, 3.0000, 2.9000])
    """
    p = check_number("min_p", p, "a number in [0, 1]", low=0, high=1, open_low=False)
    if p == 0:
        return logits
    return logits.masked_fill(logits < logits.amax(dim=-1, keepdim=True) + math.log(p), -math.inf)


def penalise_repetition(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Make tokens that were already seen less likely (CTRL, arXiv 1909.05858, section 4.1).

    Math: x(v) / penalty if x(v) > 0, else x(v) penalty, for v seen

    The paper divides every logit, which would make a token of negative logit more likely; here, as in common use, those
    are multiplied. The penalty is the same however often a token was seen; below 1 it favours repetition.

    Args:
        seen: boolean, broadcastable to the logits.
        penalty: above 0 and finite, otherwise a ``ValueError``.

    >>> penalise_repetition(torch.tensor([[2.0, -2.0, 1.0]]), torch.tensor([[True, True, False]]), penalty=2.0)
    tensor([[ 1., -4.,  1.]])
    """
    penalty = check_number("repetition_penalty", penalty, "a number above 0", low=0, open_low=True)
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def tokens_seen(tokens: Tensor, vocab_size: int, padding_mask: Tensor | None = None) -> Tensor:
    """Mask ``(B, V)`` of the vocabulary's tokens that occur in each row of ``(B, L)``, which may hold others.

    Args:
        padding_mask: boolean ``(B, L)``; True = a real token, as all are by default.

    >>> tokens_seen(torch.tensor([[0, 2, 2]]), vocab_size=4)
    tensor([[ True, False,  True, False]])
    """
    real = tokens < vocab_size if padding_mask is None else padding_mask & (tokens < vocab_size)
    counts = torch.zeros(len(tokens), vocab_size, dtype=torch.long, device=tokens.device)
    return counts.scatter_add_(1, tokens.clamp(max=vocab_size - 1), real.long()) > 0


@dataclass(frozen=True)
class Sampling:
    """Options for choosing the next token from its logits, checked.

    Attributes:
        temperature: divides the logits; 0 takes the largest logit, without chance.
        top_k, top_p, min_p: see :func:`keep_top_k`, :func:`keep_top_p` and :func:`keep_min_p`; None for all.
        repetition_penalty: see :func:`penalise_repetition`; 1 for none.
        processors: the caller's own functions of tokens and logits.

    >>> logits, tokens = torch.tensor([[0.0, 9.0, 1.0]]), torch.tensor([[2, 0]])
    >>> Sampling(top_k=1).choose(logits, tokens, None, None)
    tensor([1])
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    processors: Sequence[LogitsProcessor] = ()

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, "a number of at least 0 (0: greedy)", low=0, open_low=False)
        # Each function checks its own argument; one token is enough to ask it.
        self._restrict(torch.zeros(1))
        penalise_repetition(torch.zeros(1), torch.ones(1, dtype=torch.bool), self.repetition_penalty)
        if not isinstance(self.processors, Sequence) or not all(map(callable, self.processors)):
            raise TypeError(f"logits_processors: expected a sequence of functions, got {self.processors!r}")

    def process(self, logits: Tensor, tokens: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Logits whose softmax is drawn from, ``(B, V) -> (B, V)``; with temperature 0, whose largest is taken.

        They have at least single precision, whatever the model's. ``ValueError`` if they are NaN, or leave nothing to
        choose.

        Args:
            tokens: integers ``(B, L)``, the tokens so far, which the penalty and the processors read.
            padding_mask: boolean ``(B, L)``; True = a real token.
        """
        logits = logits if logits.dtype == torch.float64 else logits.float()
        for processor in self.processors:
            processed = processor(tokens, logits)
            if not isinstance(processed, Tensor) or processed.shape != logits.shape:
                got = tuple(processed.shape) if isinstance(processed, Tensor) else type(processed).__name__
                raise ValueError(f"logits_processors: expected logits {tuple(logits.shape)} returned, got {got}")
            logits = processed
        if self.repetition_penalty != 1:
            seen = tokens_seen(tokens, logits.shape[-1], padding_mask)
            logits = penalise_repetition(logits, seen, self.repetition_penalty)
        check_logits(logits)
        return self._restrict(apply_temperature(logits, self.temperature)) if self.temperature else logits

    def choose(
        self,
        logits: Tensor,
        tokens: Tensor,
        padding_mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The next tokens, integers ``(B,)``; arguments as :meth:`process`.

        Random numbers are drawn on the generator's device, so that one on the CPU gives the same on every device.
        Without a generator they come from the global one of the logits' device.
        """
        logits = self.process(logits, tokens, padding_mask)
        if not self.temperature:
            return logits.argmax(dim=-1)
        probabilities = logits.softmax(dim=-1)
        if generator is not None:
            probabilities = probabilities.to(generator.device)
        return torch.multinomial(probabilities, 1, generator=generator).squeeze(-1).to(logits.device)

    def _restrict(self, logits: Tensor) -> Tensor:
        if self.top_k is not None:
            logits = keep_top_k(logits, self.top_k)
        if self.top_p is not None:
            logits = keep_top_p(logits, self.top_p)
        return logits if self.min_p is None else keep_min_p(logits, self.min_p)
