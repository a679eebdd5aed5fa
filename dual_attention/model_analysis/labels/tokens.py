"""Labels of pairs of tokens: of words that were labelled, of equal tokens, of near ones.

Shapes: B texts, N tokens of each.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from ...generation.tokenizer import Tokenizer
from .texts import LabelledText


class TokenPairs(NamedTuple):
    """Texts as tokens, and a label of their pairs.

    Attributes:
        tokens: int64 ``(B, N)``, filled up with the tokenizer's end token.
        labels: boolean ``(B, N, N)``, the pairs with the label, receivers first.
        mask: boolean ``(B, N, N)``, the pairs about which the label says something.
        lengths: int64 ``(B,)``, tokens of each text.

    >>> from dual_attention.generation.tokenizer import ByteTokenizer
    >>> pairs = label_tokens([label_same_words("a rose is a rose")], "same word", ByteTokenizer(), length=16)
    >>> pairs.tokens.shape, pairs.labels.shape, pairs.lengths
    (torch.Size([1, 16]), torch.Size([1, 16, 16]), tensor([16]))
    """

    tokens: Tensor
    labels: Tensor
    mask: Tensor
    lengths: Tensor


def label_tokens(
    texts: Sequence[LabelledText], label: str, tokenizer: Tokenizer, length: int, *, causal: bool = True
) -> TokenPairs:
    """Pairs of tokens with a label, from pairs of words.

    A word stands at its last token, the first at which a causal model has seen all of it. Words that end in the same
    token as another, or beyond ``length`` tokens, are left out.

    Args:
        texts: one or more, cut after ``length`` tokens, N.
        label: one that every text has.
        causal: only pairs whose sender comes before the receiver, as a causal model sees them; otherwise both orders.

    >>> from dual_attention.generation.tokenizer import ByteTokenizer
    >>> pairs = label_tokens([label_same_words("a rose is a rose")], "same word", ByteTokenizer(), length=16)
    >>> pairs.labels[0].nonzero()
    tensor([[10,  0],
            [15,  5]])
    """
    if not texts:
        raise ValueError("texts: expected at least one, got none")
    size = len(texts), length, length
    tokens = torch.full((len(texts), length), tokenizer.end)
    labels, mask = torch.zeros(size, dtype=torch.bool), torch.zeros(size, dtype=torch.bool)
    lengths = torch.zeros(len(texts), dtype=torch.long)
    for b, text in enumerate(texts):
        groups = torch.tensor(text.groups_of(label))
        ids = tokenizer.encode(text.text)[:length]
        places = last_tokens(text, tokenizer)
        lengths[b] = len(ids)
        tokens[b, : len(ids)] = torch.tensor(ids, dtype=torch.long)
        words = [word for word, place in enumerate(places) if place is not None and place < len(ids)]
        where = torch.tensor([places[word] for word in words], dtype=torch.long)
        own = groups[words]
        mask[b, where[:, None], where] = (own[:, None] == own) & (own >= 0)
        place_of = dict(zip(words, where.tolist(), strict=True))
        for pair in text.pairs[label]:
            if all(word in place_of for word in pair):
                i, j = (place_of[word] for word in pair)
                labels[b, i, j] = labels[b, j, i] = True
    mask &= torch.ones(length, length, dtype=torch.bool).tril(-1) if causal else ~torch.eye(length, dtype=torch.bool)
    return TokenPairs(tokens, labels & mask, mask, lengths)


def last_tokens(text: LabelledText, tokenizer: Tokenizer) -> list[int | None]:
    """The token that holds the last byte of each word; None if an earlier word's last is the same.

    >>> from dual_attention.generation.tokenizer import ByteTokenizer
    >>> last_tokens(label_same_words("a rose is"), ByteTokenizer())
    [0, 5, 8]
    """
    ends = list(accumulate(len(tokenizer.token_bytes(token)) for token in tokenizer.encode(text.text)))
    found: list[int | None] = []
    taken: set[int] = set()
    place = characters = 0  # bytes before a character, and its number
    for _, stop in text.words:
        place += len(text.text[characters:stop].encode())
        characters = stop
        token = bisect.bisect_left(ends, place)
        found.append(None if token in taken else token)
        taken.add(token)
    return found


def same_token(tokens: Tensor) -> Tensor:
    """Pairs of different places with the same token: ``(B, N) -> (B, N, N)``, boolean.

    >>> same_token(torch.tensor([[7, 8, 7]]))
    tensor([[[False, False,  True],
             [False, False, False],
             [ True, False, False]]])
    """
    return (tokens[:, :, None] == tokens[:, None, :]) & ~torch.eye(tokens.shape[1], dtype=torch.bool).to(tokens.device)


def near(length: int, k: int) -> Tensor:
    """Pairs of different places that are at most ``k`` apart: boolean ``(length, length)``.

    >>> near(3, 1)
    tensor([[False,  True, False],
            [ True, False,  True],
            [False,  True, False]])
    """
    if k < 1:
        raise ValueError(f"k: expected at least 1, got {k}")
    place = torch.arange(length)
    distance = (place[:, None] - place).abs()
    return (distance > 0) & (distance <= k)
