"""Relation dictionaries for a page: one from a file, or one of a text, made while the page shows how far it is."""

import os
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dual_attention.generation import evaluating
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.dictionaries import (
    DictionarySettings,
    PairContext,
    PairExample,
    RelationDictionary,
    build_dictionary,
    load_dictionary,
    weights_digest,
)
from dual_attention.model_analysis.sites import LayerChoice, choose_sites
from dual_attention.model_analysis.views.tokens import token_labels

from .requests import Json, integer_of, text_of
from .session import Session

ENDING = ".jsonl"

WINDOW = 128
"""Tokens of a piece that a long text is cut into, at most."""

WHOLE = 1 << 26
"""Values of all relations up to which a text that the model can read is no long one."""

MOST_TOKENS = 200_000
"""Tokens of a text that a page may have a dictionary made of."""

MOST_PAIRS = 50
"""Pairs of a relation that a page may ask for."""

_BATCH = 4


def find_dictionary(name: str) -> Path:
    """The file of a dictionary: itself, or the only one in a folder.

    Raises:
        OSError, ValueError: if there is none, or several.
    """
    path = Path(os.path.expanduser(name))
    if not path.is_dir():
        if not path.exists():
            raise FileNotFoundError(f"dictionary: there is no file or folder {name}")
        return path
    found = [inner for inner in sorted(path.iterdir()) if inner.suffix == ENDING]
    if len(found) != 1:
        names = ", ".join(inner.name for inner in found) or "none"
        raise ValueError(f"dictionary: expected one file {ENDING} in the folder {name}, got {names}")
    return found[0]


def read_dictionary(session: Session, name: str) -> Json:
    """A dictionary for a page, with labels for tokens.

    Raises:
        OSError, ValueError: as :func:`find_dictionary` and :func:`load_dictionary`; and if a token in it is none of the
            session's tokenizer, or a context is not that of its object.
    """
    path = find_dictionary(name)
    found = load_dictionary(path)
    known = session.tokenizer.vocab_size
    for example in (one for entry in found.entries for one in (entry.example, *entry.counterexamples)):
        objects = (example.receiver, example.receiver_context), (example.sender, example.sender_context)
        for place, context in objects:
            if not 0 <= place - context.start < len(context.tokens):
                raise ValueError(f"dictionary: {name}: expected a context of the object {place}, got {context}")
        shown = *example.receiver_context.tokens, *example.sender_context.tokens
        largest = max(example.receiver_token, example.sender_token, *shown)
        if largest >= known:
            raise ValueError(f"dictionary: {name} has the token {largest}, but the tokenizer only {known}")
    same = found.about.get("model") == weights_digest(session.model)
    return dictionary_json(found, session, path.name, "" if same else "It was made with other weights than these.")


def dictionary_json(dictionary: RelationDictionary, session: Session, source: str, note: str = "") -> Json:
    """A dictionary as a page reads it."""
    about = {name: dictionary.about.get(name) for name in ("documents", "tokens")}
    return {
        "source": source,
        "note": note,
        **about,
        "entries": [
            {
                "layer": entry.layer,
                "relation": entry.relation,
                "end": entry.end,
                "rank": entry.rank,
                "example": example_json(entry.example, session),
                "counterexamples": [example_json(other, session) for other in entry.counterexamples],
            }
            for entry in dictionary.entries
        ],
    }


def example_json(example: PairExample, session: Session) -> Json:
    """A pair as a page reads it."""
    return {
        "value": example.value,
        "document": example.document,
        "receiver": _object(example.receiver, example.receiver_context, session),
        "sender": _object(example.sender, example.sender_context, session),
    }


def _object(place: int, context: PairContext, session: Session) -> Json:
    """An object in its context: labels, and which of them is meant."""
    return {"place": place, "labels": token_labels(session.tokenizer, context.tokens), "at": place - context.start}


def windows(tokens: Sequence[int], length: int) -> list[Tensor]:
    """Tokens in documents of one length; the last may be shorter."""
    return list(torch.tensor(tokens, dtype=torch.long).split(length))


PIECES = (
    "It was read in pieces of {} tokens, each without what stands before it: pairs across two are not seen, and a map "
    "of the whole text may have other values."
)


def window_of(session: Session, tokens: int) -> int:
    """Length of the pieces that a text is read in: all of it, if the model can and its relations are few enough."""
    relations = sum(choice.site.n_relations for choice in choose_sites(session.model, session.layers))
    whole = tokens <= session.context and tokens**2 * relations <= WHOLE
    return tokens if whole else min(WINDOW, session.context)


def give_exact_values(model: Any, documents: Sequence[Tensor], found: Json, layers: LayerChoice) -> None:
    """Put the values of maps into the JSON of a dictionary, which was built with those to about four digits."""
    pairs: dict[int, list[tuple[Json, Json]]] = {}
    for entry in found["entries"]:
        for one in (entry["example"], *entry["counterexamples"]):
            pairs.setdefault(one["document"], []).append((entry, one))
    for number, own in pairs.items():
        with evaluating(model), capture(model, ["relations"], layers=layers, heads="relational") as maps:
            model(documents[number][None].to(next(model.parameters()).device))
        for entry, one in own:
            values = maps[entry["layer"]].relational.get("relations")[0, ..., entry["relation"]]
            one["value"] = float(values[one["receiver"]["place"], one["sender"]["place"]])


class _Stopped(Exception):
    """Nobody waits for the dictionary any more."""


def made_dictionary(session: Session, request: Mapping[str, Any]) -> Iterator[Json]:
    """Make a dictionary of a text.

    Args:
        request: ``text``, of any length up to :data:`MOST_TOKENS`; ``pairs`` of each relation and end, to
            :data:`MOST_PAIRS`.

    Yields:
        ``done`` documents ``of`` all, again and again, and at last the ``dictionary``.

    Raises:
        ValueError: for a text that has too few or too many tokens.
    """
    text = text_of(request)
    settings = DictionarySettings(
        top=integer_of(request, "pairs", 1, MOST_PAIRS, 10), ends=("high", "low"), counterexamples=2, context=6
    )
    try:
        tokens = session.tokenizer.encode_alone(text)
    except UnicodeEncodeError as error:
        raise ValueError(f"text: expected UTF-8 text ({error})") from error
    if not 2 <= len(tokens) <= MOST_TOKENS:
        raise ValueError(f"text: expected 2 to {MOST_TOKENS:,} tokens, got {len(tokens):,}")
    documents = windows(tokens, window_of(session, len(tokens)))
    yield {"done": 0, "of": len(documents)}
    model = session.twin()
    news: queue.SimpleQueue[Json | Exception] = queue.SimpleQueue()
    stopped = threading.Event()
    done = 0

    def call(batch: Tensor) -> None:
        nonlocal done
        if stopped.is_set():
            raise _Stopped
        model(batch)
        done += len(batch)
        news.put({"done": done, "of": len(documents)})

    def work() -> None:
        try:
            found = build_dictionary(model, documents, settings, layers=session.layers, batch_size=_BATCH, call=call)
            note = PIECES.format(len(documents[0])) if len(documents) > 1 else ""
            made = dictionary_json(found, session, "the text", note)
            give_exact_values(model, documents, made, session.layers)
            news.put({"dictionary": made})
        except Exception as error:
            news.put(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        while True:
            part = news.get()
            if isinstance(part, Exception):
                raise part
            yield part
            if "dictionary" in part:
                return
    finally:
        stopped.set()
        worker.join()
