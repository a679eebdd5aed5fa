"""The answers of a session to what its pages ask, by path."""

from collections.abc import Iterator, Mapping

from ..description import OPTIMISED_IN, describe, sections_of
from .ablations import ABLATED, ablations
from .cards import card
from .dictionaries import made_dictionary
from .image_cards import image_card
from .images import IMAGE_BYTES, ImageSession
from .opening import Explored
from .patching import patching
from .questions import QuestionSession
from .requests import TEXT_BYTES, Answer, Json, Malformed, text_of
from .session import Session, TextSession
from .streaming import generated
from .switches import switch_effects
from .writes import written


def answers_of(session: Explored) -> Mapping[str, Answer]:
    """Answers of a session, by path."""
    if isinstance(session, ImageSession):
        found = _of_images(session)
    else:
        found = {"/record": Answer(lambda request: {"recording": _recorded(session, request)})}
        if isinstance(session, TextSession):
            found["/maps"] = Answer(session.maps)
        found |= _of_language(session) if isinstance(session, Session) else {}
    if isinstance(session, ABLATED):
        most = IMAGE_BYTES if isinstance(session, ImageSession) else TEXT_BYTES
        found = {**found, "/ablate": Answer(lambda request: ablations(session, request), most)}
    if session.corpus is not None:
        found = {**found, "/fires": Answer(lambda asked: session.fires(asked.get("layer"), asked.get("relation")))}
    if session.run is not None:
        found = {**found, "/measure-corpus": Answer(lambda _: _measured_corpus(session))}
    if session.checkpoint is not None:
        found = {**found, "/model": Answer(lambda _: model_facts(session))}
    others = {} if session.beside is None else answers_of(session.beside)
    return {**found, **{f"/beside{path}": answer for path, answer in others.items()}}


def offers_of(session: Explored) -> Json:
    """Paths that a page of a session may ask, samples of images, and a run over a corpus that it may start."""
    offers: Json = {"paths": sorted(path.removeprefix("/") for path in answers_of(session))}
    offers |= {"run": session.run.about} if session.run else {}
    return {**offers, "samples": session.samples} if isinstance(session, ImageSession) else offers


def model_facts(session: Explored) -> Json:
    """Sizes, configuration and costs of a session's model, as ``dat info`` gives them.

    Returns:
        ``sections``: rows of words by heading; ``parts``: name, parameters, and operations of a forward pass for each
        token, of each part of the model.

    Raises:
        ValueError: for a session of a model that was not opened from a checkpoint.
    """
    if session.checkpoint is None:
        raise ValueError("checkpoint: this model was not opened from one")
    with session.reserved():
        found = describe(session.checkpoint, OPTIMISED_IN)
    counts, flops = found["parts"], found["part_flops_per_token"]
    return {
        "sections": {heading: [list(row) for row in rows] for heading, rows in sections_of(found).items()},
        "parts": [
            [name, counts.get(name, {"parameters": 0})["parameters"], flops.get(name, 0)]
            for name in dict.fromkeys([*counts, *flops])
        ],
    }


def _measured_corpus(session: Explored) -> Iterator[Json]:
    """Texts ``finished`` of all ``texts`` after each batch of a session's run, which goes on where it was stopped; then
    what its pages have of a corpus.
    """
    run, corpus = session.run, session.corpus
    assert corpus is not None
    yield {"finished": len(run.texts) - len(run.left), "texts": len(run.texts)}
    for _ in run.steps():
        yield {"finished": len(run.texts) - len(run.left), "texts": len(run.texts)}
    corpus.update(run.json)
    yield session.kept


def _recorded(session: TextSession | QuestionSession, request: Json) -> Json:
    text, layers = text_of(request), request.get("layers", [])
    if not isinstance(layers, list) or not all(isinstance(layer, str) for layer in layers):
        raise Malformed("The request needs names of layers.")
    return session.packed(text, layers)


def _of_language(session: Session) -> Mapping[str, Answer]:
    found = {
        "/intervene": Answer(lambda request: switch_effects(session, request)),
        "/card": Answer(lambda request: card(session, request)),
        "/writes": Answer(lambda request: written(session, request)),
        "/patch": Answer(lambda request: patching(session, request)),
        "/generate": Answer(lambda request: generated(session, request)),
        "/make-dictionary": Answer(lambda request: made_dictionary(session, request), largest=4 << 20),
    }
    if session.dictionary is None:
        return found
    return {**found, "/dictionary": Answer(lambda _: {"dictionary": session.dictionary})}


def _of_images(session: ImageSession) -> Mapping[str, Answer]:
    def sample(request: Json) -> Json:
        name = text_of(request, "sample")
        if name not in session.samples:  # a file of this machine, say, which no page may ask for
            raise ValueError(f"sample: expected one of {', '.join(session.samples)}, got {name!r}")
        return {"recording": session.packed(name)}

    cards = {"/card": Answer(lambda request: image_card(session, request))} if session.pictures_of else {}
    return {
        **cards,
        "/sample": Answer(sample),
        "/image": Answer(lambda data: {"recording": session.packed_file(data)}, IMAGE_BYTES, takes_bytes=True),
    }
