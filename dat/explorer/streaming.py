"""Generation for a page: new tokens as they are chosen, each with the maps of the step that chose it.

Shapes: F maps of a layer: its heads, or its relations; M senders, which are the tokens so far; V vocabulary.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dual_attention.generation import generate_stream
from dual_attention.model_analysis.sites import choose_sites
from dual_attention.model_analysis.views.tokens import token_labels

from .packing import PackedRows, unpacked_array
from .requests import Json, integer_of, number_of, text_of
from .session import Session

MOST_NEW = 512
"""Tokens of an answer."""

MOST_BYTES = 64 << 20
"""Bytes of the maps of an answer, after which steps come without."""

LIKELIEST = 8
"""Tokens of a step that could have been chosen, with their probabilities."""


_LABELLED = 4  # a character has four bytes at most, so that a token changes the labels of the three before


class LastRows:
    """Attention weights and relations of the last receiver in the last call, in chosen layers of a model.

    Hooks stay on the model, which is one of its own (:meth:`~.session.Session.twin`).

    Attributes:
        sites: heads, in order.
        rows: maps by site and name, ``(F, M)`` each, float32 on the CPU.
    """

    NAMES = ("weights", "relations")

    def __init__(self, model: Any, layers: Any = None) -> None:
        self.sites = [choice.site for choice in choose_sites(model, layers)]
        self.rows: dict[tuple[int, str], Tensor] = {}
        for place, site in enumerate(self.sites):
            for name in self.NAMES:
                if (tap := site.tap(name)) is not None:
                    tap.register_forward_hook(self._keep(place, name))

    def _keep(self, place: int, name: str) -> Callable[..., None]:
        def keep(_module: Any, _args: Any, x: Tensor) -> None:
            row = x[0, -1].transpose(0, 1) if name == "relations" else x[0, :, -1]
            self.rows[place, name] = row.detach().float().cpu()

        return keep

    def about(self) -> list[Json]:
        """Layer, kind, and number of heads and of relations of each site."""
        return [
            {"layer": site.layer, "kind": site.kind, "weights": site.n_heads, "relations": site.n_relations}
            for site in self.sites
        ]

    def packed(self) -> tuple[list[Json], int]:
        """The rows in 8 bits, and their bytes."""
        found, size = [], 0
        for place, site in enumerate(self.sites):
            parts: Json = {"first": site.module.taps.first_sender}  # which a window may have moved on
            for name in self.NAMES:
                if (row := self.rows.get((place, name))) is not None:
                    parts[name] = PackedRows.of(row, 8).json()
                    size += row.numel()
            found.append(parts)
        return found, size


class _Draws:
    """Likely tokens of the last step, and logits of none but the tokenizer's tokens."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.log_probs = torch.zeros(1)

    def __call__(self, _tokens: Tensor, logits: Tensor) -> Tensor:
        logits = logits.clone()
        logits[:, self.vocab_size :] = -math.inf  # rows that only round up the size of the embeddings
        self.log_probs = logits[0].float().log_softmax(-1)
        return logits

    def likeliest(self, session: Session) -> list[list[Any]]:
        """Labels and probabilities, before temperature and the like."""
        found = self.log_probs.exp().topk(min(LIKELIEST, self.vocab_size))
        return [
            [token_labels(session.tokenizer, [token])[0], share]
            for token, share in zip(found.indices.tolist(), found.values.tolist(), strict=True)
        ]


def generated(session: Session, request: Mapping[str, Any]) -> Iterator[Json]:
    """New tokens after a text, one by one, until the model ends, the context is full, or as many have come as asked.

    Args:
        request: ``text``; ``tokens``, most new ones, to :data:`MOST_NEW`; ``temperature``, ``top_k`` (0: all) and
            ``seed``, as of :func:`~dual_attention.generation.generate`.

    Yields:
        At first ``labels`` of the text, ``sites``, and ``most`` tokens that may come. Then for each token ``from`` and
        ``labels``, those of the last tokens; its ``probability``; the ``likeliest`` tokens; and ``maps``, what the
        token before it gets from all so far, for each site; None where :data:`MOST_BYTES` are used up. At last the
        whole ``text``, and why it ``ended``.

    Raises:
        ValueError: if there is no text or no room after it, or a number is out of range.
    """
    prompt = text_of(request)
    ids = session.tokens(prompt)
    asked = integer_of(request, "tokens", 1, MOST_NEW, 64)
    options = {
        "temperature": number_of(request, "temperature", 0, 100, 0.8),
        "top_k": integer_of(request, "top_k", 0, 1 << 30, 0) or None,
        "seed": integer_of(request, "seed", 0, (1 << 53) - 1, 0),  # the largest integer that a page can write
    }
    most = min(asked, session.context - len(ids))
    if most < 1:
        raise ValueError(f"text: its {len(ids):,} tokens fill the context of {session.context:,}; shorten it")
    model: Any = session.twin()
    draws = _Draws(session.tokenizer.vocab_size)
    rows = LastRows(model, session.layers)
    stream = generate_stream(
        model, session.tensor(ids), most, stop_tokens=session.tokenizer.end, logits_processors=[draws], **options
    )
    yield {"labels": token_labels(session.tokenizer, ids), "sites": rows.about(), "most": most}
    size, ended = 0, "the model ended the text"
    for drawn in stream:
        token = int(drawn)
        if token == session.tokenizer.end:
            break
        ids.append(token)
        since = max(0, len(ids) - _LABELLED)
        around = max(0, since - _LABELLED)  # of a character that begins before
        labels = token_labels(session.tokenizer, ids[around:])[since - around :]
        maps, bytes_ = rows.packed() if size < MOST_BYTES else (None, 0)
        size += bytes_
        yield {
            "from": since,
            "labels": labels,
            "probability": float(draws.log_probs[token].exp()),
            "likeliest": draws.likeliest(session),
            "maps": maps,
        }
    else:
        ended = "the context is full" if most < asked else "as many tokens as asked for"
    yield {"text": prompt + session.tokenizer.decode(ids[len(session.tokens(prompt)) :]), "ended": ended}


def collected(session: Session, request: Mapping[str, Any]) -> Json:
    """All that :func:`generated` yields, in one object as a page keeps it: with ``labels``, ``sites`` and ``steps``."""
    begin, *steps, end = generated(session, request)
    labels = begin["labels"]
    for step in steps:
        labels[step.pop("from") :] = step.pop("labels")
    return {**begin, "steps": steps, **end}


class StepMap(NamedTuple):
    """A map that steps have: number of its site, ``weights`` or ``relations``, its number there, and its title."""

    site: int
    name: str
    number: int
    title: str


def maps_of(sites: list[Json]) -> list[StepMap]:
    """The maps of steps in the order of a page: of each site, relations before heads."""
    return [
        StepMap(place, name, number, f"{site['layer']} {word} {number}")
        for place, site in enumerate(sites)
        for name, word in (("relations", "relation"), ("weights", f"{site['kind']} head"))
        for number in range(site[name])
    ]


def map_of_step(found: Json, step: int, chosen: StepMap) -> Tensor:
    """A map of a step for all tokens before it, ``(M,)``; NaN for those that it did not see."""
    prompt = len(found["labels"]) - len(found["steps"])
    values = torch.full((prompt + step,), torch.nan)
    maps = found["steps"][step]["maps"]
    if maps is not None:
        site = maps[chosen.site]
        rows, scales = (unpacked_array(site[chosen.name][part]) for part in ("values", "scales"))
        row = rows[chosen.number].float() * scales[chosen.number]
        values[site["first"] : site["first"] + len(row)] = row
    return values
