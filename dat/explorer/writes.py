"""Writes: what every head and relation of a language model adds to the prediction of the next token, directly.

Shapes: N tokens of the text, P parts, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from torch import Tensor

from dual_attention.model_analysis.attribution import LogitAttribution, attribute_logits
from dual_attention.model_analysis.views.tokens import token_labels

from .requests import Json, choice_of, integer_of, text_of
from .session import Session

BY = ("head", "relation", "each")
"""Parts: heads; relations, and symbols, through all heads of a layer; or each relation of each head."""

SHOWN = 12
"""Likeliest next tokens, and tokens at each end of what a part writes."""

MOST_PARTS = 1024
"""Parts whose tokens are named, those with the largest effects."""

_CHUNK = 1 << 24  # logits at a time


def written(session: Session, request: Mapping[str, Any]) -> Json:
    """Contribution of each part of a model to the logits of the token after one of a text.

    Args:
        request: ``text``; ``place`` of the token after which the next one is predicted, by default the last; ``by``,
            one of :data:`BY`; and ``target``, id of the token to which effects belong, by default the likeliest.

    Returns:
        ``tokens``: labels of the text; ``place``; ``by``; ``likeliest``: next tokens by ``id``, ``token`` and
        ``probability``, that of the text among them; ``target``: the chosen one likewise, with its ``logit`` less the
        mean over the vocabulary. ``parts``: as :class:`~dual_attention.model_analysis.attribution.LogitPart` has them;
        ``effects``: of each on that logit, which they add up to; and ``writes``: tokens that each ``promoted`` and
        ``suppressed`` most, with its effect on their logits, also less the mean; None beyond :data:`MOST_PARTS`.

    Raises:
        ValueError: for a text that the model cannot read, and a place or token out of range.
    """
    ids = session.tokens(text_of(request))
    known = session.tokenizer.vocab_size
    place = integer_of(request, "place", 0, len(ids) - 1, len(ids) - 1)
    by = choice_of(request, "by", BY)
    with session.reserved() as model:
        found = attribute_logits(model, session.tensor(ids), place)
    found = found if by == "each" else found.merged(by)
    logits = found.vectors[0].sum(0) @ found.unembedding.T
    shares = logits.softmax(-1)[:known]
    likeliest = shares.topk(min(SHOWN, known)).indices.tolist()
    token = integer_of(request, "target", 0, known - 1, likeliest[0])
    likeliest += [one for one in dict.fromkeys([*ids[place + 1 : place + 2], token]) if one not in likeliest]
    effects = found.effects(token)[0]
    return {
        "tokens": token_labels(session.tokenizer, ids),
        "place": place,
        "by": by,
        "likeliest": [{**session.named(one), "probability": float(shares[one])} for one in likeliest],
        "target": {**session.named(token), "probability": float(shares[token]), "logit": float(effects.sum())},
        "parts": [asdict(part) for part in found.parts],
        "effects": effects.tolist(),
        "writes": _writes(session, found, effects),
    }


def _writes(session: Session, found: LogitAttribution, effects: Tensor) -> list[Json | None]:
    """Tokens at both ends of what the parts with the largest effects write."""
    known = session.tokenizer.vocab_size
    chosen: Sequence[int] = effects.abs().argsort(descending=True)[:MOST_PARTS].tolist()
    writes: list[Json | None] = [None] * len(effects)
    step = max(1, _CHUNK // len(found.unembedding))
    for first in range(0, len(chosen), step):
        chunk = chosen[first : first + step]
        values = found.logits(chunk)[0]
        values = (values - values.mean(-1, keepdim=True))[:, :known]
        for place, row in zip(chunk, values, strict=True):
            ends = (row.topk(min(SHOWN, known), largest=largest) for largest in (True, False))
            promoted, suppressed = (
                [[token_labels(session.tokenizer, [token])[0], value] for token, value in zip(*pair, strict=True)]
                for pair in ((end.indices.tolist(), end.values.tolist()) for end in ends)
            )
            writes[place] = {"promoted": promoted, "suppressed": suppressed}
    return writes
